"""The network that teaches those of CIFAR-10: at full resolution from the start, with ten times their look-ups, so it is never encrypted."""

from __future__ import annotations

from cloakwork.training.fit import Schedule
from cloakwork.training.pytorch import torch
from cloakwork.training.recipes.networks import Shape, Stage, network
from cloakwork.training.recipes.tuned import Teacher

_WIDTH = 64  # of the first of four stages


def build() -> torch.nn.Sequential:
    """Builds seven residual blocks on 32 x 32 to 4 x 4 positions."""
    stages = (Stage(_WIDTH, 1, 1), Stage(2 * _WIDTH, 2, 2), Stage(4 * _WIDTH, 2, 2), Stage(8 * _WIDTH, 2, 2))
    return network(Shape(_WIDTH, stages, residual=True), None)


TEACHER = Teacher(
    build,
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
