"""Answers of every kind of model: right, with masks that the evaluation says nothing about, and as noisy as the reports say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_models
import pytest
from mask_attack import integer_weights

import cloakwork as cw
from cloakwork.fhe_core import noise
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.linear.compile_linear import compile_linear, linear_program
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.linear.linear_quantisation import LinearQuantisation
from cloakwork.models.program.answers import answer_bits, phase_noise, weight_norms
from cloakwork.models.runtime import Runtime
from cloakwork.models.runtime.interpreter import simulate
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble
from tests.models.trees.tree_models import random_tree

RNG = np.random.default_rng(8)


def linear() -> tuple[CompiledModel, np.ndarray]:
    """Three classes, with the default set, which is secure."""
    model = LinearModel(RNG.normal(size=(3, 13)), RNG.normal(size=3), "softmax", labels=np.array(["a", "b", "c"]))
    x = RNG.uniform(-1, 1, (50, 13))
    return compile_linear(model, x), x[:4]


def trees() -> tuple[CompiledModel, np.ndarray]:
    members = tuple(random_tree(RNG, 3, 3, 1, 5) for _ in range(4))
    compiled = compile_ensemble(
        TreeEnsemble(members, 3, "mean"), sets=["toy_two_limb"], p_fail_log2=-30.0, thresholds="client"
    )
    return compiled, RNG.integers(0, 5, (4, 3)) / 2


def network() -> tuple[CompiledModel, np.ndarray]:
    """Compiled for a secure set and then moved to insecure parameters, which have less noise."""
    x = RNG.uniform(-1, 1, (512, 4))
    compiled = cw.compile(onnx_models.mlp(RNG, (4, 6, 3)), x)
    return CompiledModel(replace(compiled.program, parameters=parameter_set("toy_two_limb"))), x[:2]


def full_words(answer: Ciphertexts | SwitchedCiphertexts) -> Ciphertexts:
    return answer.expand() if isinstance(answer, SwitchedCiphertexts) else answer


@pytest.mark.parametrize("make", [linear, trees, network])
def test_answers_are_right_and_their_masks_new(make) -> None:  # type: ignore[no-untyped-def]
    compiled, x = make()
    params = compiled.program.parameters
    key = ClientKey.generate(params)
    runtime, packed = Runtime(compiled.program, Session(key.evaluation_keys())), compiled.client.encrypt(key, x)
    words, again = runtime.run(packed), runtime.run(packed)
    np.testing.assert_array_equal(words.words, again.words)  # an audit finds the same words
    first, second = full_words(runtime.answer(packed)), full_words(runtime.answer(packed))
    for one, other in ((first, words), (second, words), (first, second)):
        assert (one.words[..., :-1] == other.words[..., :-1]).mean() < 1e-3
        apart = (key.phases(one).astype(np.int64) - key.phases(other).astype(np.int64)) / params.modulus
        apart -= np.rint(apart)
        bits = answer_bits(compiled.program)
        rounding = noise.word_rounding_variance(params, bits) if bits else 0.0
        assert np.abs(apart).max() < 8 * math.sqrt(2 * (noise.rerandomisation_variance(params) + rounding))
    clear, decrypted = compiled.predict(x), compiled.client.decrypt(key, first)
    if compiled.program.output_unit > 0 or not compiled.program.bootstraps:
        np.testing.assert_array_equal(decrypted, clear)
    else:
        assert np.abs(decrypted - clear).max() < 0.5 * np.abs(clear).max()


def test_the_attack_needs_one_answer_that_is_not_rerandomised() -> None:
    compiled, x = linear()
    key = ClientKey.generate(compiled.program.parameters)
    session = Session(key.evaluation_keys())
    runtime, packed = Runtime(compiled.program, session), compiled.client.encrypt(key, x[:1])
    inputs, words, answer = session.extract(packed)[0], runtime.run(packed)[0], full_words(runtime.answer(packed))[0]
    for output, weights in enumerate(compiled.program.graph.linears[0].weights[0]):
        np.testing.assert_array_equal(integer_weights(inputs, words[output]), weights)
        assert integer_weights(inputs, answer[output]) is None


def test_outputs_have_the_noise_that_reports_and_simulations_say() -> None:
    """A linear program of norm 1, whose answers are 400 times noisier than its inputs. Limits: 30 % for
    one toy key, and six standard deviations of the samples."""
    params, samples = parameter_set("toy_two_limb"), 4096
    found = LinearQuantisation(
        np.array([[1, 0]]), np.zeros(1, dtype=np.int64), np.zeros(1), 8, np.ones(1), 1 / 64, -128.0
    )
    program = linear_program(found, params, "one weight")
    (norms,) = weight_norms(program.graph)
    model = phase_noise(params, norms) ** 2
    assert model == pytest.approx(noise.fresh_variance(params) + noise.rerandomisation_variance(params))
    assert noise.rerandomisation_variance(params) > 100 * noise.fresh_variance(params)
    key = ClientKey._from_entropy(params, bytes(range(32)))
    compiled = CompiledModel(program)
    x = RNG.integers(-8, 9, (samples, 2)).astype(np.float64)
    exact = compiled.client.phases(x)[:, :1]
    runtime = Runtime(program, Session(key.evaluation_keys()))
    encrypted = np.asarray(key.decrypt(runtime.answer(compiled.client.encrypt(key, x)))) - exact
    simulated = simulate(program, compiled.client.phases(x), seed=1) - exact
    spread = 6 * math.sqrt(2 / samples)
    assert 1 - spread < np.mean(simulated**2) / model < 1 + spread
    assert 0.7 - spread < np.mean(encrypted**2) / model < 1.3 + spread
