"""Puts a trained model of images into the zoo: compiled, the whole test set simulated, the figures on its card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cloakwork.models import zoo
from cloakwork.models.calibration import Calibration
from cloakwork.models.compiler import calibrate, compile_file
from cloakwork.models.options import Options
from cloakwork.training.image_data import calibration_images, load_images

CALIBRATION_IMAGES = 2000


def publish(
    name: str,
    path: Path,
    *,
    description: str,
    recipe: str,
    seed: int,
    data: str = "mnist",
    options: Mapping[str, Any],
    ranges: Calibration | None = None,
    keeps_program: bool = False,
    folder: Path = zoo.FOLDER,
) -> dict[str, Any]:
    """Returns what the card says of accuracy.

    Args:
        recipe: the command that trains it.
        data: "mnist" or "cifar10".
        options: fields of `cloakwork.Options`.
        ranges: learned ones; None: of 2,000 training images.
        keeps_program: the zoo gets the program, compiled on 2,000 training images, instead of the ONNX file and ranges.
    """
    samples: Any = calibration_images(data, CALIBRATION_IMAGES) if ranges is None else ranges
    if not (keeps_program or isinstance(samples, Calibration)):
        samples = calibrate(path, samples)  # as load_model has them, which has no images
    model = compile_file(path, samples, Options.of(None, options))
    images, labels = load_images(data, "test")
    clear = model.predict_float(images).argmax(axis=1)
    simulated = model.predict(images, how="simulate", seed=1).argmax(axis=1)
    facts = {
        "accuracy_clear": _share(clear == labels),
        "accuracy_simulated": _share(simulated == labels),
        "agreement": _share(simulated == clear),
        "simulated_seeds": 1,
        "bootstraps": model.program.bootstraps,
        "recipe": recipe,
        "seed": seed,
    }
    known: dict[str, Any] = {"description": description, "data": data, "folder": folder}
    if not keeps_program:
        zoo.add_model(name, path, samples=samples, options=options, facts=facts, **known)
        return facts
    facts["compiled_with"] = dict(options)
    with TemporaryDirectory() as scratch:
        program = Path(scratch) / f"{name}{zoo.PROGRAM}"
        model.save(program)
        zoo.add_model(name, program, facts=facts, **known)
    return facts


def _share(chosen: np.ndarray) -> float:
    return round(float(chosen.mean()), 4)
