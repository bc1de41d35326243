"""Sets with raised bootstrap keys (`.._raised`): taken when named, then by cost; programs under them compute what the clear model does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_models
import pytest
from cases import in_tiers

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import ciphertext_bytes, offered_sets, parameter_set, parameter_sets
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.choose_set import bootstrap_cost
from cloakwork.models.forecast.measure import REPRESENTATIVES
from cloakwork.models.forecast.rates import SetRates, nearest_set
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble
from tests.models.trees.tree_models import random_tree

SAMPLES = np.random.default_rng(5).uniform(-1, 1, (400, 4))
NETWORK = onnx_models.mlp(np.random.default_rng(1), (4, 6, 3))
FOREST = TreeEnsemble((random_tree(np.random.default_rng(2), 3, 3, 1, 5, None, False),), 3, "sum", base=np.zeros(1))
LINEAR = LinearModel(coefficients=np.array([[1.0, -2.0, 0.5, 0.25]]), intercept=np.array([0.5]))
EXACT = {"input_bits": 3, "activation_bits": 2, "accumulator_bits": 3}
RAISED = [
    params for params in parameter_sets() if params.raised and not params.rounded_products and params.security_bits
]


def plain_of(name: str) -> str:
    return name.removesuffix("_raised")


def network(sets: list[str], **options: Any) -> CompiledModel:
    return cw.compile(NETWORK, SAMPLES, accuracy=0, sets=sets, **options)


KINDS: dict[str, Callable[[list[str]], CompiledModel]] = {
    "network": network,
    "exact network": lambda sets: network(sets, precision="exact", **EXACT),
    "forest": lambda sets: compile_ensemble(FOREST, samples=SAMPLES[:, :3], sets=sets, grid_bits=6, accuracy=0.8),
    "linear model": lambda sets: compile_linear(LINEAR, SAMPLES, sets=sets[-1]),
}


def test_they_are_not_offered_unless_named() -> None:
    assert not any(params.raised for params in offered_sets(True))
    assert not cw.compile(NETWORK, SAMPLES, precision="exact", accuracy=0, **EXACT).program.parameters.raised


@pytest.mark.parametrize("params", RAISED, ids=lambda params: params.name)
def test_they_cost_less_than_the_sets_of_two_limbs(params: Any) -> None:
    plain = parameter_set(plain_of(params.name))
    assert 0.8 < bootstrap_cost(params) / bootstrap_cost(plain) < 1
    assert ciphertext_bytes(params) < 0.6 * ciphertext_bytes(plain)


@pytest.mark.parametrize("kind", KINDS)
def test_among_named_sets_the_cheaper_one_is_taken(kind: str) -> None:
    for name in ("lut4", "lut5"):
        sets = [name, f"{name}_raised"]
        assert KINDS[kind](sets).program.parameters.name == sets[-1]


def test_a_forecast_scales_from_the_set_of_two_limbs() -> None:
    """Look-ups take about its time, ciphertexts half of it."""
    known = {name: parameter_set(name) for name in REPRESENTATIVES}
    assert {params.name: nearest_set(params, known) for params in RAISED if params.name.startswith("lut")} == {
        "lut3_raised": "lut3",
        "lut4_raised": "lut4",
        "lut5_raised": "lut5",
    }
    rates = SetRates("lut4", 1e-5, 7e-5, {"gathered": 4e-9, "products": 6e-6}, {1: 1e-2}, {1: 1e-4}, {1: 1e-5})
    scaled = rates.scaled(parameter_set("lut4"), parameter_set("lut4_raised"))
    assert scaled.lookups[1] == pytest.approx(1e-2, rel=0.05)
    assert scaled.seconds["gathered"] == pytest.approx(2e-9) and scaled.seconds["products"] == pytest.approx(3e-6)


@pytest.mark.parametrize("kind", in_tiers(KINDS, quick=("network",)))
def test_encrypted_programs(kind: str) -> None:
    """Under a secure set: scores are those of the clear program, or within its noise."""
    made = KINDS[kind](["nn05_raised" if kind == "network" else "lut4_raised"])
    key = ClientKey._from_entropy(made.program.parameters, bytes(range(32)))
    x = SAMPLES[:3, :3] if kind == "forest" else SAMPLES[:3]
    clear = made.predict(x, output="scores")
    encrypted = made.predict(x, output="scores", how="encrypted", key=key, session=Session(key.evaluation_keys()))
    if "network" in kind:  # of exact ones the outputs, which are not looked up
        assert np.abs(encrypted - clear).max() < 0.1 * np.ptp(made.predict(SAMPLES, output="scores"))
    else:
        np.testing.assert_array_equal(encrypted, clear)
