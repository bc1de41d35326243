"""The exact profiles: encrypted equals the integer interpreter, always; what no set resolves is refused or rounded as allowed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper
from onnx_models import mlp, model, runtime
from quantised_models import SHAPE, network, quantised
from sessions import Sessions

import cloakwork as cw
from cloakwork.fhe_core import noise
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.calibration import Calibration
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.compiler import calibrate
from cloakwork.models.errors import CompileError, NoParameterSetError
from cloakwork.models.graph.ir import wrong_distance
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.report.layers import layers_of
from cloakwork.models.runtime.interpreter import wire_values

RNG = np.random.default_rng(17)
TOY = parameter_set("toy_two_limb")  # 4.7 bits of values at 2^-64
SMALL = {"input_bits": 2, "activation_bits": 2}


def compiled(
    proto: ModelProto, x: np.ndarray | Calibration, exact: Mapping[str, Any] = SMALL, **options: Any
) -> CompiledModel:
    options = {"precision": "exact_64", "weight_bits": 2, "sets": [TOY], **options}
    return cw.compile(proto, x, **exact, **{"accuracy": 0, **options})  # of random weights


def encrypted(sessions: Sessions, made: CompiledModel, x: np.ndarray) -> np.ndarray:
    key, session = sessions(TOY.name)
    return made.predict(x, how="encrypted", key=key, session=session)


def small_network(seed: int, activation: str, residual: bool, pool: bool) -> ModelProto:
    """conv - activation (- pool) - gemm (- residual) - activation - gemm, few weights other than zero."""
    rng = np.random.default_rng(seed)

    def sparse(*shape: int) -> np.ndarray:
        return (rng.integers(-1, 2, shape) * (rng.random(shape) < 0.5) * rng.uniform(0.5, 1.5)).astype(np.float32)

    hidden = 2 * (2 if pool else 4)
    constants = {
        "w": sparse(2, 1, 2),
        "b": rng.uniform(-0.3, 0.3, 2).astype(np.float32),
        "g": sparse(hidden, 3),
        "h": sparse(3, 2),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        helper.make_node(activation, ["c"], ["a"], name="first"),
        *([helper.make_node("MaxPool", ["a"], ["p"], name="pool", kernel_shape=[2], strides=[2])] if pool else []),
        helper.make_node("Flatten", ["p" if pool else "a"], ["f"]),
        helper.make_node("MatMul", ["f", "g"], ["m"], name="dense"),
        helper.make_node("Tanh", ["m"], ["t"], name="second"),
        *([helper.make_node("Add", ["t", "m"], ["r"], name="skip")] if residual else []),
        helper.make_node("MatMul", ["r" if residual else "t", "h"], ["y"], name="last"),
    ]
    return model(nodes, [1, 5], constants)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from(["Relu", "Sigmoid", "Abs"]), st.booleans(), st.booleans())
def test_encrypted_equals_the_integer_interpreter(
    sessions: Sessions, seed: int, activation: str, residual: bool, pool: bool
) -> None:
    x = np.random.default_rng(seed).uniform(-1, 1, (40, 1, 5))
    try:
        made = compiled(small_network(seed, activation, residual, pool), x)
    except NoParameterSetError:
        return  # too many values for the toy set
    np.testing.assert_array_equal(made.predict(x, how="simulate", seed=1), made.predict(x))
    assert made.program.output_unit > 0
    np.testing.assert_array_equal(encrypted(sessions, made, x[:6]), made.predict(x[:6]))


def test_every_accumulator_is_an_integer_within_its_bounds() -> None:
    x = RNG.uniform(-1, 1, (300, 6))
    made = compiled(mlp(RNG, [6, 5, 3]), x)
    graph = made.program.graph
    values = wire_values(graph, made.client.inputs(x))
    assert graph.lower is not None and graph.upper is not None
    for node in graph.lookups:
        snap = node.steps[0]
        step, origin = (parameter[node.function] for parameter in snap.parameters)
        seen = values[:, node.gather]
        np.testing.assert_allclose((seen - origin) / step, np.rint((seen - origin) / step), atol=1e-6)
        assert (seen >= graph.lower[node.gather] - 1e-9).all() and (seen <= graph.upper[node.gather] + 1e-9).all()


def test_exact_results_travel_with_the_program(tmp_path: Path) -> None:
    x = RNG.uniform(-1, 1, (50, 6))
    made = compiled(mlp(RNG, [6, 5, 3]), x)
    made.save(tmp_path / "exact.clkm")
    loaded = CompiledModel.load(tmp_path / "exact.clkm")
    np.testing.assert_array_equal(loaded.predict(x), made.predict(x))
    client = ClientSpecification.from_json(loaded.client.to_json())
    phases = loaded.client.phases(x)
    np.testing.assert_array_equal(client.phases(x), phases)
    noisy = RNG.uniform(-0.3, 0.3, (4, 3))
    np.testing.assert_array_equal(client.output(noisy), made.client.output(noisy))


def test_ranges_that_were_observed_before_serve_as_well() -> None:
    x = RNG.uniform(-1, 1, (50, 1, 5))
    proto = small_network(3, "Relu", residual=False, pool=True)
    direct, stored = compiled(proto, x), compiled(proto, calibrate(proto, x, exact=True))
    np.testing.assert_array_equal(direct.predict(x), stored.predict(x))


def test_shipped_sets_are_chosen_by_cost_and_failure() -> None:
    x = RNG.uniform(-1, 1, (100, 6))
    names = {}
    for profile in ("exact", "exact_64"):
        made = cw.compile(
            mlp(np.random.default_rng(0), [6, 5, 3]), x, precision=profile, weight_bits=2, **SMALL, accuracy=0
        )
        names[profile] = made.program.parameters.name
    assert names["exact"].startswith("lut") and names["exact_64"].endswith("_64")


@pytest.mark.tier("all")
@pytest.mark.parametrize("structured", [False, True])
def test_accumulators_of_seven_and_eight_bits(structured: bool) -> None:
    """More values than one accumulator resolves: tables over several, encrypted as in clear."""
    x = RNG.uniform(-1, 1, (100, 8))
    exact = {"input_bits": 4, "activation_bits": 4}
    network, options = mlp(np.random.default_rng(0), [8, 6, 4, 3]), {**exact, "structured": structured}
    made = cw.compile(network, x, precision="exact_64", weight_bits=3, accuracy=0, **options)
    params = made.program.parameters
    assert params.structured_secret is structured
    assert 128 < made.program.facts.exact.values["layer0"] <= 256
    assert params.name.startswith(("lut7", "lut8")) and params.extension_factor > 1
    key = ClientKey.generate(params)
    found = made.predict(x[:2], how="encrypted", key=key, session=Session(key.evaluation_keys(), threads=2))
    np.testing.assert_array_equal(found, made.predict(x[:2]))


def test_what_no_set_resolves_is_refused_with_the_layer_or_rounded() -> None:
    x = RNG.uniform(-1, 1, (100, 20))
    proto = mlp(RNG, [20, 8, 3])
    too_many = (
        r"'layer0' needs look-ups on \d+ values.*'toy_two_limb', resolves \d+ values.* it has \d+ steps, and at most 64"
    )
    with pytest.raises(NoParameterSetError, match=too_many):
        compiled(proto, x, {"input_bits": 4, "activation_bits": 8}, weight_bits=4)
    rounded = compiled(proto, x, {"input_bits": 4, "activation_bits": 3, "accumulator_bits": 3}, weight_bits=4)
    assert "layer0" in rounded.program.facts.exact.rounded
    assert rounded.report()["layers"][0]["failure_log2"] <= -64  # to be more than one step off
    clear = rounded.predict(x)
    assert np.abs(rounded.predict(x, how="simulate", seed=3) - clear).std() < 0.3 * clear.std()


@pytest.mark.parametrize("rounded_bits", [None, 3])
def test_look_ups_say_how_far_a_wrong_value_is(rounded_bits: int | None) -> None:
    """What is moved by less comes out the same, what is moved by more is taken for another value."""
    x = RNG.uniform(-1, 1, (40, 4))
    settings = {"input_bits": 2, "activation_bits": 2, "accumulator_bits": rounded_bits}
    program = compiled(mlp(RNG, [4, 5, 3]), x, settings).program
    graph = program.graph
    seen = wire_values(graph, ClientSpecification.of(program).inputs(x))
    for lookup in graph.lookups:
        assert lookup.is_exact
        values, half = seen[:, lookup.gather], lookup.spacing / 2
        snap = lookup.steps[0]
        on_grid = snap([values], lookup.function)
        for share in (-0.99, 0.99):
            np.testing.assert_allclose(snap([on_grid + share * half], lookup.function), on_grid, atol=1e-9)
        moved = snap([on_grid + 1.01 * half], lookup.function) - on_grid
        np.testing.assert_allclose(moved, np.broadcast_to(lookup.spacing, moved.shape), atol=1e-9)
        np.testing.assert_allclose(wrong_distance(graph, lookup), half * graph.scale[lookup.gather])
    hidden = layers_of(program)[0]
    nearest = min(float(wrong_distance(graph, lookup).min()) for lookup in graph.lookups)
    assert hidden.risk.deviations == pytest.approx(nearest / (hidden.noise_percent / 200))
    assert hidden.risk.p_fail_log2 == noise.p_fail_log2(
        nearest, (hidden.noise_percent / 200) ** 2, noise.lookup_offset(TOY)
    )
    assert hidden.risk.p_wrap_log2 is None


def test_calibrated_ranges_are_narrower_and_named() -> None:
    x = RNG.uniform(-1, 1, (400, 20))
    proto = mlp(RNG, [20, 8, 3])
    settings_ = {
        ranges: {"input_bits": 4, "activation_bits": 3, "accumulator_bits": 3, "accumulator_ranges": ranges}
        for ranges in ("interval", "calibrated")
    }
    made = {ranges: compiled(proto, x, exact, weight_bits=3) for ranges, exact in settings_.items()}
    assert made["interval"].program.facts.exact.calibrated_ranges == ()
    assert "layer0" in made["calibrated"].program.facts.exact.calibrated_ranges
    values = {ranges: m.program.facts.exact.values["layer0"] for ranges, m in made.items()}
    assert values["calibrated"] < values["interval"]


def test_layers_may_be_approximate_beside_exact_ones() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (200, 4))
    proto = mlp(rng, [4, 5, 4, 3])
    made = compiled(proto, x, precision={"*": "exact_64", "layer1": 3.0})
    snapped = [node.steps[0].operator == "Snap" for node in made.program.graph.lookups]
    assert snapped == [True, False]
    limits = {layer["name"]: layer["noise_limit_percent"] for layer in made.report()["layers"]}
    assert limits == {"layer0": 0, "layer1": 3, "layer2": 0}


def test_quantised_model_keeps_its_own_grids(tmp_path: Path) -> None:
    """Eight bits are too many for an exact set, so accumulators are rounded; the grids of the model stay."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((60, *SHAPE))
    proto = quantised(tmp_path, network(rng), x, operators=False, per_channel=True)
    made = cw.compile(
        proto,
        x,
        precision="exact",
        weight_bits=4,
        accumulator_bits=3,
        accumulator_ranges="calibrated",
        accuracy=0,
    )
    expected = runtime(proto, x)
    assert np.corrcoef(made.predict(x).ravel(), expected.ravel())[0, 1] > 0.8  # of three and four bits
    assert made.program.input_steps[0].unit == pytest.approx(float(np.float32(made.program.input_steps[0].unit)))


@pytest.mark.parametrize("exact", [{"input_bits": 0}, {"accumulator_bits": 20}, {"accumulator_ranges": "all"}])  # type: ignore[arg-type]
def test_wrong_settings(exact: dict[str, Any]) -> None:
    with pytest.raises(CompileError, match="expected"):
        compiled(mlp(RNG, [3, 2]), RNG.uniform(-1, 1, (9, 3)), exact)
