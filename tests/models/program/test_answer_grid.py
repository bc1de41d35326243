"""What a client checks of an answer: a server says its program's unit, and makes the ciphertexts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError, SerializationError
from cloakwork.fhe_core.parameters import parameter_set, parameter_sets, word_dtype
from cloakwork.models import zoo
from cloakwork.models.program.answers import grid_step, least_deviation, least_unit
from cloakwork.models.program.client_specification import ClientSpecification

PARAMS = parameter_set("toy_two_limb")
OUTPUTS = PARAMS.large_dimension


@pytest.fixture(scope="module")
def key() -> ClientKey:
    return ClientKey.generate(PARAMS)


def client(unit: float) -> ClientSpecification:
    """As many outputs as the ring key has coefficients."""
    ones = np.ones(OUTPUTS)
    return ClientSpecification(bytes(32), PARAMS.name, (1,), (-1.0, 1.0), 0.125, ones, 0 * ones, output_unit=unit)


def encrypted(key: ClientKey, values: np.ndarray, encoding: Encoding = Encoding.TORUS) -> Ciphertexts:
    return key.encrypt(values, encoding=encoding).with_purpose(bytes(32))


@pytest.mark.parametrize("unit", [0.0, 1 / 8])
def test_an_answer_does_not_read_the_key(key: ClientKey, unit: float) -> None:
    """Phase number i is the key's coefficient number i times Q / 8: a multiple of a unit that any exact program may have."""
    words = np.zeros((1, OUTPUTS, PARAMS.large_words), dtype=word_dtype(PARAMS))
    words[0, np.arange(OUTPUTS), np.arange(OUTPUTS)] = PARAMS.modulus - PARAMS.modulus // 8
    forged = Ciphertexts(PARAMS, words, words.shape[:2], encoding=Encoding.TORUS, key_id=key.key_id)
    with pytest.raises(SerializationError, match="do not trust this server"):
        client(unit).decrypt(key, forged.with_purpose(bytes(32)))


def test_phases_beside_the_grid_are_none_of_the_program(key: ClientKey) -> None:
    values = np.zeros((1, OUTPUTS))
    values[0, :3] = 1 / 8, -1 / 8, 1 / 8 + 0.8 / 16
    found = client(1 / 8).decrypt(key, encrypted(key, values))
    np.testing.assert_array_equal(found[0, :4], [1 / 8, -1 / 8, 1 / 8, 0])
    values[0, 5] = 1 / 16
    with pytest.raises(KeyMismatchError, match=f"1 of {OUTPUTS} numbers are none that the program gives") as refused:
        client(1 / 8).decrypt(key, encrypted(key, values))
    assert "0.06" not in str(refused.value)


def test_real_outputs_have_no_finer_digits_than_their_noise(key: ClientKey) -> None:
    values = np.random.default_rng(1).uniform(-0.25, 0.25, (1, OUTPUTS))
    answer = encrypted(key, values)
    found, exact = client(0.0).decrypt(key, answer), key.decrypt(answer)
    step = grid_step(PARAMS)
    assert not np.array_equal(found, exact) and (found / step == np.rint(found / step)).all()
    assert np.abs(found - exact).max() <= step / 2


def test_a_unit_within_the_noise_is_no_unit() -> None:
    text, least = client(1 / 8).to_json(), least_unit(PARAMS)
    for unit, taken in ((0.0, True), (1.01 * least, True), (0.99 * least, False), (1e-17, False)):
        changed = json.dumps({**json.loads(text), "output_unit": unit})
        if taken:
            assert ClientSpecification.from_json(changed).output_unit == unit
        else:
            with pytest.raises(SerializationError, match="does not leave room for"):
                ClientSpecification.from_json(changed)


def test_other_encodings_are_none_of_an_answer(key: ClientKey) -> None:
    """A Boolean decrypts to a sign of the phase."""
    messages = encrypted(key, np.zeros((1, OUTPUTS), dtype=np.int64), Encoding.MESSAGE)
    with pytest.raises(KeyMismatchError, match="fractions of the torus"):
        client(0.0).decrypt(key, messages)


def test_grids_of_every_set_lie_below_the_noise_of_its_answers() -> None:
    for params in parameter_sets():
        fresh, bits = noise.rerandomisation_variance(params) ** 0.5, 12
        assert grid_step(params) <= fresh / 2 and least_unit(params) == 16 * fresh
        assert grid_step(params) <= grid_step(params, bits) <= least_deviation(params, bits) / 2


@pytest.mark.parametrize("name", ["iris-tree", "wine-boosting", "digits-logistic", "mnist-mlp-1x30"])
def test_models_of_the_zoo_pass(name: str) -> None:
    """Two of them are on sets for exact look-ups without being exact: a set does not say it."""
    specification = zoo.load_model(name).client
    assert ClientSpecification.from_json(specification.to_json()).output_unit == specification.output_unit
    assert replace(specification, output_unit=0.0).checked()
