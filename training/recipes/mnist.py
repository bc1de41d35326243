"""Networks for MNIST: two of linear layers, and two of convolutions with few positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloakwork.training.fit import Schedule
from cloakwork.training.pytorch import torch
from cloakwork.training.recipes.networks import CLASSES, PlainBlock
from cloakwork.training.recipes.recipe import Recipe, Teacher

nn = torch.nn

_SIDE: Final = 28


def mlp(*widths: int) -> nn.Sequential:
    """Builds linear layers of these widths with ReLU between them."""
    layers: list[nn.Module] = [nn.Linear(_SIDE**2, widths[0])]
    for before, width in zip(widths, (*widths[1:], CLASSES), strict=True):
        layers += [nn.ReLU(), nn.Linear(before, width)]
    return nn.Sequential(*layers)


def pooled(first: int = 24, second: int = 32) -> nn.Sequential:
    """Builds a network with a 2x2 max-pool before its first ReLU: the maximum of ReLUs is the ReLU of the maximum. The compiler composes the
    convolution with the maxima: three look-ups for a window, one for its ReLU."""
    return nn.Sequential(
        nn.Unflatten(1, (1, _SIDE, _SIDE)),
        nn.Conv2d(1, first, 3, stride=2, bias=False),
        nn.BatchNorm2d(first),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(first, second, 3, bias=False),
        nn.BatchNorm2d(second),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * 16, CLASSES),
    )


def strided(widths: Sequence[int] = (6, 16), kernel: int = 5) -> nn.Sequential:
    """Builds two convolutions of stride 2, each of which leaves half of the positions either way: half of the look-ups of the network that pools."""
    first, second = widths
    return nn.Sequential(
        nn.Unflatten(1, (1, _SIDE, _SIDE)),
        PlainBlock(1, first, 2, kernel),
        PlainBlock(first, second, 2),
        nn.Flatten(),
        nn.Linear(second * (_SIDE // 4) ** 2, CLASSES),
    )


def _teacher() -> nn.Sequential:
    """Builds a network of three convolutions."""
    return nn.Sequential(
        nn.Unflatten(1, (1, _SIDE, _SIDE)),
        PlainBlock(1, 8, 2, 5),
        PlainBlock(8, 32, 1),
        PlainBlock(32, 64, 2),
        nn.Flatten(),
        nn.Linear(64 * (_SIDE // 4) ** 2, CLASSES),
    )


_CONVOLUTIONS: Final = Schedule(15, batch=256, learning_rate=6e-3, weight_decay=0.01, shift=1)

# A margin of 0: no room for outputs beyond those of training images, which would be noise for all of them.
RECIPES: Final = {
    # Thirty neurons average little noise out, so it takes a set for exact look-ups that is cheaper than nn1.
    "mnist-mlp-1x30": Recipe(
        "mnist",
        "lut2",
        lambda: mlp(30),
        Schedule(5, batch=256, learning_rate=8e-3, weight_decay=0.3),
        Schedule(80, batch=256, learning_rate=8e-3, weight_decay=0.3),
        "784-30-10 with ReLU",
        compile={"sets": ["lut2"], "margin": 0.0},
    ),
    "mnist-mlp-3x1024": Recipe(
        "mnist",
        "nn1",
        lambda: mlp(1024, 1024, 1024),
        Schedule(12, batch=256, learning_rate=1e-3, shift=1),
        Schedule(16, batch=256, learning_rate=1e-3, range_weight=0.01, shift=1),
        "784-1024-1024-1024-10 with ReLU",
        compile={"sets": ["nn1"], "margin": 0.0},
        teacher=Teacher(_teacher, Schedule(8, batch=512, learning_rate=1e-2, weight_decay=0.01, shift=2)),
    ),
    "mnist-cnn": Recipe(
        "mnist",
        "nn1_wide",
        pooled,
        _CONVOLUTIONS,
        Schedule(5, batch=256, learning_rate=2e-3, range_weight=0.003, shift=1),
        "3x3 convolution of stride 2 with 24 channels, 2x2 max-pool, ReLU, 3x3 convolution with 32 channels, ReLU, 10 outputs",
    ),
    "mnist-strided": Recipe(
        "mnist",
        "nn1_wide",
        strided,
        _CONVOLUTIONS,
        Schedule(5, batch=256, learning_rate=2e-3, range_weight=0.003, shift=1),
        "5x5 convolution of stride 2 with 6 channels, ReLU, 3x3 convolution of stride 2 with 16 channels, ReLU, 10 outputs",
    ),
}
