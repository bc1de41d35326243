"""What `prepare` refuses, and that it says what and why."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs PyTorch")

from torch import nn  # noqa: E402

from cloakwork.errors import UnsupportedModuleError  # noqa: E402
from cloakwork.fhe_core.errors import FheError, ParameterError  # noqa: E402
from cloakwork.training.preparation import prepare, trained_options  # noqa: E402


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.left(x) * torch.sigmoid(self.right(x))


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.same = nn.Linear(4, 4)

    def forward(self, x):
        return self.same(torch.relu(self.same(x)))


class Pair(nn.Module):
    def forward(self, x):
        return x, x + 1


class Softly(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1) + 1


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Gate(), r"mul.*different encrypted values"),
        (Branching(), r"Branching cannot be recorded"),
        (Twice(), r"same: layers that are called twice"),
        (Pair(), r"several outputs"),
        (Softly(), r"softmax.*only the last step"),
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)), r"'1' \(LayerNorm\).*BatchNorm"),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmin(dim=1), nn.Linear(4, 2)), r"'1' \(Softmin\) is neither linear nor"),
        (nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)), r"track them"),
        (nn.Sequential(nn.Linear(4, 4), nn.RNN(4, 3)), r"'1' \(RNN\).*one step"),
        (nn.Sequential(nn.LazyLinear(3)), r"lazy layers"),
    ],
)
def test_what_is_not_simulated_is_named(module: nn.Module, message: str) -> None:
    with pytest.raises(UnsupportedModuleError, match=message):
        prepare(module, torch.randn(8, 4))


def test_all_unsupported_steps_are_named_at_once() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.Softmin(dim=1), nn.Linear(4, 2))
    with pytest.raises(UnsupportedModuleError, match=r"'1'.*'3'"):
        prepare(module, torch.randn(8, 4))


@pytest.mark.parametrize(
    "example",
    [
        np.zeros(4),
        np.zeros((3, 4), dtype=np.str_),
        [[0.0, 1.0, 2.0, 3.0]],
        torch.zeros(4),
        torch.zeros(0, 4),
        torch.zeros(3, 4, dtype=torch.int64),
        torch.full((3, 4), math.nan),
    ],
)
def test_examples_that_are_none_are_refused(example) -> None:
    with pytest.raises(ValueError, match="example_input"):
        prepare(nn.Linear(4, 2), example)


def test_an_example_of_another_shape_is_named_with_the_layer() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 5\) at '0' \(Linear\)"):
        prepare(nn.Sequential(nn.Linear(4, 2)), torch.randn(3, 5))


def test_an_unknown_set_is_an_error() -> None:
    with pytest.raises(FheError, match="nn3"):
        prepare(nn.Linear(4, 2), torch.randn(8, 4), parameter_set="nn3")


def test_structured_secrets_are_simulated_when_asked_for() -> None:
    """And `trained_options` then asks the compiler for them."""
    module, example = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.rand(64, 4) - 0.5
    with pytest.raises(ParameterError, match="'nn2_block' has a structured secret.*structured=True"):
        prepare(module, example, parameter_set="nn2_block")
    asked = prepare(module, example, parameter_set="nn2_block", structured=True)
    assert trained_options(asked) == {"sets": ["nn2_block"], "structured": True}
    assert not prepare(module, example).parameter_set.endswith("_block")
    assert prepare(module, example, structured=True).parameter_set.endswith("_block"), "they cost less"
    assert "structured" not in trained_options(prepare(module, example))
