"""784-30-10 with ReLU for the cheapest parameter set."""

from __future__ import annotations

from pathlib import Path

from cloakwork.training.fit import Progress, Schedule
from cloakwork.training.layers import QuantLinear
from cloakwork.training.noise import LookupNoise
from cloakwork.training.pytorch import torch
from cloakwork.training.recipes.recipe import Recipe, Trained, train_recipe

HIDDEN = 30


def build(noise: LookupNoise, largest_norm: float = 14.0) -> torch.nn.Sequential:
    return torch.nn.Sequential(
        QuantLinear(784, HIDDEN, noise),
        torch.nn.ReLU(),
        QuantLinear(HIDDEN, 10, noise, largest_norm=largest_norm, is_output=True),
    )


RECIPE = Recipe(
    "mnist-mlp-1x30", "nn2", build, Schedule(40, learning_rate=3e-3, label_smoothing=0.02, range_weight=0.01)
)


def train(path: Path, *, device: str = "cpu", epochs: int | None = None, progress: Progress = None) -> Trained:
    return train_recipe(RECIPE, path, device=device, epochs=epochs, progress=progress)
