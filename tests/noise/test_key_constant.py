"""The part of the keyswitch's error that is a constant of the key: on the engine, and one draw for all samples of a simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper
from onnx_models import model

import cloakwork as cw
from cloakwork.fhe_core import _engine, noise
from cloakwork.fhe_core.arrays.encoding import centre
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.runtime.interpreter import simulate


@pytest.mark.tier("all")
def test_mean_error_is_half_a_unit_times_the_sum_of_the_secret() -> None:
    params = parameter_set("toy_gate")  # rounds masks of 16 bits to 12
    unit, samples = 2.0**-params.keyswitch_modulus_log2, 8_000
    rng, constants = np.random.default_rng(3), []
    for number in range(4):
        secret = _engine.SecretKey.generate(params, bytes([number + 1]) * 32)
        seed, bootstrap, keyswitch = secret.evaluation_keys()
        session = _engine.CpuSession(_engine.CpuKey(params, seed, bootstrap, keyswitch))
        identity = np.eye(params.large_dimension, params.large_dimension + 1, dtype=np.uint32)
        coefficients = -centre(params, secret.phase_lwe(identity).astype(np.uint64))
        words = rng.integers(0, params.modulus, (samples, params.large_dimension + 1), dtype=np.uint32)
        before = secret.phase_lwe(words).astype(np.float64) / params.modulus
        after = secret.phase_small(session.keyswitch(words)).astype(np.float64) * unit
        errors = after - before - np.rint(after - before)
        expected = -float(coefficients.sum()) * unit / 2
        assert abs(errors.mean() - expected) < 4 * errors.std() / math.sqrt(samples)
        constants.append(expected)
    model_deviation = math.sqrt(noise.keyswitch_constant_variance(params))
    assert 0.3 < np.sqrt(np.mean(np.square(constants))) / model_deviation < 2.2  # four keys


@pytest.mark.filterwarnings("ignore:the encrypted model would decide")
def test_samples_of_a_simulation_share_it() -> None:
    """Forty sums through the identity on nn2_wide: their mean error moves from seed to seed by the constant, not by what they average out."""
    rng, wires, samples, seeds = np.random.default_rng(5), 40, 250, 40
    constants = {"w": rng.uniform(-1, 1, (20, wires)).astype(np.float32), "v": np.eye(wires, dtype=np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("LeakyRelu", ["h"], ["a"], name="nearly_the_identity", alpha=0.999),
        helper.make_node("MatMul", ["a", "v"], ["y"], name="second"),
    ]
    x = rng.uniform(-1, 1, (samples, 20))
    options = {"precision": "fast", "sets": ["nn2_wide"], "allow_loss": True}
    compiled = cw.compile(model(nodes, [20], constants), x, **options)
    program, phases = compiled.program, compiled.client.phases(x)
    graph, params = program.graph, program.parameters
    assert graph.scale is not None
    turns = graph.scale[graph.linears[0].first_wire : graph.linears[0].first_wire + wires]  # of what the look-ups see
    exact = simulate(program, phases, noisy=False)
    means = []
    for seed in range(seeds):
        error = simulate(program, phases, seed) - exact
        means.append(float(((error - np.rint(error)) / graph.scale[graph.output] * turns).mean()))
    switching = noise.keyswitch_variance(params) + noise.modulus_switch_variance(params)
    expected = math.sqrt(noise.keyswitch_constant_variance(params) + switching / (wires * samples))
    assert 0.6 < float(np.std(means)) / expected < 1.5
