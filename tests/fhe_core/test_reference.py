"""The slow reference against plain-Python readings of docs/reference/specification.md, and end to end: it decrypts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.arrays.lanes import lane_axis
from cloakwork.fhe_core.errors import ShapeError

ENTROPY = hashlib.sha256(b"tests/fhe_core/test_reference.py").digest()
reference = _engine.reference
NAMES = _engine.parameter_set_names()
TOYS = [n for n in NAMES if n.startswith("toy") and _engine.parameter_set(n).party_count == 1]  # test_threshold.py
FAMILIES = ("toy", "toy_two_limb", "toy_raised", "toy_ap")  # one of each family of kernels
LARGEST_RING = 512  # a product of polynomials takes N^2 steps here, and a rotation of these sets 100 to 600 products
TWO_LIMBS = next(n for n in NAMES if _engine.parameter_set(n).limb_count == 2)


def word_dtype(params: _engine.ParameterSet) -> type:
    return np.uint32 if params.limb_count == 1 else np.uint64


class Keys:
    """One key of a small set, expanded."""

    def __init__(self, name: str) -> None:
        self.params = _engine.parameter_set(name)
        self.secret = _engine.SecretKey.generate(self.params, ENTROPY)
        self.evaluation_keys = self.secret.evaluation_keys()
        seed, bootstrap_bodies, keyswitch_bodies = self.evaluation_keys
        self.bootstrap_key = reference.expand_bootstrap_key(self.params, seed, bootstrap_bodies)
        self.keyswitch_key = reference.expand_keyswitch_key(self.params, seed, keyswitch_bodies)

    def bootstrap(self, lwe: np.ndarray, tables: np.ndarray, index: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        p = self.params
        small = reference.keyswitch(p, self.keyswitch_key, lwe)
        switched = reference.modulus_switch(p, small)
        rotated = self.rotate(switched, tables, index)
        nu = p.extension_factor
        entries = [
            reference.sample_extract(p, rotated[:, c % nu].copy(), np.array([c // nu], dtype=np.uint32))
            for c in coefficients
        ]
        return np.concatenate(entries, axis=1)

    def rotate(self, switched: np.ndarray, tables: np.ndarray, index: np.ndarray) -> np.ndarray:
        """[B, nu, k + r, N], of sets whose table is one accumulator too."""
        return self.in_parts(reference.blind_rotate(self.params, self.bootstrap_key, switched, tables, index))

    def in_parts(self, rotated: np.ndarray) -> np.ndarray:
        assert rotated.ndim == (3 if self.params.extension_factor == 1 else 4)
        return rotated.reshape(len(rotated), self.params.extension_factor, *rotated.shape[-2:])


def interleaved(parts: np.ndarray) -> np.ndarray:
    """[.., nu, N] -> [.., nu N]: entry c of a table is coefficient c // nu of part c % nu."""
    return parts.swapaxes(-2, -1).reshape(*parts.shape[:-2], -1)


def sets(largest_ring: int) -> list[Any]:
    """Every toy set in the tier that runs its tests: those of larger rings in the last one."""
    tiers = {
        name: "release" if _engine.parameter_set(name).polynomial_size > largest_ring else "all"
        for name in TOYS
        if name not in FAMILIES
    }
    return [*FAMILIES, *(pytest.param(name, marks=pytest.mark.tier(tier)) for name, tier in tiers.items())]


@pytest.fixture(scope="module", params=sets(4096))
def keys(request: pytest.FixtureRequest) -> Keys:
    """Of every set, for what takes no rotation."""
    return Keys(request.param)


@pytest.fixture(scope="module", params=sets(LARGEST_RING))
def rotation_keys(request: pytest.FixtureRequest) -> Keys:
    return Keys(request.param)


