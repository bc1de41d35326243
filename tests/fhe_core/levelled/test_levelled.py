"""Levelled arithmetic: every operation against polynomials of integers, noise on both sides of its model, instruction sets, wrong input."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from instruction_sets import INSTRUCTION_SETS, check_same_output
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import FheError, KeyMismatchError, ParameterError, SerializationError, ShapeError
from cloakwork.fhe_core.levelled import noise
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.large_ntt import transform_primes
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.fhe_core.levelled.parameters import SETS, SIGMA, LevelledParameters
from cloakwork.fhe_core.levelled.slots import Slots

TOY = LevelledParameters.of("toy_bgv12", 65537)
MODULI = [2, 3, 256, 65536, 65537, 786433, (1 << 20) + 1]
Integers = NDArray[np.int64]


class Pair:
    """A client's key and a server with keys for it."""

    def __init__(self, parameters: LevelledParameters, automorphisms: tuple[int, ...] = (3,), threads: int = 1) -> None:
        self.key = LevelledClientKey._from_entropy(parameters, bytes(range(32)))
        self.server = LevelledEvaluator(parameters, self.key.evaluation_keys(automorphisms), threads=threads)
        self.size, self.modulus = parameters.polynomial_size, parameters.plaintext_modulus

    def messages(self, seed: int, batch: int = 1) -> Integers:
        """Random, the largest and zero among them."""
        values = np.random.default_rng(seed).integers(0, self.modulus, (batch, self.size))
        values[:, 5:9], values[:, 11] = self.modulus - 1, 0
        return values


@pytest.fixture(scope="module")
def toy() -> Pair:
    return Pair(TOY)


def product(a: Integers, b: Integers, modulus: int) -> Integers:
    """Modulo X^N + 1, by Fourier transforms of parts small enough to be exact."""
    size = a.shape[-1]
    total = np.zeros(2 * size, dtype=object)
    for i in range(3):
        for j in range(3):
            low, high = a >> (9 * i) & 511, b >> (9 * j) & 511
            spectrum = np.fft.rfft(low, 2 * size) * np.fft.rfft(high, 2 * size)
            total += np.rint(np.fft.irfft(spectrum)).astype(np.int64).astype(object) << (9 * (i + j))
    return ((total[:size] - total[size:]) % modulus).astype(np.int64)


def image(a: Integers, g: int, modulus: int) -> Integers:
    """X -> X^g."""
    size = a.shape[-1]
    powers = np.arange(size) * g % (2 * size)
    found = np.zeros_like(a)
    found[powers % size] = np.where(powers < size, a, -a)
    return found % modulus


