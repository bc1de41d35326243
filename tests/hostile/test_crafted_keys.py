"""What hostile clients read of a model in an answer: honest probing, crafted ciphertexts, crafted evaluation keys.

Everything goes through the bytes that a service accepts, and answers are re-randomised. What is measured here is in the table of
docs/decisions/crafted-keys.md.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.program.answers import answer_bits
from cloakwork.models.runtime import Runtime
from cloakwork.models.runtime.interpreter import simulate
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from tests.hostile.crafted_keys import crafted_input, crafted_keys, rotations, slot_rows, solution

DEPTH, UNITS, SLOTS = 4, 64, 8
BASE, DIGITS = 68, 3  # further digits of an answer: of a leaf value from -1/2 to 1/2 of the torus, both ends included
DIGIT_WEIGHT = 2**30  # g_0 of toy_two_limb: words of 54 bits, of which an external product sees the upper 24
LEAVES = 2**DEPTH


@pytest.fixture(scope="module")
def tree() -> CompiledModel:
    """Complete, of 16 secret leaf values and the public condition x_d <= 1/2 at depth d; values are multiples of 1/64 of the torus."""
    inner = LEAVES - 1
    children = np.concatenate([np.arange(1, 2 * inner, 2), np.full(LEAVES, -1)])
    feature = np.concatenate([np.log2(np.arange(1, LEAVES)).astype(int), np.zeros(LEAVES, int)])
    values = np.zeros((inner + LEAVES, 1))
    values[inner:, 0] = np.random.default_rng(1).normal(size=LEAVES)
    right = np.where(children < 0, -1, children + 1)
    members = (Tree.of_nodes(feature, np.full(len(values), 0.5), children, right, values),)
    compiled = compile_ensemble(
        TreeEnsemble(members, DEPTH, "mean"), sets=["toy_two_limb"], p_fail_log2=-200.0, thresholds="client"
    )
    assert 1 / compiled.program.output_unit == UNITS
    assert all(node.steps[0].parameters[0].shape[1] == 2 * SLOTS for node in compiled.program.graph.lookups)
    return compiled


def every_input() -> NDArray[np.float64]:
    return np.array(list(itertools.product([0.0, 1.0], repeat=DEPTH)))


def answered(compiled: CompiledModel, keys: EvaluationKeys, x: SeededPackedCiphertexts) -> NDArray[np.float64]:
    """Bodies of the service's answer, fractions of the torus: all that a client with secrets of zero needs."""
    program = compiled.program
    runtime = Runtime(program, Session(EvaluationKeys.from_bytes(keys.to_bytes())))
    answer = runtime.answer(SeededPackedCiphertexts.from_bytes(x.to_bytes()))
    words = answer.expand().words if isinstance(answer, SwitchedCiphertexts) else answer.words
    return np.asarray(words[..., -1].astype(np.float64) / program.parameters.modulus)


def test_honest_probing_of_a_tree_takes_an_answer_for_each_leaf(tree: CompiledModel) -> None:
    key = ClientKey.generate(tree.program.parameters)
    x = every_input()
    answer = Runtime(tree.program, Session(key.evaluation_keys())).answer(tree.client.encrypt(key, x))
    assert len(x) == LEAVES == 16
    np.testing.assert_array_equal(tree.client.decrypt(key, answer), tree.predict(x))


