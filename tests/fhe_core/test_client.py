"""The secret side: keys, encryption, phases, public key, and every row of the evaluation keys.

Noise is checked on both sides: too much breaks correctness, too little breaks security. A bound fails by chance with
probability below 1e-6 (4.9 standard deviations, two-sided), unless stated otherwise.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import CancelledError, ParameterError, SerializationError, ShapeError

Z_LIMIT = 4.9
ENTROPY = hashlib.sha256(b"tests/fhe_core/test_client.py").digest()
reference = _engine.reference


def smallest_sets() -> list[str]:
    """The set with the smallest bootstrap key of each (cmux, limbs, raised, ring secret), so that every code path is taken."""
    chosen: dict[tuple[str, int, bool, str], tuple[int, str]] = {}
    for name in _engine.parameter_set_names():
        p = _engine.parameter_set(name)
        if p.party_count > 1:  # test_threshold.py
            continue
        kind, entry = (p.cmux, p.limb_count, p.raised, p.glwe_secret), (p.bootstrap_key_body_words, name)
        chosen[kind] = min(chosen.get(kind, entry), entry)
    return sorted(name for _, name in chosen.values())


SETS = smallest_sets()
FAMILIES = ("toy", "toy_ap", "toy_raised", "toy_two_limb")


def secrets(key: _engine.SecretKey) -> tuple[np.ndarray, np.ndarray]:
    """(small key [n], large key [k, N]) as int64."""
    p = key.params
    coefficients = np.frombuffer(key.export(), dtype=np.int8).astype(np.int64)
    return coefficients[: p.lwe_dimension], coefficients[p.lwe_dimension :].reshape(p.glwe_dimension, p.polynomial_size)


def centred(values: np.ndarray, modulus: int) -> np.ndarray:
    values = values.astype(np.int64) % modulus
    return np.where(values > (modulus - 1) // 2, values - modulus, values)


def assert_noise(noise: np.ndarray, sigma: float) -> None:
    """Mean 0 and standard deviation sigma inside the confidence intervals of Gaussian draws; no outlier."""
    count = noise.size
    assert abs(noise.mean()) < Z_LIMIT * sigma / math.sqrt(count)
    assert abs(noise.var() / sigma**2 - 1) < Z_LIMIT * math.sqrt(2 / count)
    assert np.abs(noise).max() < 10 * sigma  # probability below 1e-15 for 1e8 draws


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in FAMILIES else pytest.mark.tier("all")) for name in SETS],
)
def key(request: pytest.FixtureRequest) -> _engine.SecretKey:
    return _engine.SecretKey.generate(_engine.parameter_set(request.param), ENTROPY)


@pytest.fixture(scope="module")
def evaluation_keys(key: _engine.SecretKey) -> tuple[bytes, np.ndarray, np.ndarray]:
    return key.evaluation_keys()


def torus_words(params: _engine.ParameterSet, *shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, params.modulus, shape, dtype=np.uint64)


def word_dtype(params: _engine.ParameterSet) -> type:
    return np.uint32 if params.limb_count == 1 else np.uint64


# --- keys -------------------------------------------------------------------------------------------------------------


def test_key_coefficients_have_their_distribution(key: _engine.SecretKey) -> None:
    p = key.params
    small, large = secrets(key)
    if p.structured_secret:
        blocks = small.reshape(p.step_count, -1).sum(axis=1)  # zero or a single 1, every value as likely as the others
        share = 1 / (p.keys_per_step + 1)
        assert set(np.unique(small)) <= {0, 1} and blocks.max() <= 1
        assert abs((blocks == 0).sum() - share * p.step_count) < Z_LIMIT * math.sqrt(p.step_count * share * (1 - share))
        checked = [(large, p.glwe_secret)]
    elif p.lwe_secret == "gaussian":
        assert np.abs(small).max() <= 9 and len(np.unique(small)) > 2
        assert abs((small.astype(float) ** 2).mean() - 1) < Z_LIMIT * math.sqrt(2 / small.size)
        checked = [(large, p.glwe_secret)]
    else:
        checked = [(small, p.lwe_secret), (large, p.glwe_secret)]
    for coefficients, kind in checked:
        values = {"binary": [0, 1], "ternary": [-1, 0, 1], "quinary": [-2, -1, 0, 1, 2]}[kind]
        share, count = 1 / len(values), coefficients.size
        assert set(np.unique(coefficients)) <= set(values)
        for value in values:
            assert abs((coefficients == value).sum() - share * count) < Z_LIMIT * math.sqrt(count * share * (1 - share))


def test_export_and_restore(key: _engine.SecretKey) -> None:
    restored = _engine.SecretKey.restore(key.params, key.export())
    assert restored.export() == key.export()
    assert restored.params == key.params
    words = torus_words(key.params, 3)
    ciphertexts = restored.encrypt_lwe(words)
    assert np.array_equal(restored.phase_lwe(ciphertexts), key.phase_lwe(ciphertexts))


def test_restore_refuses_other_lengths_and_values(key: _engine.SecretKey) -> None:
    data = key.export()
    for wrong in (data[:-1], data + b"\x00", b""):
        with pytest.raises(SerializationError, match=f"expected {len(data)} bytes"):
            _engine.SecretKey.restore(key.params, wrong)
    for position in (0, len(data) - 1):
        altered = bytearray(data)
        altered[position] = 10
        with pytest.raises(SerializationError, match="expected coefficients in"):
            _engine.SecretKey.restore(key.params, bytes(altered))


def test_binary_small_key_refuses_minus_one() -> None:
    p = _engine.parameter_set(next(n for n in SETS if _engine.parameter_set(n).lwe_secret == "binary"))
    data = bytearray(_engine.SecretKey.generate(p).export())
    data[0] = 255
    with pytest.raises(SerializationError, match=r"small key: expected coefficients in \[0, 1\]"):
        _engine.SecretKey.restore(p, bytes(data))


@pytest.mark.parametrize("name", [n for n in SETS if _engine.parameter_set(n).structured_secret])
def test_restore_refuses_a_block_with_two_ones(name: str) -> None:
    p = _engine.parameter_set(name)
    size = p.keys_per_step
    data = bytearray(_engine.SecretKey.generate(p).export())
    for block in (0, p.step_count - 1):
        for ones in ((0, 1), (0, size - 1), tuple(range(size))):
            altered = data.copy()
            for i in range(size):
                altered[block * size + i] = i in ones
            with pytest.raises(
                SerializationError, match=f"small key: expected blocks of {size} coefficients .*another block"
            ):
                _engine.SecretKey.restore(p, bytes(altered))
        for value in range(-1, size):
            altered = data.copy()
            for i in range(size):
                altered[block * size + i] = i == value
            assert _engine.SecretKey.restore(p, bytes(altered)).export() == bytes(altered)


def test_keys_are_fresh_unless_entropy_is_given() -> None:
    p = _engine.parameter_set("toy")
    assert len({_engine.SecretKey.generate(p).export() for _ in range(8)}) == 8
    assert _engine.SecretKey.generate(p, ENTROPY).export() == _engine.SecretKey.generate(p, ENTROPY).export()


def test_no_two_objects_share_a_seed() -> None:
    """Under fixed entropy and under the operating system's."""
    p = _engine.parameter_set("toy")
    for key in (_engine.SecretKey.generate(p, ENTROPY), _engine.SecretKey.generate(p)):
        seeds = [key.encrypt_lwe_seeded(torus_words(p, 1))[0] for _ in range(5)]
        seeds += [key.encrypt_glwe_seeded(torus_words(p, 1, p.polynomial_size))[0], key.public_key()[0]]
        seeds += [key.evaluation_keys()[0], key.evaluation_keys()[0]]
        assert len(set(seeds)) == len(seeds)


