"""Models as the commands take them: the name of one in the zoo, or a compiled file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from cloakwork.app.cli.shared.console import WrongCallError, progress
from cloakwork.app.cli.shared.failures import reading
from cloakwork.models import zoo
from cloakwork.models.batches.batch_file import is_batch_file
from cloakwork.models.batches.batch_format import MAGIC as BATCH_MAGIC
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.loading import load
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_file import is_index_file
from cloakwork.models.neighbours.index_format import MAGIC as INDEX_MAGIC
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import MAGIC

_READING: Final = "reading the model"
_OTHER_KINDS: Final = {
    INDEX_MAGIC: "an index of nearest neighbours",
    BATCH_MAGIC: "a model for batches",
}
ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model of the zoo ('cloakwork zoo' lists them) or a compiled file.")
]
ModelOption = Annotated[
    str,
    typer.Option(
        "--model", metavar="MODEL", help="Name a model of the zoo ('cloakwork zoo' lists them) or a compiled file."
    ),
]


def program_of(model: CompiledModel | BatchModel | NeighbourIndex) -> Program | None:
    """Returns the program of look-ups of a model, if that is what it is made of."""
    if isinstance(model, BatchModel):
        return None if model.single is None else model.single.program
    return model.program if isinstance(model, CompiledModel) else None


def find_any_model(text: str) -> CompiledModel | BatchModel | NeighbourIndex:
    """Works as `find_model`, also of indices of nearest neighbours and models for batches."""
    path = Path(text)
    if not path.is_file() or not (is_index_file(path) or is_batch_file(path)):
        return find_model(text)
    with reading(path, "a compiled model"), progress(_READING):
        return load(path)


def is_compiled(path: Path) -> bool:
    """Whether a file begins as that of a compiled model, of any kind."""
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) in (MAGIC, *_OTHER_KINDS)


def find_model(text: str) -> CompiledModel:
    """Finds a file or a model of the zoo: a wrong call when there is neither such a file nor such a model; an ONNX file is not compiled here."""
    path = Path(text)
    if path.is_file():
        with path.open("rb") as stream:
            start = stream.read(len(MAGIC))
            if (kind := _OTHER_KINDS.get(start)) is not None:
                raise WrongCallError(
                    f"{text}: {kind}, and this command takes programs of look-ups; 'cloakwork run' computes it, 'cloakwork models add' and "
                    "'cloakwork score' serve and ask it, and cloakwork.load reads it in Python"
                )
            if start != MAGIC:
                raise WrongCallError(
                    f"{text}: expected a compiled model, got another kind of file; make one with "
                    "'cloakwork compile MODEL.onnx --samples DATA.npy -o MODEL.clkm'"
                )
        with reading(path, "a compiled model"), progress(_READING):
            return CompiledModel.load(path)
    if text in zoo.names():
        with progress(_READING):
            return zoo.load_model(text)
    if path.is_dir():
        raise WrongCallError(f"{text}: expected a compiled model, got a folder; name a file in it")
    raise WrongCallError(
        f"there is no file '{text}', nor a model of that name in the zoo, which has {', '.join(zoo.names())}"
    )
