"""`cloakwork train`: a model of the zoo, trained anew by its recipe."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloakwork.app.cli.shared.console import FailureError, JsonOption, ProgressCallback, WrongCallError, progress
from cloakwork.app.cli.shared.output_files import ForceOption, refuse_overwriting
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core.wire.files import atomic_writer
from cloakwork.models.compiler import calibrate, compile_file
from cloakwork.models.options import Options
from cloakwork.training.image_data import calibration_images
from cloakwork.training.mnist_data import Split, download_mnist, has_mnist
from cloakwork.training.publish import CALIBRATION_IMAGES
from cloakwork.training.recipes import RECIPES, data_of
from cloakwork.training.recipes import train as train_by_name

if TYPE_CHECKING:
    from cloakwork.training.recipes.recipe import Trained


def train(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"Follow this recipe: {', '.join(RECIPES)}.")],
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the network to this ONNX file (default: NAME.onnx).")
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="Train on this device of PyTorch: cpu, cuda, cuda:1.")
    ] = "cpu",
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="Train for N epochs (default: as the recipe says).")
    ] = None,
    compiled: Annotated[
        Path | None, typer.Option("--compiled", help="Write the compiled model to this file too.")
    ] = None,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Train a model of the zoo with PyTorch.

    It follows the recipe of that name, and writes the network as ONNX.
    """
    if name not in RECIPES:
        raise WrongCallError(f"expected one of {', '.join(RECIPES)}, got '{name}'")
    path = output or Path(f"{name}.onnx")
    ranges = path.with_suffix(".calibration.json")
    refuse_overwriting(force, path, ranges, *([] if compiled is None else [compiled]))
    start = time.perf_counter()
    with progress(f"training {name}") as update:
        trained = _trained(name, path, device, epochs, update)
    samples = calibration_images(trained.data, CALIBRATION_IMAGES)
    with atomic_writer(ranges) as stream:
        stream.write(calibrate(path, samples).to_json().encode())
    record: dict[str, Any] = {
        "model": name,
        "onnx": str(path),
        "calibration": str(ranges),
        "accuracy_clear": trained.accuracy_clear,
        "accuracy_noisy": trained.accuracy_noisy,
        "epochs": trained.epochs,
        "seed": trained.seed,
        "seconds": time.perf_counter() - start,
        "compile": dict(trained.compile),
    }
    if compiled is not None:
        model = compile_file(path, samples, Options.of(None, trained.compile))
        model.save(compiled)
        record |= {"compiled": str(compiled), "parameter_set": model.program.parameters.name}
    emit(record, json_path, f"Training of {name}")


def _trained(name: str, path: Path, device: str, epochs: int | None, update: ProgressCallback) -> Trained:
    def report(done: int, total: int, _loss: float) -> None:
        update(done, total)

    parts: tuple[Split, ...] = ("train", "test") if data_of(name) == "mnist" else ()
    for part in parts:
        if not has_mnist(part):
            download_mnist(part)
    try:
        return train_by_name(name, path, device=device, epochs=epochs, progress=report)
    except ImportError as error:
        raise FailureError(str(error)) from error
