"""Recipes by name: `train("mnist-mlp-1x30", path)` writes the ONNX file and, beside it, what the compiler needs to know."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cloakwork.training.fit import Progress
    from cloakwork.training.recipes.recipe import Trained

RECIPES: Final = {
    "mnist-mlp-1x30": "cloakwork.training.recipes.mnist_mlp_1x30",
    "mnist-mlp-3x1024": "cloakwork.training.recipes.mnist_mlp_3x1024",
    "mnist-cnn": "cloakwork.training.recipes.mnist_cnn",
    "mnist-strided": "cloakwork.training.recipes.mnist_strided",
    "cifar10-vgg": "cloakwork.training.recipes.cifar10_vgg",
    "cifar10-resnet": "cloakwork.training.recipes.cifar10_resnet",
}


def data_of(name: str) -> str:
    """Names the data that a recipe trains with: "mnist" or "cifar10"."""
    return "cifar10" if name.startswith("cifar10-") else "mnist"


def train(
    name: str, path: Path, *, device: str = "cpu", epochs: int | None = None, progress: Progress = None
) -> Trained:
    """Trains a model of the zoo anew.

    Args:
        path: of the ONNX file to write.
        device: as PyTorch calls it.
        epochs: None for the recipe's own.
        progress: called with the steps done, the steps in all and the loss.

    Raises:
        KeyError: no recipe has this name.
        ImportError: PyTorch is not installed.
        FileNotFoundError: the data is not there.
    """
    if name not in RECIPES:
        raise KeyError(f"train: expected one of {', '.join(RECIPES)}, got '{name}'")
    trained: Trained = importlib.import_module(RECIPES[name]).train(
        path, device=device, epochs=epochs, progress=progress
    )
    return trained
