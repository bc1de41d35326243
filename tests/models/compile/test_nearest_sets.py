"""Where no parameter set serves, the message names the one that falls short least; lists of names in messages are cut."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import mlp, model

import cloakwork as cw
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.approximate.row_scales import noise_behind
from cloakwork.models.compiler import calibrate
from cloakwork.models.errors import CompileError, NoParameterSetError, closest_first, some

RNG = np.random.default_rng(29)
X = RNG.uniform(-1, 1, (200, 60))


def refused(candidates: list[str], **options: Any) -> tuple[str, float, str]:
    """The set that the message calls nearest, what it has, and the layer."""
    with pytest.raises(NoParameterSetError) as error:
        network = mlp(np.random.default_rng(4), [60, 30, 3])
        # Ranges alone: with samples less is asked of weights, because what is straight passes beside look-ups.
        ranges = calibrate(network, X, exact=options["precision"] == "exact")
        cw.compile(network, ranges, sets=candidates, accuracy=0, **options)
    found = re.search(
        r"layer '(.*?)'.*the nearest set, '(.*?)', (?:resolves|leaves room for|has) (none|[\d.]+)", str(error.value)
    )
    assert found, error.value
    return found[2], 0.0 if found[3] == "none" else float(found[3]), found[1]


EXACT = ["lut1", "lut2", "lut3", "lut4", "lut5"]


@pytest.mark.tier("all")
@pytest.mark.parametrize("order", [EXACT, EXACT[::-1]])
def test_of_exact_sets_the_one_that_resolves_most(order: list[str]) -> None:
    """All of them fail with certainty, so that probabilities do not tell which is nearest."""
    options: dict[str, Any] = {
        "precision": "exact",
        "weight_bits": 8,
        "input_bits": 8,
        "activation_bits": 8,
    }
    alone = {name: refused([name], **options)[1] for name in EXACT}
    name, values, layer = refused(order, **options)
    assert name == "lut5" and values == alone["lut5"] == max(alone.values()) and layer.startswith("layer")
    assert alone["lut1"] < alone["lut5"]
    assert refused(EXACT[:3], **options)[0] == max(EXACT[:3], key=alone.__getitem__)


def test_of_approximate_sets_the_one_with_most_room_for_weights() -> None:
    options: dict[str, Any] = {"precision": 0.8, "weight_bits": 8}
    names = ["nn1", "nn05", "nn05_wide"]
    alone = {name: refused([name], **options)[1] for name in names}
    name, bits, _ = refused(names, **options)
    assert bits == alone[name] == max(alone.values())
    assert min(alone.values()) < max(alone.values())


@pytest.mark.parametrize("names", [["nn2", "nn05_wide", "nn1"], ["nn05_wide", "nn2"], ["nn2", "nn1"]])
def test_of_sets_that_are_too_noisy_by_themselves_the_least_noisy(names: list[str]) -> None:
    with pytest.raises(NoParameterSetError, match="the nearest: layer 'layer.' may have noise of 0.01 %") as error:
        cw.compile(mlp(RNG, [60, 30, 3]), X, sets=names, accuracy=0, precision=0.01)
    least = min(names, key=lambda name: noise_behind(parameter_set(name), output=False))
    assert f"'{least}' alone brings" in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "right"), [("lut33", "lut3"), ("nn1wide", "nn1_wide"), ("LUT4", None), ("nn2-wide", "nn2_wide")]
)
def test_an_unknown_set_is_answered_with_names_like_it(wrong: str, right: str | None) -> None:
    with pytest.raises(ParameterError, match="cloakwork params") as error:
        parameter_set(wrong)
    assert f"'{wrong}'" in str(error.value) and len(str(error.value)) < 160
    if right is not None:
        assert f"nearest: {right}" in str(error.value)


def test_an_unknown_layer_of_many_is_answered_with_the_closest() -> None:
    proto = mlp(np.random.default_rng(1), [4] * 42)
    x = RNG.uniform(-1, 1, (50, 4))
    wrong = {f"leyer{i}": "fast" for i in (17, *range(50, 80))}
    with pytest.raises(CompileError) as error:
        cw.compile(proto, x, precision=wrong, accuracy=0)
    text = str(error.value)
    assert "no layer 'leyer17'" in text and "and 23 more; expected some of 'layer17', " in text
    assert len(text) < 350


def test_nodes_in_a_circle_are_cut() -> None:
    nodes = [helper.make_node("Add", [f"t{(i - 1) % 40}", "x"], [f"t{i}"], name=f"node{i}") for i in range(40)]
    nodes.append(helper.make_node("Relu", ["t39"], ["y"]))
    with pytest.raises(CompileError, match="more depend on each other in a circle") as error:
        cw.compile(model(nodes, [4]), X[:, :4])
    assert len(str(error.value)) < 300


def test_names_in_the_order_of_their_likeness() -> None:
    assert closest_first("conv3", ["dense1", "conv30", "conv1"])[0] == "conv30"
    assert closest_first("x", []) == []
    assert some(str(i) for i in range(40)) == "0, 1, 2, 3, 4, 5, 6, 7, and 32 more"
