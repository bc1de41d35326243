"""784-30-10 with ReLU. Thirty neurons average little noise out, so it takes `lut2`, a set for exact look-ups that is cheaper than `nn1`."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from cloakwork.training.fit import Progress, Schedule
from cloakwork.training.layers import QuantLinear
from cloakwork.training.noise import LookupNoise
from cloakwork.training.pytorch import torch
from cloakwork.training.recipes.recipe import Recipe, Trained, train_recipe

HIDDEN = 30


def build(noise: LookupNoise, largest_norm: float = 8.0) -> torch.nn.Sequential:
    layers = {
        "hidden": QuantLinear(784, HIDDEN, noise),
        "relu": torch.nn.ReLU(),
        "output": QuantLinear(HIDDEN, 10, noise, largest_norm=largest_norm, is_output=True),
    }
    return torch.nn.Sequential(OrderedDict(layers))


RECIPE = Recipe(
    "mnist-mlp-1x30",
    "lut2",
    build,
    Schedule(50, batch=256, learning_rate=8e-3, weight_decay=0.3),
    description="784-30-10 with ReLU",
)


def train(path: Path, *, device: str = "cpu", epochs: int | None = None, progress: Progress = None) -> Trained:
    return train_recipe(RECIPE, path, device=device, epochs=epochs, progress=progress)
