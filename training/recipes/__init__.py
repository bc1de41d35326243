"""The package's recipes by name: `train("mnist-mlp-1x30", path)` writes the ONNX file and returns what the compiler needs to know beside it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cloakwork.training.fit import Progress
    from cloakwork.training.recipes.recipe import Trained

RECIPES: Final = (
    "mnist-mlp-1x30",
    "mnist-mlp-3x1024",
    "mnist-cnn",
    "mnist-strided",
    "cifar10-vgg",
    "cifar10-resnet",
)


def data_of(name: str) -> str:
    """Names the data that a recipe trains with: "mnist" or "cifar10"."""
    return name.partition("-")[0]


def train(
    name: str, path: Path, *, device: str = "cpu", epochs: int | None = None, progress: Progress = None
) -> Trained:
    """Trains a model of the zoo anew.

    Args:
        path: of the ONNX file to write.
        device: as PyTorch calls it.
        epochs: None for the recipe's own. Those of tuning are a part of them, as they are in the recipe, and those of a teacher, which count for
            themselves, are as many as of the first part at most.
        progress: called with the steps done, the steps in all and the loss.

    Raises:
        KeyError: no recipe has this name.
        ImportError: PyTorch is not installed.
        FileNotFoundError: the data is not there.
    """
    if name not in RECIPES:
        raise KeyError(f"train: expected one of {', '.join(RECIPES)}, got '{name}'")
    recipes = importlib.import_module(f"cloakwork.training.recipes.{data_of(name)}").RECIPES
    trained: Trained = recipes[name].train(path, device, epochs, progress)
    return trained
