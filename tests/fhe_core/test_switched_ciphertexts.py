"""Results in few bits: the words of the specification, bytes that are canonical, values that stay right, noise of the model."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest

from cloakwork.fhe_core import _engine, noise, wire
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError, SerializationError, ShapeError
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts, load_ciphertexts, load_results, switched_words

SETS = ("toy", "toy_two_limb")
BITS = (1, 5, 8, 13, 15, 17, 20, 31, 32)
ENTROPY = bytes(range(3, 35))
PURPOSE = bytes(range(200, 232))


@pytest.fixture(scope="module", params=SETS)
def key(request: pytest.FixtureRequest) -> ClientKey:
    return ClientKey._from_entropy(request.param, ENTROPY)


@pytest.mark.parametrize("bits", BITS)
def test_words_are_those_of_the_specification_there_and_back(key: ClientKey, bits: int) -> None:
    modulus, random = key.parameters.modulus, np.random.default_rng(bits)
    words = random.integers(0, modulus, (3, 2, key.parameters.large_dimension + 1), dtype=np.uint64)
    words[0, 0, :4] = [0, 1, modulus - 1, modulus // 2]
    full = Ciphertexts.from_words(key.parameters, words.astype(key.encrypt(0).words.dtype), key_id=key.key_id)
    switched = SwitchedCiphertexts.switch(full, bits)
    exact = words.astype(object)
    np.testing.assert_array_equal(switched.words, (((exact << bits) + modulus // 2) // modulus) % (1 << bits))
    back = (switched.words.astype(object) * modulus + (1 << bits - 1) >> bits) % modulus
    np.testing.assert_array_equal(switched.expand().words, back)
    data = switched.to_bytes()
    assert len(data) == wire.object_bytes(switched.kind, key.parameters, False, (3, 2), bits)
    assert len(data) <= wire.HEADER_BYTES + 16 + (words.size * bits + 7) // 8 + wire.CHECKSUM_BYTES
    read = SwitchedCiphertexts.from_bytes(data)
    np.testing.assert_array_equal(read.words, switched.words)
    assert (read.to_bytes(), read.word_bits, read.shape, read.key_id) == (data, bits, (3, 2), key.key_id)
    for load in (load_results, load_ciphertexts):
        np.testing.assert_array_equal(load(data).words, switched.expand().words)


@pytest.mark.parametrize("bits", BITS)
def test_bytes_of_words_are_their_bits_from_the_lowest_on(bits: int) -> None:
    random = np.random.default_rng(bits)
    for count in (0, 1, 2, 7, 8, 9, 31, 333):
        words = random.integers(0, 1 << bits, count, dtype=np.uint64).astype(np.uint32)
        number = sum(int(word) << bits * place for place, word in enumerate(words))
        assert _engine.pack_words(words, bits) == number.to_bytes((count * bits + 7) // 8, "little")


def test_the_engine_refuses_what_it_would_write_wrongly(key: ClientKey) -> None:
    words = np.full((1, 4), key.parameters.modulus - 1, dtype=key.encrypt(0).words.dtype)
    with pytest.raises(ShapeError, match="32"):
        _engine.pack_words(np.array([32], dtype=np.uint32), 5)
    for bits in (0, -1, 33, 64):
        with pytest.raises(ParameterError, match="1 to 32"):
            _engine.pack_words(np.zeros(1, dtype=np.uint32), bits)
        with pytest.raises(ParameterError, match="1 to 32"):
            _engine.switch_words(key.parameters, words, bits)
    with pytest.raises(ShapeError, match="expected every value"):
        _engine.switch_words(key.parameters, words + words.dtype.type(1), 8)
    with pytest.raises(ParameterError, match="threads"):
        _engine.switch_words(key.parameters, words, 8, 0)


@pytest.mark.parametrize("bits", BITS)
def test_words_beside_the_border_of_two_results(key: ClientKey, bits: int) -> None:
    """Where a quotient that is a little off would round to the other side, and on several threads."""
    modulus, random = key.parameters.modulus, np.random.default_rng(bits)
    results = random.integers(0, 1 << bits, 20_000)
    borders = [(int(result) * modulus + modulus // 2) >> bits for result in results]
    words = np.array([(border + step) % modulus for border in borders for step in (-1, 0, 1, 2)], dtype=np.uint64)
    rows = words.reshape(-1, 8).astype(key.encrypt(0).words.dtype)
    exact = (((rows.astype(object) << bits) + modulus // 2) // modulus) % (1 << bits)
    for threads in (1, 3):
        np.testing.assert_array_equal(switched_words(key.parameters, rows, bits, threads), exact)


def test_a_purpose_goes_with_them(key: ClientKey) -> None:
    full = key.encrypt([1, 2]).with_purpose(PURPOSE)
    switched = SwitchedCiphertexts.switch(full, 11)
    assert switched.purpose == PURPOSE == switched.expand().purpose
    data, plain = switched.to_bytes(), SwitchedCiphertexts.switch(full.with_purpose(None), 11).to_bytes()
    assert (
        len(data) == len(plain) + 32 == wire.object_bytes(switched.kind, key.parameters, False, (2,), 11, purpose=True)
    )
    assert data[120:152] == PURPOSE and data[152:-32] == plain[120:-32]
    read = SwitchedCiphertexts.from_bytes(data)
    assert (read.purpose, read.word_bits, read.to_bytes()) == (PURPOSE, 11, data)
    assert wire.peek(data) == replace(wire.peek(plain), purpose=PURPOSE)
    wire.check_words(io.BytesIO(data), wire.peek(data))
    assert (
        load_results(data).purpose == load_ciphertexts(data).purpose == PURPOSE and load_results(plain).purpose is None
    )
    other = read.with_purpose(bytes(32))
    assert (other.purpose, other.word_bits, other.with_purpose(None).to_bytes()) == (bytes(32), 11, plain)
    np.testing.assert_array_equal(key.decrypt(other), [1, 2])


@pytest.mark.parametrize("bits", [12, 20])
def test_rounding_has_the_noise_of_the_model(key: ClientKey, bits: int) -> None:
    """Fixed key and fixed words: the rounding errors of uniform masks. Six standard deviations of what is measured, and what one key's weight
    leaves open of E[S^2]."""
    params, count = key.parameters, 4000
    words = np.random.default_rng(1).integers(0, params.modulus, (count, params.large_dimension + 1), dtype=np.uint64)
    full = Ciphertexts.from_words(params, words.astype(key.encrypt(0).words.dtype), key_id=key.key_id)
    errors = (key.phases(SwitchedCiphertexts.switch(full, bits)) / params.modulus) - key.phases(full) / params.modulus
    errors -= np.rint(errors)
    model = noise.word_rounding_variance(params, bits)
    spread = 6 * math.sqrt(2 / count) + 6 / math.sqrt(params.large_dimension)
    assert 1 - spread < float(np.mean(errors**2)) / model < 1 + spread
    assert abs(float(errors.mean())) < 6 * math.sqrt(model / count) + 2.0**-bits


def test_values_stay_right(key: ClientKey) -> None:
    messages = np.arange(12).reshape(3, 4) % 4
    switched = SwitchedCiphertexts.switch(key.encrypt(messages), 12)
    np.testing.assert_array_equal(key.decrypt(switched), messages)
    np.testing.assert_array_equal(key.decrypt(load_results(key.encrypt(messages).to_bytes())), messages)


@pytest.mark.parametrize("bits", [0, 33, -1])
def test_other_numbers_of_bits_are_refused(key: ClientKey, bits: int) -> None:
    with pytest.raises(ParameterError, match=f"word_bits: expected 1 to 32, got {bits}"):
        SwitchedCiphertexts.switch(key.encrypt([0]), bits)


def test_damaged_objects_are_refused(key: ClientKey) -> None:
    count = key.parameters.large_dimension + 1
    of_a_model = SwitchedCiphertexts.switch(key.encrypt([1]).with_purpose(PURPOSE), 5).to_bytes()
    data = SwitchedCiphertexts.switch(key.encrypt([1]), 5).to_bytes()
    assert count * 5 % 8, "bits are left over in the last byte"
    field = 106
    for place, value, message in [
        (field, 0, "words of 1 to 32 bits"),
        (field, 33, "words of 1 to 32 bits"),
        (field + 1, 1, "words of 1 to 32 bits"),
        (7, 1, "there is no other"),
        (field, 6, "the counts of the header ask for"),
        (7, 2, "the counts of the header ask for"),  # a purpose that is not there
        (len(data) - 33, data[-33] | 0x80, "zeros after the last word"),
        (200, data[200] ^ 1, "checksum"),
    ]:
        broken = bytearray(data)
        broken[place] = value
        with pytest.raises(SerializationError, match=message):
            SwitchedCiphertexts.from_bytes(bytes(broken))
    for place, value, message in [
        (7, 0, "the counts of the header"),
        (len(of_a_model) - 33, of_a_model[-33] | 0x80, "zeros after"),
    ]:
        broken = bytearray(of_a_model)
        broken[place] = value
        with pytest.raises(SerializationError, match=message):
            SwitchedCiphertexts.from_bytes(bytes(broken))
    with pytest.raises(SerializationError, match="zeros after"):
        wire.check_words(io.BytesIO(broken), wire.peek(broken))
    with pytest.raises(SerializationError, match="expected ciphertexts, got switched ciphertexts"):
        Ciphertexts.from_bytes(data)