def phases(key: LevelledClientKey, ciphertexts: LevelledCiphertexts) -> NDArray[np.object_]:
    """Centred integers [batch, N]."""
    primes = ciphertexts.parameters.set.primes[: ciphertexts.level]
    words, modulus = key.phases(ciphertexts), math.prod(primes)
    total = np.zeros((len(words), words.shape[2]), dtype=object)
    for i, q in enumerate(primes):
        other = modulus // q
        total += words[:, i].astype(object) * pow(other, -1, q) % q * other
    total %= modulus
    return np.where(total > modulus // 2, total - modulus, total)


def deviation(values: NDArray[np.object_]) -> float:
    return math.sqrt(float(np.mean(np.square(values.astype(float)))))


@pytest.mark.parametrize("modulus", MODULI)
def test_every_operation(modulus: int) -> None:
    pair = Pair(LevelledParameters.of("toy_bgv12", modulus))
    key, server = pair.key, pair.server
    a, b = pair.messages(1), pair.messages(2)
    x, y = key.encrypt(a), key.encrypt(b)
    for level in range(1, TOY.levels + 1):
        np.testing.assert_array_equal(key.decrypt(key.encrypt(a, level)), a)
    np.testing.assert_array_equal(key.decrypt(server.add(x, y)), (a + b) % modulus)
    np.testing.assert_array_equal(key.decrypt(server.subtract(x, y)), (a - b) % modulus)
    np.testing.assert_array_equal(key.decrypt(server.add_plain(x, b)), (a + b) % modulus)
    np.testing.assert_array_equal(key.decrypt(server.scale(x, -7)), -7 * a % modulus)
    np.testing.assert_array_equal(key.decrypt(server.automorphism(x, 3))[0], image(a[0], 3, modulus))
    times = server.multiply(x, y)
    np.testing.assert_array_equal(key.decrypt(times)[0], product(a[0], b[0], modulus))
    np.testing.assert_array_equal(key.decrypt(server.multiply_plain(x, b))[0], product(a[0], b[0], modulus))
    down = server.rescale(times)
    assert down.level < times.level
    np.testing.assert_array_equal(key.decrypt(down)[0], product(a[0], b[0], modulus))
    mixed = server.add(down, x)  # of another level and another scale
    np.testing.assert_array_equal(key.decrypt(mixed)[0], (product(a[0], b[0], modulus) + a[0]) % modulus)
    signed = key.decrypt(x, signed=True)
    assert np.abs(signed).max() <= modulus // 2 and (signed % modulus == a).all()


@pytest.mark.parametrize("name", [name for name, row in SETS.items() if row.log_size < 15])
def test_sets(name: str) -> None:
    """A product, a rotation of it and a product of that, as deep as the set goes."""
    parameters = LevelledParameters.of(name)
    slots = Slots(parameters)
    pair = Pair(parameters, (slots.rotation(5),), threads=2)
    values = np.random.default_rng(3).integers(0, parameters.plaintext_modulus, slots.count)
    x = pair.server.modulus_switch(pair.key.encrypt(slots.encode(values)), parameters.levels)
    depth = 0
    while True:
        try:
            x = pair.server.automorphism(x, slots.rotation(5))
            x = pair.server.rescale(pair.server.multiply(x, x))
        except ParameterError as refused:
            assert "more levels" in str(refused)
            break
        rows = np.roll(values.reshape(2, -1), -5, axis=1).reshape(-1)
        values, depth = rows**2 % parameters.plaintext_modulus, depth + 1
        np.testing.assert_array_equal(slots.decode(pair.key.decrypt(x))[0], values)
    assert depth >= {12: 0, 13: 1, 14: 3}[parameters.set.log_size]


def test_tables_of_plaintexts(toy: Pair) -> None:
    rng = np.random.default_rng(4)
    messages, table = toy.messages(5, 70), rng.integers(-127, 128, (3, 70, toy.size))
    x = toy.key.encrypt(messages, 3)
    found = toy.server.multiply_table(x, toy.server.table(table, 3), independent=True)
    for row in range(3):
        expected = sum(product(messages[k], table[row, k] % toy.modulus, toy.modulus) for k in range(70)) % toy.modulus
        np.testing.assert_array_equal(toy.key.decrypt(found)[row], expected)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_integers_of_any_width_count_modulo_t(toy: Pair, kind: type) -> None:
    limits = np.iinfo(kind)
    values = np.resize(np.array([limits.min, limits.max, 3, 100], dtype=kind), (1, toy.size))
    expected = np.array([[int(v) % toy.modulus for v in values[0]]])
    slots, x = Slots(TOY), toy.key.encrypt(values)
    one = np.zeros(toy.size, kind)
    one[0] = limits.max
    factor = int(limits.max) % toy.modulus
    np.testing.assert_array_equal(toy.key.decrypt(x), expected)
    np.testing.assert_array_equal(toy.key.decrypt(toy.server.add_plain(x, values)), 2 * expected % toy.modulus)
    scaled = toy.server.modulus_switch(x, 3)  # of a scale that is not 1
    np.testing.assert_array_equal(toy.key.decrypt(toy.server.add_plain(scaled, values)), 2 * expected % toy.modulus)
    np.testing.assert_array_equal(toy.key.decrypt(toy.server.multiply_plain(x, one)), expected * factor % toy.modulus)
    np.testing.assert_array_equal(
        toy.key.decrypt(toy.server.scale(x, 1 << 90)), expected * (2**90 % toy.modulus) % toy.modulus
    )
    np.testing.assert_array_equal(slots.decode(slots.encode(values)), expected)


def test_slots_are_values(toy: Pair) -> None:
    slots, rng = Slots(TOY), np.random.default_rng(6)
    a, b = rng.integers(0, toy.modulus, (2, slots.count))
    np.testing.assert_array_equal(slots.decode(slots.encode(np.stack([a, b]))), np.stack([a, b]))
    np.testing.assert_array_equal(
        product(slots.encode(a).astype(np.int64), slots.encode(b).astype(np.int64), toy.modulus), slots.encode(a * b)
    )
    turned = slots.decode(image(slots.encode(a).astype(np.int64), slots.rotation(7), toy.modulus))
    np.testing.assert_array_equal(turned.reshape(2, -1), np.roll(a.reshape(2, -1), -7, axis=1))
    exchanged = slots.decode(image(slots.encode(a).astype(np.int64), slots.exchange, toy.modulus))
    np.testing.assert_array_equal(exchanged.reshape(2, -1), a.reshape(2, -1)[::-1])


@pytest.mark.parametrize("modulus", [2, 65537, 786433])
def test_noise_is_as_foreseen(modulus: int) -> None:
    """Deviations of 4,096 coefficients, or four times that, within 8 % of the model: seven deviations of their own, were they independent.

    The model is exact for squares; of a product of independent ciphertexts it foresees the binomial more.
    """
    parameters = LevelledParameters.of("toy_bgv12", modulus)
    pair = Pair(parameters)
    key, server = pair.key, pair.server
    zeros = np.zeros((4, pair.size), dtype=np.int64)

    def same(found: float, expected: float) -> None:
        assert found == pytest.approx(expected, rel=0.08)

    x, y = key.encrypt(zeros), key.encrypt(zeros)
    same(deviation(phases(key, x)), noise.fresh(parameters).deviation)
    added = phases(key, server.automorphism(x, 3)) - np.stack([image_of(each, 3) for each in phases(key, x)])
    same(deviation(added), noise.keyswitch(parameters, x.level).deviation)
    level = 3  # of which the last digit has one prime
    at = server.modulus_switch(x, level)
    added = phases(key, server.automorphism(at, 3)) - np.stack([image_of(each, 3) for each in phases(key, at)])
    same(deviation(added), noise.keyswitch(parameters, level).deviation)
    for primes in (1, 2):
        down = server.modulus_switch(x, x.level - primes)
        same(deviation(phases(key, down)), noise.rounding(parameters, primes).deviation)

    plain = np.random.default_rng(7).integers(0, modulus, pair.size)
    small = np.where(plain > modulus // 2, plain - modulus, plain).astype(float)
    same(
        deviation(phases(key, server.multiply_plain(x, plain))),
        noise.fresh(parameters).deviation * math.sqrt((small**2).sum()),
    )
    fresh = replace(noise.fresh(parameters), bound=0.0)
    foreseen = noise.after_keyswitch(fresh.times(fresh, pair.size), parameters, x.level)
    same(deviation(phases(key, server.multiply(x, x))), foreseen.deviation)
    independent = foreseen.variance - pair.size * fresh.variance**2
    same(deviation(phases(key, server.multiply(x, y))), math.sqrt(independent))


def image_of(values: NDArray[np.object_], g: int) -> NDArray[np.object_]:
    size = len(values)
    powers = np.arange(size) * g % (2 * size)
    found = np.zeros_like(values)
    found[powers % size] = np.where(powers < size, values, -values)
    return found


def test_noise_of_powers_stays_below_the_model(toy: Pair) -> None:
    """Four times itself after divisions, where noises are of the secret's powers: the weakest case of independent variables."""
    x = toy.key.encrypt(np.zeros((4, toy.size), dtype=np.int64))
    for _ in range(2):
        x = toy.server.rescale(toy.server.multiply(x, x))
        bounded = replace(x.noise, bound=0.0)
        assert 0.1 * bounded.deviation < deviation(phases(toy.key, x)) < 1.05 * bounded.deviation


def test_messages_are_bounded_whatever_they_are(toy: Pair) -> None:
    """Constant polynomials, whose products are as large as N (t/2)^2."""
    extreme = np.full((1, toy.size), toy.modulus // 2)
    x = toy.key.encrypt(extreme)
    times = toy.server.multiply(x, x)
    assert np.abs(phases(toy.key, times)).max() <= times.noise.bound + 6 * times.noise.deviation
    np.testing.assert_array_equal(toy.key.decrypt(times)[0], product(extreme[0], extreme[0], toy.modulus))


def test_noise_adds_up_without_assumptions() -> None:
    one = Noise(3.0, (0.0, 16.0))
    assert one.plus(one) == Noise(6.0, (0.0, 64.0))
    assert one.plus(one, independent=True).variance == pytest.approx(32)
    squared = one.times(one, 8)  # (D + R)^2 = D^2 + 2 D R + R^2
    assert squared.bound == 72.0
    assert squared.variances == pytest.approx((0.0, 4 * 8 * 9 * 16, 2 * 8 * 256))
    huge = Noise(0.0, (0.0, 1e300))
    assert huge.times(huge, 8).deviation == math.inf
    assert noise.failure_log2(huge.times(huge, 8), TOY, 4) == 0.0


def test_deep_squares_are_foreseen_where_they_are_divided() -> None:
    """What divisions leave is of low degree: ten squares in a row cost as much each."""
    parameters = LevelledParameters.of("bgv16", 786433)
    found, level, sizes = noise.fresh(parameters), parameters.levels, []
    for _ in range(10):
        found = noise.after_keyswitch(found.times(found, parameters.polynomial_size), parameters, level)
        while found.deviation > 8 * noise.rounding(parameters, 1).deviation:
            level -= 1
            found = noise.after_division(found, parameters, parameters.set.primes[level], 1)
        sizes.append(level)
    assert level > 20 and max(a - b for a, b in pairwise(sizes[1:])) <= 2


def test_threads_change_nothing(toy: Pair) -> None:
    many = Pair(TOY, threads=3)
    a = toy.messages(8, 3)
    x, y = toy.key.encrypt(a), toy.key.encrypt(a[::-1].copy())
    for operation in ("add", "multiply"):
        one, other = (
            getattr(server, operation)(x, y)
            for server in (toy.server, LevelledEvaluator(TOY, many.key.evaluation_keys(), threads=3))
        )
        np.testing.assert_array_equal(toy.key.decrypt(one), toy.key.decrypt(other))
    engine = TOY.engine
    key = engine.expand_key(*toy.key._secret.switch_key(0))
    c = np.ascontiguousarray(x.words[:, 1])
    np.testing.assert_array_equal(engine.keyswitch(c, key, 1), engine.keyswitch(c, key, 3))
    np.testing.assert_array_equal(engine.modulus_switch(c, 2, 1), engine.modulus_switch(c, 2, 3))


PROGRAM = """
import hashlib, sys
import numpy as np
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.parameters import LevelledParameters

parameters = LevelledParameters.of("toy_bgv12")
key = LevelledClientKey._from_entropy(parameters, bytes(32))
server = LevelledEvaluator(parameters, key.evaluation_keys((3,)))
a = np.arange(2 * parameters.polynomial_size).reshape(2, -1) ** 2
x = key.encrypt(a)
made = [x, server.multiply(x, x), server.automorphism(x, 3), server.modulus_switch(server.multiply(x, x), 1), server.scale(x, 99)]
made.append(server.multiply_table(x, server.table(a[None] % 1000, x.level)))
digest = hashlib.sha256()
for each in made:
    digest.update(each.words.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.os_entropy
@pytest.mark.parametrize("features", INSTRUCTION_SETS)
def test_instruction_sets_give_the_same_words(features: str) -> None:
    check_same_output(PROGRAM, features)


TOOLS = Path(__file__).resolve().parents[3] / "fhe_core" / "tools"


@pytest.mark.parametrize("name", [name for name, row in SETS.items() if row.security_bits is not None])
def test_security_is_the_estimators(name: str) -> None:
    row = SETS[name]
    estimates = json.loads((TOOLS / "security_estimates.json").read_text())["estimates"]
    found = estimates[f"ternary {row.polynomial_size} {row.modulus} {SIGMA}"]
    assert row.security_bits == math.floor(min(bits for bits in found.values() if bits is not None)) >= 132
    assert row.digit_primes <= row.special_primes
    assert len(set(row.primes)) == row.levels + row.special_primes


def test_insecure_sets_are_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOAKWORK_ALLOW_TOY")
    with pytest.raises(ParameterError, match="insecure"):
        LevelledParameters.of("toy_bgv12")
    engine = LevelledParameters.of("bgv12").engine
    with pytest.raises(ParameterError, match="entropy"):
        _engine.LevelledKey.generate(engine, bytes(32))


# --- wrong input -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modulus", [-1, 0, 1, 1 << 26, 1 << 32])
def test_wrong_plaintext_moduli(modulus: int) -> None:
    with pytest.raises((ParameterError, TypeError)):
        LevelledParameters.of("toy_bgv12", modulus)


@pytest.mark.parametrize(
    ("special", "digit", "message"),
    [(0, 1, "special_count"), (3, 1, "special_count"), (1, 2, "digit_primes"), (1, 0, "digit_primes")],
)
def test_wrong_tables(special: int, digit: int, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        _engine.Levelled(12, transform_primes(12, 3), special, digit, 17)


def test_wrong_messages(toy: Pair) -> None:
    for wrong in (
        np.zeros(toy.size),
        np.zeros((1, toy.size - 1), int),
        np.zeros((1, 1, toy.size), int),
        np.zeros((0, toy.size), int),
    ):
        with pytest.raises(ShapeError):
            toy.key.encrypt(wrong)
    with pytest.raises(ParameterError, match="slots want a prime that is 1 modulo 8192, got 65536; the least is 40961"):
        Slots(LevelledParameters.of("toy_bgv12", 65536))
    with pytest.raises(ShapeError, match="values"):
        Slots(TOY).encode(np.zeros(3, int))


@pytest.mark.parametrize("level", [0, 5, -1])
def test_wrong_levels(toy: Pair, level: int) -> None:
    zero = np.zeros(toy.size, int)
    with pytest.raises(FheError, match="level"):
        toy.key.encrypt(zero, level)
    with pytest.raises(FheError, match="level"):
        toy.server.modulus_switch(toy.key.encrypt(zero), level)


def test_hostile_words(toy: Pair) -> None:
    """Words beyond their primes, of other shapes and levels, keys in place of tables: refused before anything is computed."""
    engine, x = TOY.engine, toy.key.encrypt(np.zeros(toy.size, int))
    beyond = x.words.copy()
    beyond[0, 0, 2, 9] = TOY.set.primes[2]
    key = engine.expand_key(*toy.key._secret.switch_key(0))
    table = toy.server.table(np.ones((1, 1, toy.size), int), 2).prepared
    for words in (
        beyond,
        x.words.astype(np.int64),
        x.words[..., ::2],
        x.words[:, :1],
        np.zeros((1, 2, 5, toy.size), np.uint32),
    ):
        with pytest.raises(ShapeError):
            engine.multiply(words, words)
        with pytest.raises(ShapeError):
            toy.key._secret.phase(words)
    for call in (
        lambda: engine.keyswitch(beyond[:, 0], key),
        lambda: engine.keyswitch(np.ascontiguousarray(x.words[:, 0]), table),
        lambda: engine.products(x.words, key),
        lambda: engine.products(x.words, table),  # of another level
        lambda: engine.expand_key(bytes(32), np.zeros((1, 6, toy.size), np.uint32)),
        lambda: engine.expand_key(bytes(31), np.zeros(engine.key_bodies_shape, np.uint32)),
        lambda: engine.expand_key(bytes(32), np.full(engine.key_bodies_shape, 1 << 28, np.uint32)),
        lambda: engine.add(x.words[:, 0].copy(), x.words[:, 0, :3].copy()),
        lambda: LevelledParameters.of("toy_bgv12", 17).engine.keyswitch(np.ascontiguousarray(x.words[:, 0]), key),
    ):
        with pytest.raises(FheError):
            call()
    for g in (0, 2, 2 * toy.size + 1):
        with pytest.raises(ParameterError):
            toy.key.evaluation_keys([g])


def test_keys_that_do_not_fit(toy: Pair) -> None:
    stranger = LevelledClientKey.generate(TOY)
    zero = np.zeros(toy.size, int)
    mine, theirs = toy.key.encrypt(zero), stranger.encrypt(zero)
    for call in (
        lambda: toy.key.decrypt(theirs),
        lambda: toy.server.add(mine, theirs),
        lambda: toy.server.multiply(mine, theirs),
        lambda: toy.server.multiply(theirs, theirs),
        lambda: toy.server.automorphism(mine, 5),
        lambda: LevelledEvaluator(TOY).multiply(mine, mine),
        lambda: LevelledEvaluator(LevelledParameters.of("toy_bgv12", 17), toy.key.evaluation_keys()),
        lambda: LevelledEvaluator(LevelledParameters.of("toy_bgv12", 17)).add(mine, mine),
    ):
        with pytest.raises(KeyMismatchError):
            call()


def test_what_would_decrypt_wrongly_is_refused(toy: Pair) -> None:
    x = toy.key.encrypt(toy.messages(9), 1)
    with pytest.raises(ParameterError, match="would decrypt wrongly with probability 2\\^"):
        toy.server.multiply(x, x)
    with pytest.raises(ParameterError, match="more levels"):
        toy.server.multiply_plain(x, toy.messages(10))


def test_secrets_stay(toy: Pair) -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(toy.key)
    with pytest.raises(TypeError):
        pickle.dumps(toy.key._secret)
    data = toy.key._secret.export()
    again = _engine.LevelledKey.restore(TOY.engine, data)
    x = toy.key.encrypt(toy.messages(11))
    np.testing.assert_array_equal(again.messages(again.phase(x.words)), toy.key.decrypt(x))
    for wrong in (data[:-1], b"\x02" + data[1:], b""):
        with pytest.raises(SerializationError, match="levelled secret key"):
            _engine.LevelledKey.restore(TOY.engine, wrong)
    one, other = (toy.key._secret.encrypt(np.zeros((1, toy.size), np.uint32), 1) for _ in range(2))
    assert one[0] != other[0] and (one[1] != other[1]).any()
    assert set(np.frombuffer(data, np.int8).tolist()) == {-1, 0, 1}
