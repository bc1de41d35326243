"""The architectures, as tutorials write them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import nn

Activation = Callable[[], nn.Module]


def mlp(
    sizes: Sequence[int], activation: Activation = nn.ReLU, *, norm: bool = False, first_norm: bool = False
) -> nn.Sequential:
    """Linear layers with an activation between. Args: norm: batch normalisation before each activation; first_norm: of the input."""
    layers: list[nn.Module] = [nn.Flatten()]
    if first_norm:
        layers.append(nn.BatchNorm1d(sizes[0]))
    for i, (width, rows) in enumerate(itertools.pairwise(sizes)):
        layers.append(nn.Linear(width, rows))
        if i < len(sizes) - 2:
            layers += [nn.BatchNorm1d(rows)] if norm else []
            layers.append(activation())
    return nn.Sequential(*layers)


def convolutions(*layers: nn.Module, head: Sequence[int]) -> nn.Sequential:
    return nn.Sequential(*layers, *mlp(head))


def tutorial_cnn() -> nn.Sequential:
    """The row of issue 11."""
    return convolutions(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        head=(32 * 7 * 7, 64, 10),
    )  # fmt: skip


def public_mnist_cnn() -> nn.Sequential:
    """The shape of the ONNX model zoo's MNIST network: pixels 0 .. 255, 5x5 convolutions with padding, max-pools of 2 and 3."""
    return convolutions(
        nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=3),
        head=(16 * 4 * 4, 10),
    )  # fmt: skip


def lenet() -> nn.Sequential:
    """Tanh and average pooling, as in the 1990s."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        *mlp((16 * 5 * 5, 60, 10), nn.Tanh),
    )  # fmt: skip


def separable(channels_in: int, channels: int, stride: int = 1, activation: Activation = nn.ReLU6) -> list[nn.Module]:
    """A depthwise and a pointwise convolution, each with batch normalisation."""
    return [
        nn.Conv2d(channels_in, channels_in, 3, stride=stride, padding=1, groups=channels_in, bias=False),
        nn.BatchNorm2d(channels_in), activation(),
        nn.Conv2d(channels_in, channels, 1, bias=False),
        nn.BatchNorm2d(channels), activation(),
    ]  # fmt: skip


class Residual(nn.Module):
    """relu(x + conv(relu(conv(x)))), with batch normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.second, self.second_norm = (
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(x + self.second_norm(self.second(y)))


class InnerResidual(nn.Module):
    """x + linear(gelu(linear(x)))."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x + self.inner(x)
        return y


class Rescaled(nn.Module):
    """A network trained on standardised targets that answers in the targets' own unit."""

    def __init__(self, inner: nn.Module, mean: torch.Tensor, deviation: torch.Tensor) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x) * self.deviation + self.mean
        return y