def test_crafted_keys_put_three_leaves_into_an_answer(tree: CompiledModel) -> None:
    """One request, one key: 8 answers where honest probing takes 16. The client knows which index reads which conditions, with which weights; tables
    and weights of the sum are secret."""
    params = tree.program.parameters
    weights, x = index_weights(tree), every_input()
    phases = np.rint(tree.client.phases(x) * UNITS).astype(np.int64)
    assert set(phases.ravel().tolist()) == {0, 1}
    assert answer_bits(tree.program) == 25 >= math.log2(UNITS * BASE**DIGITS)  # UNITS: the answer to phases of zero

    # The last samples have small phases, which change no look-up: they read the weights that conditions have in the sum.
    leaf_samples, weight_samples = -(-LEAVES // DIGITS), -(-DEPTH // (DIGITS - 1))
    inputs = np.zeros((leaf_samples + weight_samples, DEPTH), np.uint64)
    for condition in range(DEPTH):
        sample, place = divmod(condition, DIGITS - 1)
        inputs[leaf_samples + sample, condition] = params.modulus // (UNITS * BASE ** (2 + place))
    assert len(inputs) == 8 and LEAVES == 16

    crafted = crafted_input(params, inputs, tree.program.digest)
    session = Session(crafted_keys(params))
    turned = rotations(session, session.extract(crafted), weights)
    slots = phases @ weights.T * 2 * SLOTS // UNITS % (2 * SLOTS)  # [inputs, look-ups], from that of phases of zero on
    keys = crafted_keys(params, demanded_bodies(turned, demands(slots, len(inputs)), params))

    zero, digits = digits_of(answered(tree, keys, crafted)[:, 0])
    leaves, in_sum = digits[:leaf_samples].reshape(-1)[:LEAVES], digits[leaf_samples:, 1:].reshape(-1)[:DEPTH]
    at_zero = leaves[np.flatnonzero(~phases.any(axis=1))]
    outputs = zero + leaves - at_zero + phases @ in_sum
    np.testing.assert_array_equal(outputs % UNITS, output_units(tree, x))


def demands(slots: NDArray[np.int64], samples: int) -> NDArray[np.object_]:
    """[samples, look-ups, SLOTS]: what every entry shall count for in an answer: those of input 3 i + j for BASE^-(j + 1) in sample i,
    the same in all look-ups; nothing in the last samples."""
    counted = np.zeros((samples, slots.shape[1], SLOTS), object)
    for (number, lookup), slot in np.ndenumerate(slots):
        factor = round(DIGIT_WEIGHT / BASE ** (number % DIGITS + 1))
        counted[number // DIGITS, lookup, slot % SLOTS] += factor if slot < SLOTS else -factor
    return counted


def demanded_bodies(
    turned: NDArray[np.int64], demanded: NDArray[np.object_], params: ParameterSet
) -> NDArray[np.uint64]:
    """[3, N]: one key for all samples and look-ups."""
    rows = [slot_rows(SLOTS, params.polynomial_size, own) for own in turned.reshape(-1, 4)]
    return solution(np.concatenate(rows), demanded.reshape(-1), params.modulus).reshape(3, -1)


def digits_of(answers: NDArray[np.float64]) -> tuple[int, NDArray[np.int64]]:
    """What all answers have in common, and [samples, DIGITS] balanced digits after it."""
    left = np.rint(answers * UNITS * BASE**DIGITS).astype(np.int64)
    digits = np.zeros((len(left), DIGITS), np.int64)
    for place in reversed(range(DIGITS)):
        digits[:, place] = (left + BASE // 2) % BASE - BASE // 2
        left = (left - digits[:, place]) // BASE
    (zero,) = set((left % UNITS).tolist())
    return zero, digits


def index_weights(compiled: CompiledModel) -> NDArray[np.int64]:
    """[look-ups, conditions]: of the only index of each look-up; in the sum every look-up has the weight one."""
    graph = compiled.program.graph
    index, last = graph.linears
    (lookup,) = graph.lookups
    weights = np.zeros((lookup.bootstraps, DEPTH + 1), np.int64)
    for position, (block, gather) in enumerate(zip(index.block, index.gather, strict=True)):
        np.add.at(weights[position], gather, index.weights[block, 0])
    of_lookups = last.gather[0] >= lookup.first_wire
    assert (last.weights[0, 0, of_lookups] == 1).all() and of_lookups.sum() == lookup.size
    order = lookup.gather - index.first_wire
    return weights[order, :DEPTH]


def output_units(compiled: CompiledModel, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """What the server's integers give, in clear, modulo UNITS."""
    phases = simulate(compiled.program, compiled.client.phases(x), noisy=False)
    return np.rint(phases.reshape(-1) * UNITS).astype(np.int64) % UNITS


@pytest.fixture(scope="module")
def linear() -> CompiledModel:
    random = np.random.default_rng(3)
    model = LinearModel(random.normal(size=(3, 12)), random.normal(size=3), "none")
    return compile_linear(model, random.uniform(-1, 1, (50, 12)), sets="toy_two_limb", input_bits=8)


def test_crafted_ciphertexts_put_two_weights_of_a_linear_model_into_an_answer(linear: CompiledModel) -> None:
    """7 answers where honest probing takes 13, one for each feature and one for the constants. Encrypted without noise; secrets of zero are a shorter
    way to do that than to take the noise off."""
    program, at_once, base_log2 = linear.program, 2, 19
    params, (node,) = program.parameters, program.graph.linears
    weights = node.weights[0]
    assert np.abs(weights).max() < 2 ** (base_log2 - 1) and answer_bits(program) is None
    features = weights.shape[1]
    phases = np.zeros((features // at_once + 1, features), np.uint64)  # of the last sample they stay zero
    for feature in range(features):
        phases[feature // at_once, feature] = 1 << (base_log2 * (1 - feature % at_once) + 15)
    assert phases.shape == (7, 12)

    bodies = answered(linear, crafted_keys(params), crafted_input(params, phases, program.digest))
    turns = bodies[:-1] - bodies[-1]
    left = np.rint((turns - np.rint(turns)) * (params.modulus / 2**15)).astype(np.int64)
    found = np.zeros_like(weights)
    for place in reversed(range(at_once)):
        digit = (left + 2 ** (base_log2 - 1)) % 2**base_log2 - 2 ** (base_log2 - 1)
        left = (left - digit) // 2**base_log2
        found[:, place::at_once] = digit.T
    np.testing.assert_array_equal(found, weights)
