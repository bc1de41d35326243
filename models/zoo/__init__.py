"""Trained models that come with the package, by name. A model is a program and a card: NAME.clkm, compressed where it is large (NAME.clkm.xz), and
NAME.json.

`add_model` writes both; nothing here names a model.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.wire.files import atomic_writer
from cloakwork.models.arrays import Indices
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError
from cloakwork.models.program.answers import answer_bits, answer_bytes
from cloakwork.models.program.artefact import program_from_bytes

FOLDER: Final = Path(__file__).parent
PROGRAM: Final = ".clkm"
_COMPRESSED: Final = ".xz"
_COMPRESSED_FROM: Final = 1 << 20  # bytes of a program: weights that positions share repeat in it
_SAMPLES: Final = "samples.npz"


@dataclass(frozen=True)
class Card:
    """The card of a model; the fields of its JSON file, which may have more (`facts`)."""

    name: str
    file: str
    sha256: str
    description: str
    data: str  # data set that it was trained on, as `cloakwork simulate --data` calls it
    facts: Mapping[str, Any]  # accuracy, recipe, seed ..: for people

    @property
    def path(self) -> Path:
        """Returns the path of the model's file, in the package."""
        return FOLDER / self.file


def names() -> tuple[str, ...]:
    """Names all models, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def card(name: str) -> Card:
    """Raises CompileError for a name that the zoo does not have."""
    if name not in names():
        raise CompileError(f"zoo: expected one of {', '.join(names())}, got '{name}'")
    fields = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    try:
        known = {key: fields.pop(key) for key in ("file", "sha256", "description", "data")}
        return Card(name, **known, facts=fields)
    except KeyError as error:
        raise SerializationError(f"zoo: the card of '{name}' has no field {error}; install cloakwork again") from error


def load_model(name: str) -> CompiledModel:
    """Load a model; SerializationError for a file of another digest than the card's."""
    return CompiledModel(program_from_bytes(program_bytes(name)))


def program_bytes(name: str) -> bytes:
    """Returns the file of a model's program, as `model.save` wrote it; errors as `load_model`."""
    model_card = card(name)
    content = model_card.path.read_bytes()
    if hashlib.sha256(content).hexdigest() != model_card.sha256:
        raise SerializationError(
            f"zoo: {model_card.file} is not the file that its card describes; install cloakwork again"
        )
    return lzma.decompress(content) if model_card.path.suffix == _COMPRESSED else content


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Samples that the model was not trained on, with which a demonstration needs no data set."""

    x: NDArray[np.float64]  # [samples, features]
    y: NDArray[Any]  # classes, as the model names them
    clear: NDArray[Any]  # what the model said before it was compiled


def held_out(name: str) -> HeldOut:
    """Returns the samples that were stored with a model of tables; CompileError when it has none."""
    path, digest = FOLDER / f"{name}.{_SAMPLES}", card(name).facts.get("samples_sha256")
    if digest is None:
        raise CompileError(f"zoo: '{name}' has no samples of its own; expected a model of a small table")
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise SerializationError(f"zoo: {path.name} is not the file that the card describes; install cloakwork again")
    with np.load(path, allow_pickle=False) as arrays:
        labels = labels_of(card(name).facts["classes"])
        return HeldOut(arrays["x"].astype(np.float64), labels[arrays["y"]], labels[arrays["clear"]])


def labels_of(classes: Sequence[str]) -> NDArray[Any]:
    """Returns what a model of these classes answers: their names, or numbers where they are called so."""
    numbers = np.arange(len(classes))
    return numbers if [str(number) for number in numbers] == list(classes) else np.array(classes)


def write_held_out(name: str, x: ArrayLike, y: Indices, clear: Indices, folder: Path = FOLDER) -> dict[str, Any]:
    """Stores samples beside a model, y and clear as the numbers of classes; returns what its card has to say."""
    path = folder / f"{name}.{_SAMPLES}"
    with atomic_writer(path) as stream:
        np.savez_compressed(stream, x=np.asarray(x), y=y.astype(np.uint8), clear=clear.astype(np.uint8))
    return {"samples": len(y), "samples_sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def add_model(
    name: str,
    path: Path,
    *,
    description: str,
    data: str,
    facts: Mapping[str, Any] | None = None,
    folder: Path = FOLDER,
) -> None:
    """Copies a program into the zoo, compressed where it is large, and writes its card.

    Args:
        path: a file that `model.save` wrote.
        data: the data set, as `cloakwork simulate --data` calls it.
        facts: what else the card says: accuracy, recipe, seed.
    """
    model, content, file = CompiledModel.load(path), path.read_bytes(), f"{name}{PROGRAM}"
    if len(content) >= _COMPRESSED_FROM:
        content, file = lzma.compress(content, preset=lzma.PRESET_EXTREME | 9), f"{file}{_COMPRESSED}"
    fields: dict[str, Any] = {
        "file": file,
        "sha256": hashlib.sha256(content).hexdigest(),
        "description": description,
        "data": data,
    }
    _write(folder / file, content)
    fields |= program_facts(model)
    _write(folder / f"{name}.json", (json.dumps({**fields, **(facts or {})}, indent=2) + "\n").encode())


def program_facts(model: CompiledModel) -> dict[str, Any]:
    """Returns what a card says of the program: parameter set, and an answer's bits of a word (0: full words) and bytes of a sample."""
    return {
        "parameter_set": model.program.parameters.name,
        "answer_word_bits": answer_bits(model.program) or 0,
        "answer_bytes": answer_bytes(model.program),
    }


def _write(path: Path, content: bytes) -> None:
    with atomic_writer(path) as stream:
        stream.write(content)
