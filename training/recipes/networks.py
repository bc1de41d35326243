"""Convolutional networks for images with few look-ups: positions are given up early and channels are many, since only outputs of activations cost.

Sums, strides, average pools and shortcuts take no look-up. Widths make up for positions, and many channels average the noise of each other out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from cloakwork.training.pytorch import Tensor, torch

nn = torch.nn

CLASSES = 10


@dataclass(frozen=True)
class Stage:
    """Blocks of one width; the first one has the stride."""

    width: int
    blocks: int
    stride: int


@dataclass(frozen=True)
class Shape:
    """The shape of a network: a convolution, then stages, the mean of all positions and a linear layer.

    Args:
        residual: blocks are relu(x + convolution(relu(convolution(x)))), else one convolution each.
    """

    stem: int  # channels
    stages: Sequence[Stage]
    residual: bool = False
    stem_kernel: int = 3
    stem_stride: int = 1


def convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    """Builds a convolution with batch normalisation, padded so that a stride of 1 keeps the positions."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=(kernel - 1) // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class PlainBlock(nn.Sequential):
    """relu(convolution(x))"""

    def __init__(self, inputs: int, outputs: int, stride: int, kernel: int = 3) -> None:
        super().__init__(convolution(inputs, outputs, kernel, stride), nn.ReLU())


class ResidualBlock(nn.Module):
    """relu(shortcut(x) + convolution(relu(convolution(x)))), the shortcut a convolution of 1x1 where shapes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = convolution(inputs, outputs, 3, stride), convolution(outputs, outputs, 3, 1)
        self.first_activation, self.activation = nn.ReLU(), nn.ReLU()
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first_activation(self.first(x)))
        return cast(Tensor, self.activation(self.shortcut(x) + y))


def network(shape: Shape) -> nn.Sequential:
    """Builds a network of images [batch, 3, height, width]; scores of the classes."""
    blocks: list[nn.Module] = [PlainBlock(3, shape.stem, shape.stem_stride, shape.stem_kernel)]
    width = shape.stem
    block = ResidualBlock if shape.residual else PlainBlock
    for stage in shape.stages:
        for number in range(stage.blocks):
            blocks.append(block(width, stage.width, stage.stride if number == 0 else 1))
            width = stage.width
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def lookups(model: nn.Module, image: Sequence[int]) -> int:
    """Counts look-ups of one image [*image]: outputs of activations."""
    counted = 0

    def count(_module: nn.Module, _inputs: object, y: Tensor) -> None:
        nonlocal counted
        counted += y.numel()

    hooks = [part.register_forward_hook(count) for part in model.modules() if isinstance(part, nn.ReLU)]
    device = next(model.parameters()).device
    with torch.no_grad():
        model.eval()(torch.zeros(1, *image, device=device))
    for hook in hooks:
        hook.remove()
    return counted
