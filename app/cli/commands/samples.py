"""`cloakwork samples`: files to try the other commands with, of data that comes with the package."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from cloakwork.app.cli.shared.console import JsonOption, WrongCallError, write_json
from cloakwork.app.cli.shared.data_sets import DATA_SETS
from cloakwork.app.cli.shared.output_files import ForceOption, refuse_overwriting
from cloakwork.app.cli.shared.sample_digits import SIZE, STROKES, draw
from cloakwork.app.cli.shared.tables import Column, emit, folded, number, print_rows
from cloakwork.fhe_core.wire.files import atomic_writer
from cloakwork.models import zoo

DRAWN: Final = "drawn-digits"
NETWORK: Final = "mnist-mlp-1x30"  # reads the drawn digits
ONNX: Final = Path(__file__).parents[1] / "shared" / "digits.onnx"  # as its recipe writes it
_SLANTS, _WIDTHS = (-0.3, 0.3), (0.85, 1.2)  # of the hands that write what calibrates it
_CALIBRATION: Final = 200


@dataclass(frozen=True)
class _Set:
    """A data set of `DATA_SETS`; `names` are those of its columns."""

    what: str
    model: str
    names: tuple[str, ...]
    suffix: str


def _table(model: str, what: str, suffix: str = ".csv") -> _Set:
    return _Set(what, model, tuple(zoo.card(model).facts["feature_names"]), suffix)


def _sets() -> dict[str, _Set]:
    pixels = tuple(f"pixel {i}" for i in range(SIZE * SIZE))
    return {
        "iris": _table("iris-tree", "flowers: lengths and widths of sepals and petals, three species"),
        "breast-cancer": _table("breast-cancer-forest", "30 numbers of cells in a picture, malignant or benign"),
        "wine": _table("wine-boosting", "13 chemical measurements, three growers"),
        "digits": _table("digits-logistic", "handwritten digits of 8 x 8 pixels from 0 to 16", ".npy"),
        DRAWN: _Set("digits of 28 x 28 pixels drawn by this program, as MNIST has them", NETWORK, pixels, ".npy"),
    }


def samples(
    name: Annotated[str | None, typer.Argument(help="A data set, or 'onnx' (default: list them).")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Write to this .csv or .npy file; for 'onnx' to this folder (default: a file here with the name of the data set).",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--number", min=1, help="Write only the first N samples (default: all).")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", help="Write the class of each sample to this .npy file, for 'simulate --labels'."),
    ] = None,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Write samples to try the other commands with.

    No model was trained on them. 'onnx' writes three files to begin with: model.onnx (a network for digits), inputs.npy (to calibrate it) and
    x.npy (samples to encrypt).
    """
    if labels is not None and labels.suffix != ".npy":
        raise WrongCallError(f"--labels: expected a name that ends in .npy, got '{labels}'")
    sets = _sets()
    if name is None:
        _list(sets, json_path)
    elif name == "onnx":
        _write_onnx(Path() if out is None else out, count, labels, force, json_path)
    elif name in sets:
        _write_set(name, sets[name], out, count, labels, force, json_path)
    else:
        raise WrongCallError(f"there are samples of {', '.join(sets)} and onnx, not of '{name}'")


def _list(sets: dict[str, _Set], json_path: str | None) -> None:
    rows = []
    for name, each in sets.items():
        x, _ = DATA_SETS[name]()
        rows.append((name, len(x), x.shape[1], each.model, each.what))
    if json_path != "-":
        columns = (Column("name"), number("samples"), number("numbers"), Column("model"), folded("what they are"))
        print_rows(
            "Samples",
            columns,
            rows,
            ["'onnx' writes a network with inputs to calibrate it and samples, for 'cloakwork compile'."],
        )
    if json_path is not None:
        keys = ("name", "samples", "numbers", "model", "description")
        write_json({"samples": [dict(zip(keys, row, strict=True)) for row in rows]}, json_path)


def _write_set(
    name: str,
    data_set: _Set,
    out: Path | None,
    count: int | None,
    labels: Path | None,
    force: bool,
    json_path: str | None,
) -> None:
    path = Path(f"{name}{data_set.suffix}") if out is None else out
    if path.suffix not in (".csv", ".npy"):
        raise WrongCallError(f"--out: expected a name that ends in .csv or .npy, got '{path}'")
    refuse_overwriting(force, *(each for each in (path, labels) if each is not None))
    x, y = DATA_SETS[name]()
    if path.suffix == ".npy":
        _save(path, x[:count])
    else:
        _save_table(path, x[:count], data_set.names)
    if labels is not None:
        _save(labels, y[:count])
    written = {"file": str(path), "samples": len(x[:count]), "numbers": x.shape[1], "model": data_set.model}
    emit(written if labels is None else {**written, "labels": str(labels)}, json_path, f"Samples of {name}")


def _write_onnx(folder: Path, count: int | None, labels: Path | None, force: bool, json_path: str | None) -> None:
    names = ("model.onnx", "inputs.npy", "x.npy")
    model, inputs, x = (folder / each for each in names)
    refuse_overwriting(force, *(each for each in (model, inputs, x, labels) if each is not None), makes_folder=True)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_writer(model) as stream:
        stream.write(ONNX.read_bytes())
    _save(inputs, calibration_digits(_CALIBRATION))
    images, digits = DATA_SETS[DRAWN]()
    _save(x, images[:count])
    if labels is not None:
        _save(labels, digits[:count])
    record = {"model": str(model), "calibration": str(inputs), "file": str(x), "samples": len(images[:count])}
    emit(record if labels is None else {**record, "labels": str(labels)}, json_path, "A network with its samples")


def calibration_digits(count: int) -> NDArray[np.float64]:
    """Returns [count, 784]: digits by as many hands, always the same."""
    random = np.random.default_rng(0)
    hands = zip(random.uniform(*_SLANTS, count), random.uniform(*_WIDTHS, count), strict=True)
    return np.stack([draw(STROKES[i % 10], *hand) for i, hand in enumerate(hands)]).reshape(count, -1)


def _save(path: Path, array: NDArray[Any]) -> None:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    with atomic_writer(path) as file:
        file.write(stream.getvalue())


def _save_table(path: Path, x: NDArray[np.float64], names: tuple[str, ...]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([json.dumps(value) for value in row] for row in x.tolist())
    with atomic_writer(path) as stream:
        stream.write(text.getvalue().encode())
