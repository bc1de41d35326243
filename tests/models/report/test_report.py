"""The report: plain values, text and picture, of approximate and exact programs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx_models import mlp, model

import cloakwork as cw
from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.program.artefact import program_to_bytes
from cloakwork.models.report import Report, report_json, sample_p_fail_log2

RNG = np.random.default_rng(23)
X = RNG.uniform(-1, 1, (300, 8))


@pytest.fixture(scope="module")
def approximate() -> CompiledModel:
    return cw.compile(mlp(RNG, [8, 12, 5, 3]), X, precision="fast", accuracy=0)


@pytest.fixture(scope="module")
def exact() -> CompiledModel:
    settings = {"input_bits": 2, "activation_bits": 2}
    return cw.compile(mlp(RNG, [8, 4, 3]), X, precision="exact", weight_bits=2, **settings, accuracy=0)


def test_counts_of_every_layer_add_up(approximate: CompiledModel) -> None:
    facts = approximate.report()
    assert (
        facts["bootstraps"]
        == sum(facts["bootstraps_per_level"])
        == sum(layer["bootstraps"] for layer in facts["layers"])
        == 17
    )
    assert [(layer["name"], layer["bootstraps"], layer["numbers"]) for layer in facts["layers"]] == [
        ("layer0", 12, 12),
        ("layer1", 5, 5),
        ("layer2", 0, 3),
    ]
    assert facts["costliest_layer"] == "layer0"
    assert json.loads(report_json(approximate.program)) == json.loads(json.dumps(facts))


def test_digest_is_that_of_the_file(approximate: CompiledModel, tmp_path: Path) -> None:
    approximate.save(tmp_path / "a.clkm")
    digest = approximate.report()["program_digest"]
    assert (tmp_path / "a.clkm").read_bytes()[-32:].hex() == digest == program_to_bytes(approximate.program)[-32:].hex()
    assert digest[:16] in approximate.details


def test_approximate_look_ups_have_a_probability_to_wrap(approximate: CompiledModel) -> None:
    """Four standard deviations of noise are kept free at the ends of a look-up's range, of rows that fill it."""
    facts = approximate.report()
    assert facts["failure_log2"] is None and facts["failure_log2_program"] is None
    for layer in facts["layers"][:-1]:
        guard = layer["margin_deviations"]
        assert 3.9 < guard < 8  # less than 4 by what was rounded after the scales were chosen
        assert layer["wrap_log2"] == pytest.approx(noise.log2_two_sided_tail(guard / noise.SD_INFLATION), rel=1e-6)


def test_exact_look_ups_have_a_failure_probability(exact: CompiledModel) -> None:
    facts = exact.report()
    assert facts["failure_log2"] <= -128 and facts["wrap_log2"] is None
    hidden, output = facts["layers"]
    values = facts["values"]["layer0"]
    assert hidden["margin_deviations"] == pytest.approx(1 / (4 * values) / (hidden["noise_percent"] / 200))
    expected = math.log2(4 * 2.0 ** hidden["failure_log2"] + 3 * 2.0 ** output["failure_log2"])
    assert facts["failure_log2_program"] == pytest.approx(expected)
    assert "failure: 2^-" in exact.details


def test_typed_report_and_its_public_names(approximate: CompiledModel, exact: CompiledModel) -> None:
    for made in (approximate, exact):
        found, facts = Report.of(made.program), made.report()
        public = {
            "failure_log2": found.p_fail_log2,
            "failure_log2_program": found.program_p_fail_log2,
            "wrap_log2": found.p_wrap_log2,
        }
        assert {key: facts[key] for key in public} == public
        risks = [(each["failure_log2"], each["wrap_log2"], each["margin_deviations"]) for each in facts["layers"]]
        assert risks == [(r.p_fail_log2, r.p_wrap_log2, r.deviations) for r in (layer.risk for layer in found.layers)]
    assert sample_p_fail_log2(exact.program) == exact.report()["failure_log2_program"]
    assert sample_p_fail_log2(approximate.program) == approximate.report()["wrap_log2"]


def test_times_scale_from_measured_sets(
    approximate: CompiledModel, exact: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nothing was measured on this machine
    for made in (approximate, exact):
        facts = made.report()
        cpu, gpu = facts["estimated_seconds"]["cpu-1-thread"], facts["estimated_seconds"]["h200"]
        assert gpu["seconds_per_sample"] < cpu["seconds_per_sample"]
        assert gpu["seconds_one_sample"] > gpu["seconds_per_sample"]
    measured = cw.compile(mlp(RNG, [8, 12, 3]), X, accuracy=0, sets=[parameter_set("nn1_wide")]).report()
    h200 = measured["estimated_seconds"]["h200"]
    assert h200["scaled_from"] is None
    # docs/benchmarks/cuda.md: 58,610 a second in batches of 16,384; these are a little smaller
    assert h200["batch_samples"] == 1024
    assert 12 / 58610 < h200["parts_per_sample"]["look-ups"] < 1.01 * 12 / 58610 and h200["complete"]
    assert "h200" in approximate.details


def test_text_says_how_often_a_linear_model_fails() -> None:
    labels = np.arange(40) % 3
    x = RNG.normal(size=(40, 4)) + labels[:, None]
    coefficients = np.array([[-1.0, -1, -1, -1], [0, 0, 0, 0.5], [1, 1, 1, 1]])
    made = compile_linear(LinearModel(coefficients, np.zeros(3), labels=np.arange(3)), x)
    one = made.report()["p_fail_log2"]
    assert sample_p_fail_log2(made.program) == one
    assert f"failure: 2^{one:.1f} for an output, 2^{one + math.log2(3):.1f} for a sample" in made.details


def test_text_cuts_the_levels_of_deep_networks() -> None:
    nodes = []
    for i in range(12):
        nodes.append(helper.make_node("MatMul", [f"t{i}" if i else "x", "w"], [f"m{i}"], name=f"layer{i}"))
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [f"t{i + 1}"]))
    nodes.append(helper.make_node("MatMul", ["t12", "w"], ["y"], name="last"))
    weights = np.array([[1.1, -0.5], [0.5, 1.1]], dtype=np.float32)
    made = cw.compile(model(nodes, [2], {"w": weights}), RNG.uniform(-1, 1, (100, 2)), accuracy=0)
    assert "bootstraps per sample: 24 (2, 2, 2, 2, 2, 2, 2, 2, and 4 more by level)" in made.details