# --- section 1 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["toy", TWO_LIMBS])
def test_polynomial_multiply(name: str) -> None:
    p = _engine.parameter_set(name)
    n, q, dtype = p.polynomial_size, p.modulus, word_dtype(p)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, q, n, dtype=np.uint64).astype(dtype) for _ in range(2))
    a[:2] = q - 1, 0
    # The integer product of the packed polynomials, folded with X^N = -1.
    width = 2 * q.bit_length() + 16
    pack = [sum(int(c) << (width * i) for i, c in enumerate(x)) for x in (a, b)]
    product = pack[0] * pack[1]
    coefficients = [product >> (width * i) & ((1 << width) - 1) for i in range(2 * n)]
    expected = [(coefficients[i] - coefficients[i + n]) % q for i in range(n)]
    assert reference.polynomial_multiply(p, a, b).tolist() == expected


def test_x_to_the_n_is_minus_one() -> None:
    p = _engine.parameter_set("toy")
    a = np.zeros(p.polynomial_size, dtype=np.uint32)
    a[p.polynomial_size // 2] = 1
    product = reference.polynomial_multiply(p, a, a)
    assert product[0] == p.modulus - 1
    assert not product[1:].any()


# --- section 2 --------------------------------------------------------------------------------------------------------


def keyswitch_digits(v: int, base_log: int, level_count: int) -> list[int]:
    """Section 2, step 3, most significant first."""
    base, lowest = 2**base_log, v & 1
    digits: list[int] = []
    for level in reversed(range(level_count)):
        r, v = v % base, v // base
        tie_breaker = v >> (base_log - 1) & 1 if level > 0 else lowest
        down = r > base // 2 or (r == base // 2 and tie_breaker == 1)
        digits.insert(0, r - base if down else r)
        v += down
    return digits


def test_keyswitch_is_the_sum_of_the_specification(keys: Keys) -> None:
    """Random keys and ciphertexts, so that every word matters."""
    p = keys.params
    base_log, level_count = p.keyswitch_gadget
    w, q, total = p.keyswitch_modulus_log2, p.modulus, base_log * level_count
    rng = np.random.default_rng(3)
    key = rng.integers(0, 2**w, (p.large_dimension, level_count, p.small_words), dtype=np.uint32)
    lwe = rng.integers(0, q, (2, p.large_words), dtype=np.uint64)
    lwe[0, :4] = 0, q - 1, q // 2, q // 2 + 1
    out = reference.keyswitch(p, key, lwe.astype(word_dtype(p)))
    for b in range(2):
        switched = [((int(x) << w) + q // 2) // q % 2**w for x in lwe[b]]
        half = 2 ** (w - total - 1) if w > total else 0
        digits = [
            keyswitch_digits(((y + half) >> (w - total)) % 2**total, base_log, level_count)
            for y in switched[: p.large_dimension]
        ]
        assert all(abs(d) <= 2 ** (base_log - 1) for row in digits for d in row)
        # Up to the dropped carry, the digits represent the value.
        for row, y in zip(digits, switched, strict=False):
            value = sum(d * 2 ** (base_log * (level_count - 1 - level)) for level, d in enumerate(row))
            assert (value - ((y + half) >> (w - total))) % 2**total == 0
        expected = -np.einsum("il,ilj->j", np.array(digits), key.astype(np.int64))
        expected[p.lwe_dimension :] += switched[p.large_dimension :]
        assert np.array_equal(out[b], expected % 2**w)


@pytest.mark.parametrize(("base_log", "level_count"), [(1, 12), (2, 6), (2, 8), (3, 4), (4, 3)])
def test_keyswitch_digits_are_unbiased(base_log: int, level_count: int) -> None:
    """Over all values each digit sums to zero; the top one, whose carry is dropped, to half a base: a mean below 2^-10."""
    values = range(2 ** (base_log * level_count))
    sums = np.sum([keyswitch_digits(v, base_log, level_count) for v in values], axis=0)
    assert not sums[1:].any()
    assert abs(sums[0]) == 2 ** (base_log - 1)


def test_keyswitch_keeps_the_message(keys: Keys) -> None:
    p = keys.params
    words = np.arange(8 * p.lane_count, dtype=np.uint64) % np.uint64(8) * np.uint64(p.modulus // 8)
    words = words.reshape(8, *lane_axis(p))
    small = reference.keyswitch(p, keys.keyswitch_key, keys.secret.encrypt_lwe(words))
    phase = keys.secret.phase_small(small) / 2**p.keyswitch_modulus_log2
    error = (phase - words / p.modulus + 0.5) % 1 - 0.5
    assert np.abs(error).max() < 1 / 32  # the words are 1/8 apart


# --- section 3 --------------------------------------------------------------------------------------------------------


def test_modulus_switch(keys: Keys) -> None:
    p = keys.params
    two_n = 2 * p.table_size
    h = p.keyswitch_modulus_log2 - two_n.bit_length() + 1
    # The mean of a coefficient of the small key: of blocks of l that are zero or have a single 1, of uniform bits, of -1, 0, 1.
    blocks = {"block_3": 3, "block_4": 4, "block_6": 6, "block_8": 8}
    mean = Fraction(1, blocks.get(p.cmux, 1) + 1) if p.lwe_secret == "binary" else Fraction(0)
    rng = np.random.default_rng(4)
    small = rng.integers(0, 2**p.keyswitch_modulus_log2, (50, p.small_words), dtype=np.uint32)
    small[0] = 0
    small[1] = 2**p.keyswitch_modulus_log2 - 1
    small[2] = 2 ** (h - 1)
    small[3] = 2 ** (h - 1) - 1
    out = reference.modulus_switch(p, small)
    for row, switched in zip(small.tolist(), out.tolist(), strict=True):
        masks, bodies = row[: p.lwe_dimension], row[p.lwe_dimension :]
        t = [(a + 2 ** (h - 1)) // 2**h for a in masks]
        error = sum(a - x * 2**h for a, x in zip(masks, t, strict=True))
        t_b = [math.floor((b - mean * error) / Fraction(2**h) + Fraction(1, 2)) for b in bodies]
        assert switched == [x % two_n for x in [*t, *t_b]]


# --- section 6 --------------------------------------------------------------------------------------------------------


def test_trivial_rotation(rotation_keys: Keys) -> None:
    """All masks zero: each body of the result is X^(-t_b) * LUT exactly, with zero masks."""
    keys, p = rotation_keys, rotation_keys.params
    if p.accumulator == "ntru":
        pytest.skip(
            "its table becomes an accumulator by a product with a key entry: test_ntru.py compares within noise"
        )
    n, q = p.table_size, p.modulus
    table = np.random.default_rng(5).integers(0, q, (1, n), dtype=np.uint64).astype(word_dtype(p))
    rotations = np.array([0, 1, n - 1, n, n + 1, 2 * n - 1])
    switched = np.zeros((len(rotations), p.small_words), dtype=np.uint32)
    for lane in range(p.lane_count):
        switched[:, p.lwe_dimension + lane] = np.roll(rotations, lane)
    out = keys.rotate(switched, table, np.zeros(len(rotations), dtype=np.uint32))
    assert not out[:, :, : p.glwe_dimension].any()
    wide = table[0].astype(object)
    negacyclic = np.concatenate([wide, -wide % q, wide, -wide % q])
    for lane in range(p.lane_count):
        for b, t in enumerate(np.roll(rotations, lane)):
            assert interleaved(out[b, :, p.glwe_dimension + lane]).tolist() == negacyclic[t : t + n].tolist()


def test_rotation_by_the_phase(rotation_keys: Keys) -> None:
    check_rotation_by_the_phase(rotation_keys, rotation_keys.rotate)


def test_the_cpu_rotates_by_the_phase(keys: Keys) -> None:
    """On the large rings too, where the reference takes its time."""
    session = _engine.CpuSession(_engine.CpuKey(keys.params, *keys.evaluation_keys), threads=1)

    def rotate(switched: np.ndarray, tables: np.ndarray, index: np.ndarray) -> np.ndarray:
        return keys.in_parts(session.blind_rotate(switched, tables, index))

    check_rotation_by_the_phase(keys, rotate)


def check_rotation_by_the_phase(keys: Keys, rotate: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> None:
    """Random exponents: the phase of the result is X^(-phase) * LUT up to noise, in every coefficient of every lane."""
    p = keys.params
    n, q = p.table_size, p.modulus
    rng = np.random.default_rng(6)
    switched = rng.integers(0, 2 * n, (3, p.small_words), dtype=np.uint32)
    tables = rng.integers(0, q, (2, n), dtype=np.uint64).astype(word_dtype(p))
    index = np.array([0, 1, 1], dtype=np.uint32)
    rotated = rotate(switched, tables, index)
    parts = keys.secret.phase_glwe(rotated.reshape(-1, *rotated.shape[-2:]))
    by_lane = parts.reshape(*rotated.shape[:2], p.lane_count, -1)
    phases = interleaved(by_lane.swapaxes(1, 2))  # [B, lane, nu N]
    small_bytes = p.lane_count * p.lwe_dimension
    small_key = np.frombuffer(keys.secret.export()[:small_bytes], dtype=np.int8).astype(np.int64)
    for b, lane in np.ndindex(3, p.lane_count):
        mask, body = switched[b, : p.lwe_dimension].astype(np.int64), int(switched[b, p.lwe_dimension + lane])
        t = int(body - mask @ small_key.reshape(p.lane_count, -1)[lane]) % (2 * n)
        wide = tables[index[b]].astype(np.int64)
        expected = np.concatenate([wide, -wide, wide, -wide])[t : t + n]
        error = ((phases[b, lane].astype(np.int64) - expected) % q + q // 2) % q - q // 2
        assert np.abs(error).max() < q / 64
        assert np.abs(error).max() > 0, "a key without noise"


# --- section 7 --------------------------------------------------------------------------------------------------------


def test_extraction_takes_the_coefficient_of_the_phase(keys: Keys) -> None:
    p = keys.params
    n = p.polynomial_size
    glwe = np.random.default_rng(7).integers(0, p.modulus, (3, p.component_count, n), dtype=np.uint64)
    glwe = glwe.astype(word_dtype(p))
    coefficients = np.array([0, 1, n // 2, n - 1], dtype=np.uint32)
    lwe = reference.sample_extract(p, glwe, coefficients)
    assert lwe.shape == (3, 4, p.large_words)
    phases = keys.secret.phase_lwe(lwe.reshape(12, -1)).reshape(3, 4, p.lane_count)
    whole = keys.secret.phase_glwe(glwe).reshape(3, p.lane_count, n)
    assert np.array_equal(phases, whole[:, :, coefficients].swapaxes(1, 2))


# --- the whole bootstrap ----------------------------------------------------------------------------------------------


def encode(params: _engine.ParameterSet, message: np.ndarray, bits: int) -> np.ndarray:
    q = params.modulus
    words = [((int(m) * q + 2**bits) >> (bits + 1)) % q for m in message.ravel()]
    return np.array(words, dtype=np.uint64).reshape(message.shape)


def decode(params: _engine.ParameterSet, phases: np.ndarray, bits: int) -> np.ndarray:
    q = params.modulus
    messages = [((int(x) * 2 ** (bits + 1) + q // 2) // q) % 2 ** (bits + 1) for x in phases.ravel()]
    return np.array(messages).reshape(phases.shape)


def table_polynomial(params: _engine.ParameterSet, outputs: np.ndarray) -> np.ndarray:
    """Section 8: 2^p torus words as a polynomial."""
    n, q = params.table_size, params.modulus
    slot = n // len(outputs)
    table = [int(outputs[(j + slot // 2) // slot]) if j < n - slot // 2 else -int(outputs[0]) % q for j in range(n)]
    return np.array(table, dtype=word_dtype(params))


def test_bootstrap_with_tables(rotation_keys: Keys) -> None:
    """Two tables in one batch; messages with the padding bit unset (f) and set (-f), others in every lane.

    Of sets with several accumulators, which take their time, every fifth: each table at a message of each half.
    """
    keys, p, bits = rotation_keys, rotation_keys.params, 2
    functions = [np.array([1, 3, 0, 2]), np.array([2, 2, 1, 0])]
    tables = np.stack([table_polynomial(p, encode(p, f, bits)) for f in functions])
    numbers = np.arange(0, 16, 1 if p.extension_factor == 1 else 5)
    messages = np.stack([(numbers + 3 * lane) % 8 for lane in range(p.lane_count)], axis=1)
    index = (numbers // 8).astype(np.uint32)
    lwe = keys.secret.encrypt_lwe(encode(p, messages.reshape(-1, *lane_axis(p)), bits))
    out = keys.bootstrap(lwe, tables, index, np.array([0], dtype=np.uint32))
    expected = [
        [int(functions[i][m]) if m < 4 else -int(functions[i][m - 4]) % 8 for m in row]
        for row, i in zip(messages.tolist(), index, strict=True)
    ]
    assert decode(p, keys.secret.phase_lwe(out[:, 0].copy()).reshape(len(numbers), -1), bits).tolist() == expected


def test_a_bootstrap_is_the_four_calls(rotation_keys: Keys) -> None:
    keys, p = rotation_keys, rotation_keys.params
    rng = np.random.default_rng(2)
    lwe = rng.integers(0, p.modulus, (1, p.large_words), dtype=np.uint64).astype(word_dtype(p))
    table = rng.integers(0, p.modulus, p.table_size, dtype=np.uint64).astype(word_dtype(p))
    for coefficient in sorted({0, p.extension_factor - 1, p.table_size - 1}):
        stages = keys.bootstrap(lwe, table[None], np.zeros(1, np.uint32), np.array([coefficient], np.uint32))
        whole = reference.bootstrap(p, keys.keyswitch_key, keys.bootstrap_key, lwe, table, coefficient)
        np.testing.assert_array_equal(whole, stages[:, 0])
    with pytest.raises(ShapeError, match="coefficient"):
        reference.bootstrap(p, keys.keyswitch_key, keys.bootstrap_key, lwe, table, p.table_size)


def test_one_rotation_serves_several_thresholds(rotation_keys: Keys) -> None:
    """Coefficient j of the rotated table is the look-up at phase + j."""
    keys, p, bits = rotation_keys, rotation_keys.params, 2
    table = table_polynomial(p, encode(p, np.array([0, 1, 2, 3]), bits))[None]
    slot = p.table_size // 4
    coefficients = np.array([0, slot, 2 * slot], dtype=np.uint32)
    messages = np.stack([(np.arange(2) + lane) % 2 for lane in range(p.lane_count)], axis=1)
    lwe = keys.secret.encrypt_lwe(encode(p, messages.reshape(2, *lane_axis(p)), bits))
    out = keys.bootstrap(lwe, table, np.zeros(2, dtype=np.uint32), coefficients)
    for b, row in enumerate(messages):
        decoded = decode(p, keys.secret.phase_lwe(out[b]).reshape(3, -1), bits)
        assert decoded.tolist() == [(row + shift).tolist() for shift in range(3)]


# --- arguments --------------------------------------------------------------------------------------------------------


def test_bad_arguments() -> None:
    keys = Keys("toy")
    p = keys.params
    n = p.polynomial_size
    switched = np.zeros((2, p.lwe_dimension + 1), dtype=np.uint32)
    tables = np.zeros((1, n), dtype=np.uint32)
    index = np.zeros(2, dtype=np.uint32)
    with pytest.raises(ShapeError, match=r"table_index: expected every value in \[0, 1\)"):
        reference.blind_rotate(p, keys.bootstrap_key, switched, tables, index + 1)
    with pytest.raises(ShapeError, match=f"switched: expected every value in .0, {2 * n}"):
        reference.blind_rotate(p, keys.bootstrap_key, switched + 2 * n, tables, index)
    with pytest.raises(ShapeError, match="bootstrap_key: expected"):
        reference.blind_rotate(p, keys.bootstrap_key[:-1].copy(), switched, tables, index)
    with pytest.raises(ShapeError, match=f"coefficients: expected every value in .0, {n}"):
        glwe = np.zeros((1, p.glwe_dimension + 1, n), dtype=np.uint32)
        reference.sample_extract(p, glwe, np.array([n], dtype=np.uint32))