def test_toy_sets_are_refused_without_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = _engine.parameter_set("toy")
    data = _engine.SecretKey.generate(toy).export()
    for value in (None, "0", "yes"):
        if value is None:
            monkeypatch.delenv("CLOAKWORK_ALLOW_TOY")
        else:
            monkeypatch.setenv("CLOAKWORK_ALLOW_TOY", value)
        with pytest.raises(ParameterError, match="CLOAKWORK_ALLOW_TOY=1"):
            _engine.SecretKey.generate(toy)
        with pytest.raises(ParameterError, match="128 bits"):
            _engine.SecretKey.restore(toy, data)
        with pytest.raises(ParameterError, match="predictable"):
            _engine.SecretKey.generate(_engine.parameter_set("gate_64"), ENTROPY)
    _engine.SecretKey.generate(_engine.parameter_set("gate_64"))


def test_an_unknown_parameter_set_lists_the_known_ones() -> None:
    with pytest.raises(ParameterError, match=r"expected one of .*toy.*; got 'gate_65'"):
        _engine.parameter_set("gate_65")


# --- LWE and GLWE -----------------------------------------------------------------------------------------------------


def test_lwe_phase_is_b_minus_a_s(key: _engine.SecretKey) -> None:
    p = key.params
    lwe = torus_words(p, 5, p.large_dimension + 1).astype(word_dtype(p))
    large = secrets(key)[1].ravel()
    expected = [
        (int(row[-1]) - sum(int(a) * int(s) for a, s in zip(row, large, strict=False))) % p.modulus for row in lwe
    ]
    assert key.phase_lwe(lwe).tolist() == expected


