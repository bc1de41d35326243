"""Models as the commands take them: the name of one in the zoo, or a compiled file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import WrongCallError
from cloakwork.app.cli.shared.failures import reading
from cloakwork.models import zoo
from cloakwork.models.compiler import CompiledModel
from cloakwork.models.program.artefact import MAGIC

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model of the zoo ('cloakwork zoo' lists them) or a compiled file.")
]
ModelOption = Annotated[
    str,
    typer.Option(
        "--model", metavar="MODEL", help="Name a model of the zoo ('cloakwork zoo' lists them) or a compiled file."
    ),
]


def find_model(text: str) -> CompiledModel:
    """A wrong call when there is neither such a file nor such a model; an ONNX file is not compiled here."""
    path = Path(text)
    if path.is_file():
        with path.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise WrongCallError(
                    f"{text}: expected a compiled model, got another kind of file; make one with "
                    "'cloakwork compile MODEL.onnx --samples DATA.npy -o MODEL.clkm'"
                )
        with reading(path, "a compiled model"):
            return CompiledModel.load(path)
    if text in zoo.names():
        return zoo.load_model(text)
    if path.is_dir():
        raise WrongCallError(f"{text}: expected a compiled model, got a folder; name a file in it")
    raise WrongCallError(
        f"there is no file '{text}', nor a model of that name in the zoo, which has {', '.join(zoo.names())}"
    )
