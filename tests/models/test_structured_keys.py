"""Sets with structured secrets (`.._block`) are taken when asked for, raised ones when named, and never otherwise."""

from __future__ import annotations

import numpy as np
import onnx_models
import pytest

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.parameters import has_fine_outputs, offered_sets, parameter_set, parameter_sets
from cloakwork.fhe_core.server import Session
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble
from tests.models.trees.tree_models import random_tree

RNG = np.random.default_rng(5)
SAMPLES = RNG.uniform(-1, 1, (400, 4))
NETWORK = onnx_models.mlp(np.random.default_rng(1), (4, 6, 3))
FOREST = TreeEnsemble((random_tree(np.random.default_rng(2), 3, 3, 1, 5, None, False),), 3, "sum", base=np.zeros(1))
LINEAR = LinearModel(coefficients=np.array([[1.0, -2.0, 0.5, 0.25]]), intercept=np.array([0.5]))


def test_what_is_offered() -> None:
    shipped = {params.name for params in parameter_sets() if not params.name.startswith("toy")}
    named = {
        name
        for name in shipped
        if parameter_set(name).raised
        or parameter_set(name).digit_bits
        or has_fine_outputs(parameter_set(name))
        or parameter_set(name).lane_count > 1
        or parameter_set(name).accumulator == "ntru"
        or parameter_set(name).party_count > 1
    }  # taken by name alone
    every = shipped - named
    assert every < shipped
    assert {params.name for params in offered_sets(True)} == every
    plain = offered_sets()
    assert not any(params.structured_secret for params in plain)
    assert every - {params.name for params in plain} == {name for name in every if name.endswith("_block")} != set()


@pytest.mark.parametrize("profile", ["auto", "fast", "balanced", "exact"])
def test_networks(profile: str) -> None:
    exact = {"input_bits": 3, "activation_bits": 2, "accumulator_bits": 4} if profile == "exact" else {}
    options = {"precision": profile, "accuracy": 0, **exact}
    plain = cw.compile(NETWORK, SAMPLES, **options).program
    asked = cw.compile(NETWORK, SAMPLES, structured=True, **options).program
    assert not plain.parameters.structured_secret
    assert asked.parameters.structured_secret, "they cost less"
    with pytest.raises(ParameterError, match="'nn2_block' has a structured secret.*structured=True"):
        cw.compile(NETWORK, SAMPLES, sets=["nn2_block", "lut4"], **options)


def test_reports_say_so() -> None:
    for structured in (False, True):
        model = cw.compile(NETWORK, SAMPLES, precision="fast", accuracy=0.9, structured=structured)
        assert model.report()["structured_secret"] is structured
        assert ("structured secret: the small key is block-binary" in model.details) is structured


def test_trees() -> None:
    plain = compile_ensemble(FOREST, thresholds="client").program.parameters.name
    assert plain in ("lut3", "lut4", "lut5")
    assert compile_ensemble(FOREST, structured=True, thresholds="client").program.parameters.name == f"{plain}_block"
    with pytest.raises(ParameterError, match="structured=True"):
        compile_ensemble(FOREST, sets=["lut3_block"], thresholds="client")
    assert (
        compile_ensemble(FOREST, sets=["lut4"], structured=True, thresholds="client").program.parameters.name == "lut4"
    )


@pytest.mark.tier("all")
def test_trees_on_a_table_of_several_accumulators() -> None:
    """Blocks of eight: what last resorts of deep trees are, encrypted as in clear."""
    model = compile_ensemble(FOREST, sets=["lut6_block"], structured=True, thresholds="client")
    assert model.program.parameters.extension_factor > 1
    key = ClientKey.generate("lut6_block")
    x = RNG.integers(-1, 6, (3, 3)).astype(float)
    found = model.predict(x, "encrypted", key=key, session=Session(key.evaluation_keys()))
    np.testing.assert_array_equal(found, model.predict(x))


def test_linear_models() -> None:
    assert compile_linear(LINEAR, SAMPLES).program.parameters.name == "lut3"
    assert compile_linear(LINEAR, SAMPLES, structured=True).program.parameters.name == "lut3_block"
    with pytest.raises(ParameterError, match="structured=True"):
        compile_linear(LINEAR, SAMPLES, sets="lut3_block")


def test_the_block_variant_is_cheaper() -> None:
    """Or nobody would want one."""
    from cloakwork.models.criteria.choose_set import bootstrap_cost

    for params in offered_sets(True):
        if params.structured_secret:
            plain = parameter_set(params.name.removesuffix("_block"))
            assert bootstrap_cost(params) < 0.75 * bootstrap_cost(plain)
