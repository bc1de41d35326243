"""A small convolutional network with a 2x2 max-pool before its first ReLU, which saves look-ups: the maximum of ReLUs is the ReLU of the maximum."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from cloakwork.training.fit import Progress, Schedule
from cloakwork.training.layers import NoisyMaxPool2d, NoisyReLU, QuantConv2d, QuantLinear
from cloakwork.training.noise import LookupNoise
from cloakwork.training.pytorch import torch
from cloakwork.training.recipes.recipe import Recipe, Trained, train_recipe

NORM = 100.0  # 8 bits: the wide sets hardly have noise that grows with the weights


def build(noise: LookupNoise, first: int = 24, second: int = 32, first_stride: int = 2) -> torch.nn.Sequential:
    """Builds the network. A 3x3 convolution is narrow enough that the compiler composes it with the maxima: three look-ups for a window, one for
    its ReLU."""
    side = ((28 - 3) // first_stride + 1) // 2
    second_stride = 3 - first_stride
    last = (side - 3) // second_stride + 1
    layers = {
        "pixels": torch.nn.Unflatten(1, (1, 28, 28)),
        "convolution1": QuantConv2d(1, first, 3, stride=first_stride, before_pool=True),
        "pool": NoisyMaxPool2d(first, noise),
        "relu1": NoisyReLU(first, noise),
        "convolution2": QuantConv2d(first, second, 3, noise, stride=second_stride, largest_norm=NORM),
        "relu2": torch.nn.ReLU(),
        "flat": torch.nn.Flatten(),
        "output": QuantLinear(second * last * last, 10, noise, largest_norm=NORM, is_output=True),
    }
    return torch.nn.Sequential(OrderedDict(layers))


RECIPE = Recipe(
    "mnist-cnn",
    "nn1_wide",
    build,
    Schedule(40, batch=256, learning_rate=4e-3, range_weight=0.003, shift=1),
    description="3x3 convolution of stride 2 with 24 channels, 2x2 max-pool, ReLU, 3x3 convolution with 32 channels, ReLU, 10 outputs",
    compile={"precision": "balanced"},
)


def train(path: Path, *, device: str = "cpu", epochs: int | None = None, progress: Progress = None) -> Trained:
    return train_recipe(RECIPE, path, device=device, epochs=epochs, progress=progress)
