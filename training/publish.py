"""Puts a trained model of images into the zoo: compiled, the whole test set simulated, the figures on its card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cloakwork.models import zoo
from cloakwork.models.calibration import Calibration
from cloakwork.models.compiler import calibrate, compile_onnx
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
    folder: Path = zoo.FOLDER,
) -> dict[str, Any]:
    """Returns what the card says of accuracy.

    Args:
        recipe: the command that trains it.
        data: "mnist" or "cifar10".
        options: of compile_onnx.
        ranges: learned ones; None: of 2,000 training images.
    """
    if ranges is None:
        ranges = calibrate(path, calibration_images(data, CALIBRATION_IMAGES))
    model = compile_onnx(path, ranges, **zoo.compile_options(options))  # as load_model does, which has no images
    images, labels = load_images(data, "test")
    clear = model.predict_float(images).argmax(axis=1)
    simulated = model.predict(images, fhe="simulate", seed=1).argmax(axis=1)
    facts = {
        "accuracy_clear": _share(clear == labels),
        "accuracy_simulated": _share(simulated == labels),
        "agreement": _share(simulated == clear),
        "simulated_seeds": 1,
        "bootstraps": model.program.bootstraps,
        "recipe": recipe,
        "seed": seed,
    }
    zoo.add_model(
        name, path, description=description, data=data, samples=ranges, options=options, facts=facts, folder=folder
    )
    return facts


def _share(chosen: np.ndarray) -> float:
    return round(float(chosen.mean()), 4)
