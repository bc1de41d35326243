"""FHE-aware layers: integers of bounded norm, gradients through them, noise as the engine's model says, ranges that follow the data."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs PyTorch")

from cloakwork.models.approximate import quantise_weights, row_scales  # noqa: E402
from cloakwork.training import noise as training_noise  # noqa: E402
from cloakwork.training.layers import (  # noqa: E402
    NoisyMaxPool2d,
    NoisyReLU,
    QuantConv2d,
    QuantLinear,
    SeenByLookup,
    freeze,
    range_penalty,
    set_simulated,
)
from cloakwork.training.noise import LookupNoise  # noqa: E402

NOISE = LookupNoise.of("nn2")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(5)


def test_limits_are_the_compilers() -> None:
    assert training_noise.OUTPUT_LIMIT == row_scales.OUTPUT_LIMIT
    assert training_noise.LARGEST_WEIGHT == row_scales.LARGEST_WEIGHT
    for norm in (0.0, 4.0, 11.0):
        percent = 200 * NOISE.deviation(norm)
        assert NOISE.limit(norm) == pytest.approx(quantise_weights.lookup_limit(percent))


def test_noise_is_the_engines_model() -> None:
    # docs/reference/parameters.md: nn2 at norm 4 gives 1.96 % of the half torus.
    assert 200 * NOISE.deviation(4.0) == pytest.approx(1.96, abs=0.01)
    assert NOISE.deviation(4.0, is_output=True) == pytest.approx(4 * math.sqrt(NOISE.blind_rotation))


@pytest.mark.parametrize("bound", [2.0, 5.0, 12.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda bound: (QuantLinear(40, 16, NOISE, largest_norm=bound), torch.rand(64, 40)),
        lambda bound: (QuantConv2d(4, 8, 3, NOISE, largest_norm=bound), torch.rand(16, 4, 9, 9)),
    ],
)
def test_frozen_rows_are_integers_within_the_norm(make, bound: float) -> None:
    layer, x = make(bound)
    optimiser = torch.optim.Adam(layer.parameters(), 1e-2)
    for _ in range(20):
        optimiser.zero_grad()
        (layer(x) ** 2).mean().backward()
        optimiser.step()
    freeze(layer)
    integers = layer.integers()
    assert torch.equal(integers, integers.round())
    largest = float(layer.norms(integers).max())
    assert 0.6 * bound < largest <= bound


def test_a_layer_on_the_input_has_eight_bits() -> None:
    layer = QuantLinear(30, 10, NOISE)
    layer(torch.rand(50, 30))
    freeze(layer)
    assert int(layer.integers().abs().max()) == 127
    rounded = layer.integers() * layer.row_steps()[:, None]
    assert torch.all((rounded - layer.weight).abs() <= 0.5001 * layer.row_steps()[:, None])


def test_gradients_flow_through_rounding_noise_and_pooling() -> None:
    model = torch.nn.Sequential(
        QuantConv2d(1, 3, 3, before_pool=True),
        NoisyMaxPool2d(3, NOISE),
        NoisyReLU(3, NOISE),
        QuantConv2d(3, 4, 3, NOISE, largest_norm=6.0),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        QuantLinear(4 * 9, 5, NOISE, largest_norm=8.0, is_output=True),
    )
    x = torch.rand(8, 1, 12, 12, requires_grad=True)
    (model(x).square().mean() + 0.1 * range_penalty(model)).backward()
    assert x.grad is not None and x.grad.abs().sum() > 0
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_the_pool_takes_maxima() -> None:
    pool = NoisyMaxPool2d(3, NOISE).eval()
    x = torch.randn(4, 3, 7, 8)
    torch.testing.assert_close(pool(x), torch.nn.functional.max_pool2d(x, 2))


def test_noise_has_the_deviation_that_the_compiler_gives_it() -> None:
    seen = SeenByLookup(2, NOISE).train()
    x = torch.stack([torch.linspace(-1, 1, 4000), torch.linspace(0, 10, 4000)], dim=1)
    norms = torch.tensor([3.0, 6.0])
    added = np.concatenate([(seen(x, norms) - x).numpy() for _ in range(10)])
    for channel, half in enumerate((1.0, 5.0)):
        expected = half * NOISE.deviation(float(norms[channel])) / NOISE.limit(6.0)
        assert added[:, channel].std() == pytest.approx(expected, rel=0.03)
        assert abs(added[:, channel].mean()) < 4 * expected / math.sqrt(len(added))


def test_noise_in_evaluation_only_when_simulated() -> None:
    layer = QuantLinear(6, 4, NOISE)
    x = torch.rand(20, 6)
    layer(x)
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    set_simulated(layer, True)
    assert not torch.equal(layer(x), layer(x))


def test_ranges_grow_at_once_and_shrink_slowly() -> None:
    seen = SeenByLookup(1, None).train()
    seen(torch.tensor([[-1.0], [1.0]]))
    seen(torch.tensor([[-1.0], [3.0]]))
    assert 1.3 < float(seen.high) < 3
    before = float(seen.high)
    seen(torch.tensor([[-1.0], [0.0]]))
    assert 0.98 * before < float(seen.high) < before
    assert float(seen.low) == pytest.approx(-1)
