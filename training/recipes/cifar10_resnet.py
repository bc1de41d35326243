"""Residual networks for CIFAR-10: ResNet-20 as it was published, and wider and shallower ones behind a strided convolution, which cost less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cloakwork.training.fit import Progress
from cloakwork.training.noise import LookupNoise
from cloakwork.training.pytorch import torch
from cloakwork.training.recipes.cifar10_teacher import TEACHER
from cloakwork.training.recipes.cifar10_vgg import COMPILE, SCHEDULE, TUNING
from cloakwork.training.recipes.networks import Shape, Stage, network
from cloakwork.training.recipes.recipe import Trained
from cloakwork.training.recipes.tuned import TunedRecipe, train_tuned_recipe


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


def build(noise: LookupNoise | None) -> torch.nn.Sequential:
    return network(strided(), noise)


RECIPE = TunedRecipe(
    "cifar10-resnet",
    "cifar10",
    "nn05",
    build,
    replace(SCHEDULE, epochs=100),
    TUNING,
    description="4x4 convolution of stride 2, stages of one, two and two residual blocks with 32, 128, 512 channels, mean of positions, 10 outputs",
    noise_first=False,
    compile=COMPILE,
    teacher=TEACHER,
    keeps_program=True,
)


def train(path: Path, *, device: str = "cpu", epochs: int | None = None, progress: Progress = None) -> Trained:
    return train_tuned_recipe(RECIPE, path, device=device, epochs=epochs, progress=progress)
