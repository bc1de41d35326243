"""784-1024-1024-1024-10 with ReLU: rows of about a hundred weights that are -1 or 1, so that a set without room for large weights is enough."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from cloakwork.training.fit import Progress, Schedule
from cloakwork.training.layers import QuantLinear
from cloakwork.training.noise import LookupNoise
from cloakwork.training.pytorch import torch
from cloakwork.training.recipes.recipe import Recipe, Trained, train_recipe

WIDTH = 1024


def build(noise: LookupNoise, largest_norm: float = 12.0, output_norm: float = 20.0) -> torch.nn.Sequential:
    layers = {
        "hidden1": QuantLinear(784, WIDTH, noise),
        "relu1": torch.nn.ReLU(),
        "hidden2": QuantLinear(WIDTH, WIDTH, noise, largest_norm=largest_norm),
        "relu2": torch.nn.ReLU(),
        "hidden3": QuantLinear(WIDTH, WIDTH, noise, largest_norm=largest_norm),
        "relu3": torch.nn.ReLU(),
        "output": QuantLinear(WIDTH, 10, noise, largest_norm=output_norm, is_output=True),
    }
    return torch.nn.Sequential(OrderedDict(layers))


RECIPE = Recipe(
    "mnist-mlp-3x1024",
    "nn1",
    build,
    Schedule(40, batch=256, learning_rate=1e-3, range_weight=0.01, shift=1),
    description="784-1024-1024-1024-10 with ReLU, weights of -1, 0 and 1 behind the first layer",
)


def train(path: Path, *, device: str = "cpu", epochs: int | None = None, progress: Progress = None) -> Trained:
    return train_recipe(RECIPE, path, device=device, epochs=epochs, progress=progress)