def test_small_phase_is_b_minus_a_s(key: _engine.SecretKey) -> None:
    p = key.params
    modulus = 2**p.keyswitch_modulus_log2
    small = np.random.default_rng(2).integers(0, modulus, (5, p.lwe_dimension + 1), dtype=np.uint32)
    expected = (small[:, -1].astype(np.int64) - small[:, :-1].astype(np.int64) @ secrets(key)[0]) % modulus
    assert np.array_equal(key.phase_small(small), expected)


@pytest.mark.parametrize("batch", [1, 17])
def test_glwe_phase_is_b_minus_a_s(key: _engine.SecretKey, batch: int) -> None:
    p = key.params
    dtype = word_dtype(p)
    glwe = torus_words(p, batch, p.glwe_dimension + 1, p.polynomial_size).astype(dtype)
    phases = key.phase_glwe(glwe)
    secret = (secrets(key)[1] % p.modulus).astype(dtype)
    for b in {0, batch - 1}:
        expected = glwe[b, -1].astype(object)
        for c in range(p.glwe_dimension):
            expected -= reference.polynomial_multiply(p, glwe[b, c], secret[c]).astype(object)
        assert (expected % p.modulus).tolist() == phases[b].tolist()


@pytest.mark.parametrize("batch", [1, 15, 16])
def test_fast_product_is_the_schoolbook_product(batch: int) -> None:
    """The client's number-theoretic transform, at the extremes and at random, for every ring of the shipped sets."""
    rings = {
        (q.polynomial_size, q.limb_count): n for n in _engine.parameter_set_names() for q in [_engine.parameter_set(n)]
    }
    rng = np.random.default_rng(batch)
    for name in rings.values():
        p = _engine.parameter_set(name)
        polynomials = rng.integers(0, p.modulus, (batch, p.polynomial_size), dtype=np.uint64)
        polynomials[0] = p.modulus - 1
        small = rng.integers(-2, 3, p.polynomial_size, dtype=np.int8)
        small[:5] = -2, -1, 0, 1, 2
        polynomials = polynomials.astype(word_dtype(p))
        products = _engine.testing.multiply_small(p, polynomials, small)
        wide = (small.astype(np.int64) % p.modulus).astype(word_dtype(p))
        for b in {0, batch - 1}:
            assert np.array_equal(products[b], reference.polynomial_multiply(p, polynomials[b], wide))


def test_lwe_noise(key: _engine.SecretKey) -> None:
    p = key.params
    words = torus_words(p, 2000)
    words[:3] = 0, p.modulus - 1, p.modulus // 2
    ciphertexts = key.encrypt_lwe(words)
    assert ciphertexts.dtype == word_dtype(p)
    assert ciphertexts.shape == (2000, p.large_dimension + 1)
    assert_noise(centred(key.phase_lwe(ciphertexts).astype(np.int64) - words.astype(np.int64), p.modulus), p.glwe_sigma)


def test_glwe_noise(key: _engine.SecretKey) -> None:
    p = key.params
    words = torus_words(p, 35, p.polynomial_size)
    seed, bodies = key.encrypt_glwe_seeded(words)
    assert bodies.shape == words.shape
    phases = key.phase_glwe(_engine.expand_glwe(p, seed, bodies))
    assert_noise(centred(phases.astype(np.int64) - words.astype(np.int64), p.modulus), p.glwe_sigma)


