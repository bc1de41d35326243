"""Trained models that come with the package, by name. A model is a file and a card: NAME.onnx or NAME.clkm, compressed where it is large
(NAME.clkm.xz), and NAME.json.

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
from cloakwork.models.calibration import Calibration
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.compiler import calibrate, compile_file
from cloakwork.models.errors import CompileError
from cloakwork.models.options import Options
from cloakwork.models.program.answers import answer_bits, answer_bytes
from cloakwork.models.program.artefact import program_from_bytes

FOLDER: Final = Path(__file__).parent
ONNX, PROGRAM = ".onnx", ".clkm"
_COMPRESSED: Final = ".xz"
_COMPRESSED_FROM: Final = 1 << 20  # bytes of a program: weights that positions share repeat in it
_CALIBRATION: Final = "calibration.json"
_SAMPLES: Final = "samples.npz"


@dataclass(frozen=True)
class Card:
    """The card of a model; the fields of its JSON file, which may have more (`facts`)."""

    name: str
    file: str
    sha256: str
    description: str
    data: str  # data set that it was trained on, as `cloakwork simulate --data` calls it
    compile: Mapping[str, Any]  # options of `cloakwork.compile`; empty for a compiled program
    calibration: str | None  # file with the observed ranges
    facts: Mapping[str, Any]  # accuracy, recipe, seed ..: for people

    @property
    def path(self) -> Path:
        """Returns the path of the model's file, in the package."""
        return FOLDER / self.file

    @property
    def is_program(self) -> bool:
        """Compiled already; else ONNX."""
        return self.file.removesuffix(_COMPRESSED).endswith(PROGRAM)


def names() -> tuple[str, ...]:
    """Names all models, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json") if not path.name.endswith(_CALIBRATION)))


def card(name: str) -> Card:
    """Raises CompileError for a name that the zoo does not have."""
    if name not in names():
        raise CompileError(f"zoo: expected one of {', '.join(names())}, got '{name}'")
    fields = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    try:
        known = {key: fields.pop(key) for key in ("file", "sha256", "description", "data")}
        return Card(
            name, **known, compile=fields.pop("compile", {}), calibration=fields.pop("calibration", None), facts=fields
        )
    except KeyError as error:
        raise SerializationError(f"zoo: the card of '{name}' has no field {error}; install cloakwork again") from error


def zoo_model(name: str) -> Path:
    """Returns the file of a model, ONNX or a compiled program, after its digest was compared with the card's."""
    model_card = card(name)
    if hashlib.sha256(model_card.path.read_bytes()).hexdigest() != model_card.sha256:
        raise SerializationError(
            f"zoo: {model_card.file} is not the file that its card describes; install cloakwork again"
        )
    return model_card.path


def load_model(name: str, **options: Any) -> CompiledModel:
    """Load a compiled model; needs no data set.

    Args:
        options: fields of `cloakwork.Options`, instead of the card's; another precision chooses its own set.
    """
    model_card, path = card(name), zoo_model(name)
    if model_card.is_program:
        if options:
            raise CompileError(f"zoo: '{name}' is a compiled program; expected no options, got {', '.join(options)}")
        content = path.read_bytes()
        return CompiledModel(program_from_bytes(lzma.decompress(content) if path.suffix == _COMPRESSED else content))
    card_options = {
        key: value for key, value in model_card.compile.items() if not (key == "sets" and "precision" in options)
    }
    return compile_file(path, calibration_of(model_card), Options.of(None, {**card_options, **options}))


def calibration_of(model_card: Card) -> Calibration | None:
    """Returns the ranges that training data showed; None for a model whose quantisers say them."""
    return (
        None
        if model_card.calibration is None
        else Calibration.from_json((FOLDER / model_card.calibration).read_bytes())
    )


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
    samples: ArrayLike | Calibration | None = None,
    options: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    folder: Path = FOLDER,
) -> None:
    """Copies a model that compiles into the zoo and writes its card.

    Args:
        path: an ONNX file, or a compiled program (.clkm), which is kept compressed where it is large.
        data: the data set, as `cloakwork simulate --data` calls it.
        samples: of the training data [samples, ..], or ranges that were learned; only ranges are kept. None for a compiled program,
            and for a model whose quantisers say the ranges.
        options: fields of `cloakwork.Options`, parameter sets by their names.
        facts: what else the card says: accuracy, recipe, seed.
    """
    if path.suffix not in (ONNX, PROGRAM):
        raise CompileError(f"zoo: expected a file {ONNX} or {PROGRAM}, got {path.name}")
    content, file = path.read_bytes(), f"{name}{path.suffix}"
    if path.suffix == PROGRAM and len(content) >= _COMPRESSED_FROM:
        content, file = lzma.compress(content, preset=lzma.PRESET_EXTREME | 9), f"{file}{_COMPRESSED}"
    fields: dict[str, Any] = {
        "file": file,
        "sha256": hashlib.sha256(content).hexdigest(),
        "description": description,
        "data": data,
    }
    if path.suffix == ONNX:
        ranges = samples if isinstance(samples, Calibration) or samples is None else calibrate(path, samples)
        model = compile_file(path, ranges, Options.of(None, options or {}))
        fields["compile"] = dict(options or {})
        if ranges is not None:
            fields["calibration"] = f"{name}.{_CALIBRATION}"
            _write(folder / fields["calibration"], ranges.to_json().encode())
    else:
        model = CompiledModel.load(path)
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
