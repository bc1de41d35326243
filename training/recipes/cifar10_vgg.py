"""A plain network for CIFAR-10 in the manner of VGG: 3x3 convolutions whose width doubles where positions are halved, and a strided one at first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cloakwork.training.fit import Progress, Schedule
from cloakwork.training.noise import LookupNoise
from cloakwork.training.pytorch import torch
from cloakwork.training.recipes.cifar10_teacher import TEACHER
from cloakwork.training.recipes.networks import Shape, Stage, network
from cloakwork.training.recipes.recipe import Trained
from cloakwork.training.recipes.tuned import TunedRecipe, train_tuned_recipe

WIDTH, GROWTH = 32, 4  # of the first two convolutions, and from one size to the next: all six have 8,192 activations
SCHEDULE = replace(TEACHER.schedule, epochs=120, label_smoothing=0.1)
TUNING = Schedule(10, batch=512, learning_rate=5e-4, label_smoothing=0.1, range_weight=0.003, shift=4, mirrored=True)
COMPILE = {"sets": ["nn05_block"], "structured": True}


def shape(width: int = WIDTH, growth: int = GROWTH) -> Shape:
    """Builds six convolutions: two on 16 x 16 positions, two on 8 x 8, two on 4 x 4. Args: growth: of the channels where positions are halved."""
    stages = (Stage(width, 1, 1), Stage(width * growth, 2, 2), Stage(width * growth**2, 2, 2))
    return Shape(width, stages, stem_kernel=4, stem_stride=2)


def build(noise: LookupNoise | None) -> torch.nn.Sequential:
    return network(shape(), noise)


RECIPE = TunedRecipe(
    "cifar10-vgg",
    "cifar10",
    "nn05",
    build,
    SCHEDULE,
    TUNING,
    description="convolutions of 32, 32, 128, 128, 512, 512 channels, ReLU, the first, third and fifth of stride 2; mean of positions; 10 outputs",
    noise_first=False,
    compile=COMPILE,
    teacher=TEACHER,
    keeps_program=True,
)


def train(path: Path, *, device: str = "cpu", epochs: int | None = None, progress: Progress = None) -> Trained:
    return train_tuned_recipe(RECIPE, path, device=device, epochs=epochs, progress=progress)
