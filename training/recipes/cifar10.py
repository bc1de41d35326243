"""Networks for CIFAR-10: one in the manner of VGG, whose width grows where positions are halved, and residual ones behind a strided convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from cloakwork.training.fit import Schedule
from cloakwork.training.recipes.networks import Shape, Stage, network
from cloakwork.training.recipes.recipe import Recipe, Teacher

_TUNING: Final = Schedule(
    10, batch=512, learning_rate=5e-4, label_smoothing=0.1, range_weight=0.003, shift=4, mirrored=True
)


def teacher() -> Shape:
    """Builds seven residual blocks on 32 x 32 to 4 x 4 positions: ten times the look-ups of what they teach, so it is never encrypted."""
    return Shape(64, (Stage(64, 1, 1), Stage(128, 2, 2), Stage(256, 2, 2), Stage(512, 2, 2)), residual=True)


def vgg(width: int = 32, growth: int = 4) -> Shape:
    """Builds six convolutions: two on 16 x 16 positions, two on 8 x 8, two on 4 x 4; with growth 4 all have 8,192 activations.

    Args:
        growth: of the channels where positions are halved.
    """
    stages = (Stage(width, 1, 1), Stage(width * growth, 2, 2), Stage(width * growth**2, 2, 2))
    return Shape(width, stages, stem_kernel=4, stem_stride=2)


def resnet20() -> Shape:
    """Source: [HZRS16] section 4.2, n = 3; ours has shortcuts by convolution where shapes differ."""
    return Shape(16, (Stage(16, 3, 1), Stage(32, 3, 2), Stage(64, 3, 2)), residual=True)


def strided(width: int = 32, blocks: Sequence[int] = (1, 2, 2), growth: int = 4) -> Shape:
    """Builds three stages of residual blocks on 16 x 16, 8 x 8 and 4 x 4 positions.

    Args:
        growth: of the channels from stage to stage; with 4 all layers have as many activations.
    """
    stages = tuple(Stage(width * growth**i, blocks[i], 1 if i == 0 else 2) for i in range(3))
    return Shape(width, stages, residual=True, stem_kernel=4, stem_stride=2)


TEACHER: Final = Teacher(
    lambda: network(teacher()),
    Schedule(
        60,
        batch=512,
        learning_rate=0.4,
        momentum=0.9,
        weight_decay=5e-4,
        shift=4,
        mirrored=True,
        erased=8,
        bfloat16=True,
    ),
)


def _recipe(shape: Shape, epochs: int, description: str) -> Recipe:
    return Recipe(
        "cifar10",
        "nn05",
        partial(network, shape),
        replace(TEACHER.schedule, epochs=epochs, label_smoothing=0.1),
        _TUNING,
        description,
        compile={"sets": ["nn05_block"], "structured": True},
        teacher=TEACHER,
    )


RECIPES: Final = {
    "cifar10-vgg": _recipe(
        vgg(),
        120,
        "convolutions of 32, 32, 128, 128, 512, 512 channels, ReLU, the first, third and fifth of stride 2; mean of positions; 10 outputs",
    ),
    "cifar10-resnet": _recipe(
        strided(),
        100,
        "4x4 convolution of stride 2, stages of one, two and two residual blocks with 32, 128, 512 channels, mean of positions, 10 outputs",
    ),
}
