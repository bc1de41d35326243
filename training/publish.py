"""Puts a trained model of images into the zoo: compiled, the whole test set simulated, the figures on its card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.models import zoo
from cloakwork.models.compiler import compile_file
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
    data: str,
    options: Mapping[str, Any],
    seeds: int = 1,
    folder: Path = zoo.FOLDER,
) -> dict[str, Any]:
    """Returns what the card says of accuracy.

    Args:
        path: the ONNX file, which is compiled with 2,000 training images.
        recipe: the command that trains it.
        data: "mnist" or "cifar10".
        options: fields of `cloakwork.Options`.
        seeds: of the noise, 1, 2, ..; the card has the means.
    """
    model = compile_file(path, calibration_images(data, CALIBRATION_IMAGES), Options.of(None, options))
    images, labels = load_images(data, "test")
    clear = model.predict_float(images).argmax(axis=1)
    drawn = [model.predict(images, how="simulate", seed=seed).argmax(axis=1) for seed in range(1, seeds + 1)]
    facts = {
        "accuracy_clear": _share(clear == labels),
        "accuracy_simulated": _share(*(simulated == labels for simulated in drawn)),
        "agreement": _share(*(simulated == clear for simulated in drawn)),
        "simulated_seeds": seeds,
        "bootstraps": model.program.bootstraps,
        "recipe": recipe,
        "seed": seed,
        "compiled_with": dict(options),
    }
    with TemporaryDirectory() as scratch:
        program = Path(scratch) / f"{name}{zoo.PROGRAM}"
        model.save(program)
        zoo.add_model(name, program, description=description, data=data, facts=facts, folder=folder)
    return facts


def _share(*chosen: NDArray[np.bool_]) -> float:
    return round(float(np.mean(chosen)), 4)