def test_seeded_ciphertexts_have_the_masks_of_the_specification(key: _engine.SecretKey) -> None:
    p = key.params
    n, k = p.polynomial_size, p.glwe_dimension
    seed, bodies = key.encrypt_lwe_seeded(torus_words(p, 3))
    lwe = _engine.expand_lwe(p, seed, bodies)
    assert np.array_equal(lwe[:, -1], bodies)
    for b in range(3):
        assert np.array_equal(lwe[b, :-1], _engine.testing.expand_words(p, seed, 4, b, p.large_dimension))
    seed, bodies = key.encrypt_glwe_seeded(torus_words(p, 2, n))
    glwe = _engine.expand_glwe(p, seed, bodies)
    assert np.array_equal(glwe[:, -1], bodies)
    for b in range(2):
        for c in range(k):
            assert np.array_equal(glwe[b, c], _engine.testing.expand_words(p, seed, 5, b * k + c, n))


def test_lwe_masks_and_bodies_look_uniform(key: _engine.SecretKey) -> None:
    """A constant message: the mean of a uniform word is Q/2 with standard deviation Q/sqrt(12)."""
    p = key.params
    ciphertexts = key.encrypt_lwe(np.zeros(500, dtype=np.uint64)).astype(np.float64) / p.modulus
    for part in (ciphertexts[:, :-1], ciphertexts[:, -1]):
        assert abs(part.mean() - 0.5) < Z_LIMIT / math.sqrt(12 * part.size)


# --- public key -------------------------------------------------------------------------------------------------------


def test_public_key_rows_encrypt_zero(key: _engine.SecretKey) -> None:
    p = key.params
    n, k = p.polynomial_size, p.glwe_dimension
    seed, bodies = key.public_key()
    rows = np.stack(
        [[_engine.testing.expand_words(p, seed, 3, r * k + c, n) for c in range(k)] + [bodies[r]] for r in range(k)]
    )
    assert_noise(centred(key.phase_glwe(np.ascontiguousarray(rows)), p.modulus), p.glwe_sigma)


def test_public_key_encryption(key: _engine.SecretKey) -> None:
    """Noise E u + e - e_A S: variance sigma^2 (1 + kN E[u^2] + ||S||^2) at every coefficient, u as wide as the ring secret."""
    p = key.params
    seed, bodies = key.public_key()
    words = torus_words(p, 18, p.polynomial_size)
    ciphertexts = _engine.public_encrypt_glwe(p, seed, bodies, words)
    noise = centred(key.phase_glwe(ciphertexts).astype(np.int64) - words.astype(np.int64), p.modulus)
    u_square = 2 if p.glwe_secret == "quinary" else 2 / 3
    expected = p.glwe_sigma * math.sqrt(1 + p.large_dimension * u_square + (secrets(key)[1] ** 2).sum())
    # E is common to all ciphertexts: its squared norm varies by sqrt(2 / kN), which widens the interval.
    slack = Z_LIMIT * (math.sqrt(2 / noise.size) + math.sqrt(2 / p.large_dimension))
    assert abs(noise.var() / expected**2 - 1) < slack
    assert np.abs(noise).max() < 10 * expected
    again = _engine.public_encrypt_glwe(p, seed, bodies, words)
    assert not (ciphertexts == again).all(axis=(1, 2)).any(), "encryption is randomised"


# --- evaluation keys --------------------------------------------------------------------------------------------------


def test_every_keyswitch_row(key: _engine.SecretKey, evaluation_keys: tuple[bytes, np.ndarray, np.ndarray]) -> None:
    """phase(KSK[i][l]) = s_large[i] * 2^(w - base_log (l + 1)) + noise."""
    p = key.params
    seed, _, bodies = evaluation_keys
    base_log, levels = p.keyswitch_gadget
    modulus = 2**p.keyswitch_modulus_log2
    full = reference.expand_keyswitch_key(p, seed, bodies)
    assert full.shape == (p.large_dimension, levels, p.lwe_dimension + 1)
    phases = key.phase_small(full.reshape(-1, p.lwe_dimension + 1)).reshape(p.large_dimension, levels)
    weights = 2 ** (p.keyswitch_modulus_log2 - base_log * (np.arange(levels) + 1))
    noise = centred(phases.astype(np.int64) - secrets(key)[1].reshape(-1, 1) * weights, modulus)
    assert_noise(noise, p.lwe_sigma)
    for level in range(levels):
        assert_noise(noise[:, level], p.lwe_sigma)
    row = _engine.testing.expand_power_of_two(
        seed, 2, 5 * levels + 1 % levels, p.keyswitch_modulus_log2, p.lwe_dimension
    )
    assert np.array_equal(full[5, 1 % levels, :-1], row)


