"""Re-randomised results: other masks, uniform ones, the same phases but for the noise of the model, on both sides; right answers.

Entropy is fixed, that of the operating system too (tests/suite/entropy.py). Limits are six standard deviations of what is measured.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from measurements import uniformity

from cloakwork.fhe_core import _engine, noise
from cloakwork.fhe_core._engine import reference
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys

ENTROPY = bytes(range(1, 33))
SIGMAS = 6
# What one key's own noise, and its secret, leave open of the model's variance, which is a mean over keys.
KEY_TOLERANCE = {"toy": 0.3, "toy_two_limb": 0.3, "nn2": 0.06, "lut3": 0.06}
COUNT = {"toy": 8192, "toy_two_limb": 8192, "nn2": 4096, "lut3": 1024}


@pytest.fixture(scope="module", params=list(COUNT))
def key(request: pytest.FixtureRequest) -> ClientKey:
    return ClientKey._from_entropy(request.param, ENTROPY)


@pytest.mark.parametrize("seed", [None, bytes(range(64, 96))], ids=["entropy", "seeded"])
def test_encryptions_of_zero_have_the_noise_of_the_model(key: ClientKey, seed: bytes | None) -> None:
    params = key.parameters
    count = COUNT[params.name]
    zeros = Ciphertexts.from_words(params, key.public_key().zeros(count, seed=seed), key_id=key.key_id)
    errors = centred(key, zeros) / params.modulus
    model = noise.rerandomisation_variance(params)
    spread = SIGMAS * math.sqrt(2 / count)
    ratio = float(np.mean(errors**2)) / model
    assert 1 - KEY_TOLERANCE[params.name] - spread < ratio < 1 + KEY_TOLERANCE[params.name] + spread, ratio
    assert abs(float(errors.mean())) < SIGMAS * math.sqrt(2 * model / count)
    correlation = float(np.corrcoef(errors[1:], errors[:-1])[0, 1])  # each has randomness of its own
    assert abs(correlation) < SIGMAS / math.sqrt(count - 1)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["toy", "toy_two_limb", "lut2_cm2", "gate_64_s192", "nn05"])
def test_zeros_are_coefficient_0_of_encryptions_of_zero(name: str, threads: int) -> None:
    """Section 10 of the specification, on what is there already, whatever the number of lanes, limbs and masks."""
    key = ClientKey._from_entropy(name, ENTROPY)
    params, public, seed, count = key.parameters, key.public_key(), bytes(range(32, 64)), 37
    lanes = () if params.lane_count == 1 else (params.lane_count,)
    messages = np.zeros((count, *lanes, params.polynomial_size), dtype=np.uint64)
    glwe = _engine.public_encrypt_glwe(params, public.seed, public.bodies, messages, seed)
    zeros = reference.sample_extract(params, glwe, np.zeros(1, dtype=np.uint32)).reshape(count, params.large_words)
    np.testing.assert_array_equal(public.zeros(count, threads, seed), zeros)
    words = np.random.default_rng(5).integers(0, params.modulus, zeros.shape, dtype=np.uint64).astype(zeros.dtype)
    words[0], words[1] = 0, params.modulus - 1
    kept = words.copy()
    summed = (words.astype(np.uint64) + zeros) % np.uint64(params.modulus)
    np.testing.assert_array_equal(public.add_zeros(words, threads, seed), summed)
    np.testing.assert_array_equal(words, kept)
    assert public.zeros(0).shape == (0, params.large_words)


@pytest.mark.parametrize("seed", [None, bytes(range(96, 128))], ids=["entropy", "seeded"])
def test_masks_of_the_zeros_are_uniform(key: ClientKey, seed: bytes | None) -> None:
    params = key.parameters
    masks = key.public_key().zeros(256, seed=seed)[:, :-1]
    assert abs(uniformity(masks, params.modulus)) < SIGMAS


@pytest.mark.parametrize("name", ["toy", "toy_two_limb"])
def test_a_result_stays_right_and_gets_other_masks_each_time(name: str) -> None:
    key = ClientKey._from_entropy(name, ENTROPY)
    session = Session(EvaluationKeys.from_bytes(key.evaluation_keys().to_bytes()))  # as a server has them
    messages = np.arange(700).reshape(7, 100) % 4
    result = session.bootstrap(key.encrypt(messages), [1, 2, 3, 0])
    before = result.words.copy()
    first, second = session.rerandomise(result), session.rerandomise(result)
    np.testing.assert_array_equal(result.words, before)
    for answer in (first, second):
        assert (answer.shape, answer.encoding, answer.key_id) == (result.shape, result.encoding, result.key_id)
        assert answer.words.max() < key.parameters.modulus
        np.testing.assert_array_equal(key.decrypt(answer), (messages + 1) % 4)
    different = np.mean(
        [np.mean(a.words[..., :-1] != b.words[..., :-1]) for a, b in ((first, second), (first, result))]
    )
    assert different > 0.9999  # two uniform words are equal once in 10^8
    np.testing.assert_array_equal(key.decrypt(session.bootstrap(first, [1, 2, 3, 0])), (messages + 2) % 4)  # goes on
    added = noise.rerandomisation_variance(key.parameters) / noise.blind_rotation_variance(key.parameters)
    # Independent, or bounded as if it was not.
    assert math.sqrt(1 + added) - 1e-9 <= first.weight_norm <= 1 + math.sqrt(added) + 1e-9
    phases = [key.phases(each).astype(np.int64) for each in (first, result)]
    shift = (phases[0] - phases[1] + key.parameters.modulus // 2) % key.parameters.modulus - key.parameters.modulus // 2
    model = noise.rerandomisation_variance(key.parameters) * key.parameters.modulus**2
    spread = KEY_TOLERANCE[name] + SIGMAS * math.sqrt(2 / shift.size)
    assert 1 - spread < float(np.mean(shift.astype(float) ** 2)) / model < 1 + spread


def test_results_of_another_key_are_refused() -> None:
    key, other = ClientKey.generate("toy"), ClientKey.generate("toy")
    with pytest.raises(KeyMismatchError):
        Session(key.evaluation_keys()).rerandomise(other.encrypt([1]))


def test_a_badly_made_public_key_is_told_one_word_of_its_randomness() -> None:
    """Bodies of a client who lies: B = q/4 at degree 0 would tell a server's u coefficient by coefficient, if one u served several answers."""
    key = ClientKey._from_entropy("toy_two_limb", ENTROPY)
    params = key.parameters
    honest = key.evaluation_keys()
    bodies = np.zeros_like(honest.public_bodies)
    bodies[0, 0] = params.modulus // 8
    keys = EvaluationKeys(
        params, honest.seed, honest.bootstrap_bodies, honest.keyswitch_bodies, honest.public_seed, bodies, key.key_id
    )
    zeros = keys.public_key.zeros(512)
    told = np.rint(centred_words(zeros[:, -1], params.modulus) * 8 / params.modulus).astype(int)  # u_0[0] of each
    assert set(told.tolist()) == {-1, 0, 1}
    # Every answer has another u: what one tells of its own says nothing about the next.
    assert abs(float(np.corrcoef(told[1:], told[:-1])[0, 1])) < SIGMAS / math.sqrt(511)
    assert len({row[:-1].tobytes() for row in zeros}) == 512


def centred(key: ClientKey, ciphertexts: Ciphertexts) -> np.ndarray:
    return centred_words(key.phases(ciphertexts), key.parameters.modulus).astype(np.float64)


def centred_words(words: np.ndarray, modulus: int) -> np.ndarray:
    signed = words.astype(np.int64)
    return np.where(signed > modulus // 2, signed - modulus, signed)