def turned(polynomials: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """X^e * polynomial for every e of an array of exponents: exponents.shape + polynomials.shape."""
    size = polynomials.shape[-1]
    places = (np.arange(size) - exponents[..., None]) % (2 * size)
    signed = np.concatenate([polynomials, -polynomials], axis=-1)
    return np.moveaxis(signed[..., places], 0, -2)


def key_messages(params: _engine.ParameterSet, small: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sections 5 and 6: what the rows of every key encrypt, [step, key, row, N], of `rows` for the message 1."""
    if not params.digit_bits:
        return ggsw_messages(params, small)[:, :, None, None] * rows
    digits = params.step_count // params.lwe_dimension
    powers = small[:, None] * 2 ** (params.digit_bits * np.arange(digits))  # [word, digit]
    return turned(rows, powers.reshape(-1, 1) * np.arange(1, params.keys_per_step + 1))


def ggsw_messages(params: _engine.ParameterSet, small: np.ndarray) -> np.ndarray:
    """Section 6: the bit of each key, [step, key]."""
    if params.cmux == "binary":
        return small[:, None]
    if params.cmux == "ternary":
        return np.stack([small == 1, small == -1], axis=1).astype(np.int64)
    if params.structured_secret:  # key j of a block: its coefficient j
        return small.reshape(params.step_count, params.keys_per_step)
    first, second = small[0::2], small[1::2]
    return np.stack([first * (1 - second), second * (1 - first), first * second], axis=1)


def raised_phases(glwe: np.ndarray, large: np.ndarray, modulus: int) -> np.ndarray:
    """B - sum of A_i * S_i modulo `modulus`, schoolbook: sums of N words of 52 bits stay below 2^63."""
    phases = glwe[:, -1].astype(np.int64)
    for component, secret in enumerate(large):
        mask = glwe[:, component].astype(np.int64)
        signed = np.concatenate([-mask, mask], axis=1)  # coefficient i of X^j * A is entry N + i - j
        size = mask.shape[1]
        for j in np.flatnonzero(secret):
            phases = phases - secret[j] * signed[:, size - j : 2 * size - j]
    return phases % modulus


def test_every_bootstrap_key_row(key: _engine.SecretKey, evaluation_keys: tuple[bytes, np.ndarray, np.ndarray]) -> None:
    """phase = E - m g_l S_i for mask rows and E + m g_l for body rows, g_l times P for raised keys."""
    p = key.params
    seed, bodies, _ = evaluation_keys
    n, k = p.polynomial_size, p.glwe_dimension
    bits = 27 * p.limb_count
    small, large = secrets(key)
    message_polynomials = []
    for component, (base_log, levels) in enumerate([p.mask_gadget] * k + [p.body_gadget]):
        for level in range(levels):
            weight = 2 ** (bits - base_log * (level + 1)) * (p.key_modulus // p.modulus)
            one = np.zeros(n, dtype=np.int64)
            one[0] = 1
            message_polynomials.append(weight * (-large[component] if component < k else one))
    rows = np.array(message_polynomials)  # [row, N]
    assert rows.shape[0] == p.row_count

    full = reference.expand_bootstrap_key(p, seed, bodies)
    assert full.shape == (p.step_count, p.keys_per_step, p.row_count, k + 1, n)
    glwe = full.reshape(-1, k + 1, n)
    phases = raised_phases(glwe, large, p.key_modulus) if p.raised else key.phase_glwe(glwe)
    phases = phases.reshape(p.step_count, p.keys_per_step, p.row_count, n)
    messages = key_messages(p, small, rows)
    noise = centred(phases.astype(np.int64) - messages, p.key_modulus)
    assert_noise(noise, p.key_sigma)
    for row in range(p.row_count):
        assert_noise(noise[:, :, row], p.key_sigma)

    step, which, row, component = p.step_count - 1, p.keys_per_step - 1, p.row_count - 1, k - 1
    index = ((step * p.keys_per_step + which) * p.row_count + row) * k + component
    assert np.array_equal(full[step, which, row, component], _engine.testing.expand_words(p, seed, 1, index, n))


def test_evaluation_key_shapes(key: _engine.SecretKey, evaluation_keys: tuple[bytes, np.ndarray, np.ndarray]) -> None:
    p = key.params
    seed, bootstrap, keyswitch = evaluation_keys
    assert len(seed) == 32
    assert bootstrap.dtype == (np.uint32 if p.key_limb_count == 1 else np.uint64)
    assert bootstrap.size == p.bootstrap_key_body_words
    assert keyswitch.dtype == np.uint32
    assert keyswitch.size == p.keyswitch_key_rows


def test_progress_is_monotonic_and_complete() -> None:
    calls: list[tuple[int, int]] = []
    _engine.SecretKey.generate(_engine.parameter_set("toy")).evaluation_keys(lambda *call: calls.append(call))
    done, totals = [c[0] for c in calls], {c[1] for c in calls}
    assert len(totals) == 1
    assert done == sorted(set(done))
    assert done[-1] == totals.pop()


@pytest.mark.parametrize("stop_after", [1, 3])
def test_key_generation_can_be_cancelled(stop_after: int) -> None:
    calls: list[int] = []

    def progress(done: int, total: int) -> bool:
        calls.append(done)
        return len(calls) < stop_after

    key = _engine.SecretKey.generate(_engine.parameter_set("toy"))
    with pytest.raises(CancelledError, match="cancelled"):
        key.evaluation_keys(progress)
    assert len(calls) == stop_after


def test_an_error_in_the_progress_callback_comes_back() -> None:
    def progress(done: int, total: int) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _engine.SecretKey.generate(_engine.parameter_set("toy")).evaluation_keys(progress)


# --- arguments --------------------------------------------------------------------------------------------------------


TOY = _engine.parameter_set("toy")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (np.zeros(0, dtype=np.uint64), "at least one item"),
        (np.zeros(3, dtype=np.int64), "got dtype int64"),
        (np.zeros(3, dtype=">u8"), "got dtype >u8"),
        (np.zeros((3, 2), dtype=np.uint64), r"got shape \[3, 2\]"),
        (np.zeros(6, dtype=np.uint64)[::2], "not C-contiguous"),
        ([0, 1], "got list"),
        (None, "got NoneType"),
        (np.array([TOY.modulus], dtype=np.uint64), "found a value outside"),
        (np.array([2**64 - 1], dtype=np.uint64), "found a value outside"),
    ],
)
def test_bad_torus_words(words: object, message: str) -> None:
    key = _engine.SecretKey.generate(TOY)
    for call in (key.encrypt_lwe, key.encrypt_lwe_seeded):
        with pytest.raises(ShapeError, match=message):
            call(words)


def test_bad_ciphertexts() -> None:
    key = _engine.SecretKey.generate(TOY)
    d, n = TOY.large_dimension, TOY.polynomial_size
    with pytest.raises(ShapeError, match=rf"shape \[\*, {d + 1}\], got shape \[2, {d}\]"):
        key.phase_lwe(np.zeros((2, d), dtype=np.uint32))
    with pytest.raises(ShapeError, match="got dtype uint64"):
        key.phase_lwe(np.zeros((2, d + 1), dtype=np.uint64))
    with pytest.raises(ShapeError, match="found a value outside"):
        key.phase_glwe(np.full((1, TOY.glwe_dimension + 1, n), TOY.modulus, dtype=np.uint32))
    with pytest.raises(ShapeError, match="found a value outside"):
        key.phase_small(np.full((1, TOY.lwe_dimension + 1), 2**TOY.keyswitch_modulus_log2, dtype=np.uint32))
    with pytest.raises(ShapeError, match="at least one item"):
        key.phase_lwe(np.zeros((0, d + 1), dtype=np.uint32))
    with pytest.raises(ShapeError, match="expected 32 bytes, got 31"):
        _engine.expand_lwe(TOY, bytes(31), np.zeros(1, dtype=np.uint32))
    with pytest.raises(ShapeError, match="progress: expected a function"):
        key.evaluation_keys(3)
