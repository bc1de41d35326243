"""Between levelled arithmetic and look-ups: every value arrives, with the noise that is foreseen, from any ring to any shape of a set; what
does not belong together is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import FheError, KeyMismatchError, ParameterError, SerializationError, ShapeError
from cloakwork.fhe_core.levelled.bridges.client import from_lookups_keys, to_lookups_key
from cloakwork.fhe_core.levelled.bridges.from_lookups import FromLookups
from cloakwork.fhe_core.levelled.bridges.keys import (
    FromLookupsKeys,
    ToLookupsKey,
    component,
    gadget_of,
    rounding_variance,
    switch_variance,
)
from cloakwork.fhe_core.levelled.bridges.to_lookups import ToLookups
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts, LevelledEvaluationKeys
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.slots import Slots
from cloakwork.fhe_core.noise import blind_rotation_variance
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session

gpu = pytest.mark.gpu
# One and two limbs, one to three polynomials in a mask, raised and NTRU keys, several digits, an extended table: what a ciphertext may look like.
SHAPES = [
    "toy",
    "toy_two_limb",
    "toy_raised",
    "toy_large",
    "toy_fine",
    "toy_extended",
    "toy_ntru_lut",
    "toy_ap_ternary",
]
SHIPPED = ["lut1", "lut2_s192", "lut3", "lut4", "lut5", "lut8_64", "lut3_block", "lut4_ntru", "large16"]


class Pair:
    """Keys of one owner, of both kinds."""

    def __init__(self, parameters: LevelledParameters, lookups: str, entropy: int = 1) -> None:
        self.levelled = LevelledClientKey._from_entropy(parameters, bytes([entropy] * 32))
        self.lookups = ClientKey._from_entropy(lookups, bytes([entropy + 1] * 32))
        self.size, self.top = parameters.polynomial_size, 1 << self.lookups.parameters.message_bits

    def messages(self, batch: int = 1) -> NDArray[np.int64]:
        """Random, the largest and zero among them."""
        values = np.random.default_rng(7).integers(0, self.top, (batch, self.size))
        values[:, :3], values[:, -3:] = self.top - 1, 0
        return values


def smallest(lookups: str, name: str = "toy_bgv12") -> LevelledParameters:
    """t = 2^(p + 1)."""
    return LevelledParameters.of(name, 2 << parameter_set(lookups).message_bits)


# --- to look-ups ---


@pytest.mark.parametrize("lookups", SHAPES)
def test_every_coefficient_arrives(lookups: str) -> None:
    parameters = smallest(lookups)
    pair = Pair(parameters, lookups)
    messages = pair.messages(2)
    bridge = ToLookups(to_lookups_key(pair.levelled, pair.lookups))
    for level in (1, parameters.levels):
        packed = bridge.packed(pair.levelled.encrypt(messages, level))
        assert packed.shape == messages.shape and packed.message_bound == (0, pair.top - 1)
        found = pair.lookups.decrypt(packed)
        assert (found[:, bridge.places(np.arange(pair.size))] == messages).all()


@pytest.mark.parametrize("lookups", SHIPPED)
def test_of_shipped_sets_the_noise_is_what_is_foreseen(lookups: str) -> None:
    """8,192 errors each: their deviation is within 5 % of the model, which is more than six of its own deviations."""
    parameters = smallest(lookups, "bgv13")
    pair, params = Pair(parameters, lookups), parameter_set(lookups)
    messages = pair.messages()
    bridge = ToLookups(to_lookups_key(pair.levelled, pair.lookups))
    packed = bridge.packed(pair.levelled.encrypt(messages))
    expected = messages[:, np.argsort(bridge.places(np.arange(pair.size)))]
    values, errors = pair.lookups.decrypt(packed, return_noise=True, expected=expected)
    assert (values == expected).all()
    variance = switch_variance(pair.size, params, gadget_of(pair.size, params)) + rounding_variance(
        pair.size, params, 5
    )
    assert float(np.std(errors)) == pytest.approx(math.sqrt(variance), rel=0.05)
    assert packed.weight_norm <= params.max_weight_norm


@pytest.mark.parametrize("scale", [1, 3, 65536])
def test_levelled_noise_comes_along(scale: int) -> None:
    """At one prime and a large t the noise is the ciphertext's: as foreseen, on both sides, whatever divisions left as a scale."""
    parameters = LevelledParameters.of("toy_bgv12", 65537)
    pair = Pair(parameters, "toy_large")
    messages = np.random.default_rng(4).integers(-16000, 16001, (2, pair.size))
    fresh = pair.levelled.encrypt(messages * scale, 1)
    ciphertexts = replace(fresh, scale=scale)
    bridge = ToLookups(to_lookups_key(pair.levelled, pair.lookups))
    packed = bridge.packed(ciphertexts, Encoding.TORUS)
    expected = messages[:, np.argsort(bridge.places(np.arange(pair.size)))] / 65537
    _, errors = pair.lookups.decrypt(packed, return_noise=True, expected=expected)
    model = packed.weight_norm * math.sqrt(blind_rotation_variance(pair.lookups.parameters))
    bound = (
        32768 / 65537 * parameters.plaintext_modulus / parameters.modulus(1)
    )  # of the message part, which the model adds
    assert float(np.std(errors)) < 1.05 * model
    if scale == 1:  # a factor of 32,768 / t or so: noise leads
        assert float(np.std(errors)) > 0.85 * math.sqrt(model**2 - bound**2)


def test_a_factor_stretches_small_messages() -> None:
    pair = Pair(LevelledParameters.of("toy_bgv12", 65537), "toy_large")
    messages = np.random.default_rng(5).integers(-100, 101, (1, pair.size))
    bridge = ToLookups(to_lookups_key(pair.levelled, pair.lookups))
    packed = bridge.packed(pair.levelled.encrypt(messages), Encoding.TORUS, 160)
    expected = messages[:, np.argsort(bridge.places(np.arange(pair.size)))] * 160 / 65537
    _, errors = pair.lookups.decrypt(packed, return_noise=True, expected=expected)
    assert float(np.abs(errors).max()) < 2.0**-15


@pytest.mark.parametrize("modulus", [32, 65537, 40961, 64, 99])
def test_messages_of_any_large_enough_modulus(modulus: int) -> None:
    """A modulus that is no multiple of the grid is off by a part of 1 / t: it counts as noise."""
    pair = Pair(LevelledParameters.of("toy_bgv12", modulus), "toy_fine")
    bridge = ToLookups(to_lookups_key(pair.levelled, pair.lookups))
    messages = pair.messages()
    packed = bridge.packed(pair.levelled.encrypt(messages))
    assert (pair.lookups.decrypt(packed)[:, bridge.places(np.arange(pair.size))] == messages).all()
    exact = modulus in (32, 64)
    assert (packed.weight_norm > 10) == (not exact)


def test_a_product_is_followed_by_look_ups() -> None:
    """Slots of a product of ciphertexts, one by one, and any function of them."""
    parameters = LevelledParameters.of("bgv13", 65537)
    slots, pair = Slots(parameters), Pair(parameters, "toy_large")
    server = LevelledEvaluator(parameters, pair.levelled.evaluation_keys())
    session = Session(pair.lookups.evaluation_keys())
    rng = np.random.default_rng(6)
    x, y = rng.integers(0, 4, slots.count), rng.integers(0, 6, slots.count)
    product = server.rescale(
        server.multiply(pair.levelled.encrypt(slots.encode(x)), pair.levelled.encrypt(slots.encode(y)))
    )
    which = np.array([8191, 0, 1, 4095, 4096, 77])
    chosen = server.multiply_table(product, server.table(slots.selectors(which)[:, None], product.level))
    values = ToLookups(to_lookups_key(pair.levelled, pair.lookups)).convert(session, chosen, [0])[:, 0]
    assert (pair.lookups.decrypt(values) == (x * y)[which]).all()
    found = session.bootstrap(values, lambda m: (7 * m * m + 1) % 16, allow_noise=True)
    assert (pair.lookups.decrypt(found) == (7 * (x * y)[which] ** 2 + 1) % 16).all()


def test_chosen_coefficients_come_in_their_order() -> None:
    pair = Pair(smallest("toy_two_limb"), "toy_two_limb")
    session = Session(pair.lookups.evaluation_keys())
    bridge = ToLookups(to_lookups_key(pair.levelled, pair.lookups))
    messages, wanted = pair.messages(3), np.array([4095, 0, 17, 16, 17, 300])
    found = bridge.convert(session, pair.levelled.encrypt(messages), wanted)
    assert (pair.lookups.decrypt(found) == messages[:, wanted]).all()
    assert (pair.lookups.decrypt(session.bootstrap(found, lambda m: 3 - m)) == 3 - messages[:, wanted]).all()


def test_sums_of_what_shares_noise_count_it_in_full() -> None:
    """Twice a ciphertext and the ciphertext have other words and one noise."""
    parameters = smallest("toy_large")
    pair = Pair(parameters, "toy_large")
    server, session = LevelledEvaluator(parameters), Session(pair.lookups.evaluation_keys())
    bridge = ToLookups(to_lookups_key(pair.levelled, pair.lookups))
    one = pair.levelled.encrypt(np.ones((1, pair.size), dtype=np.int64))
    a, b = (bridge.convert(session, each, [5]) for each in (one, server.scale(one, 2)))
    assert (a + b).weight_norm == pytest.approx(a.weight_norm + b.weight_norm)


# --- from look-ups ---


@pytest.mark.parametrize("lookups", SHAPES)
def test_packed_values_and_nothing_else(lookups: str) -> None:
    parameters = smallest(lookups)
    pair = Pair(parameters, lookups)
    bridge = FromLookups(from_lookups_keys(pair.levelled, pair.lookups), pair.lookups.parameters)
    for count in (1, 2, 7, 16):
        messages = pair.messages()[0, 1 : count + 1]
        packed = bridge.pack(pair.lookups.encrypt(messages))
        expected = np.zeros(pair.size, dtype=np.int64)
        expected[bridge.positions(count)] = messages
        assert (pair.levelled.decrypt(packed)[0] == expected).all()


def test_a_whole_polynomial_and_arithmetic_after_it() -> None:
    """More ciphertexts than are handled at once; then sums and products with plaintexts."""
    parameters = smallest("toy_two_limb")
    pair = Pair(parameters, "toy_two_limb")
    bridge = FromLookups(from_lookups_keys(pair.levelled, pair.lookups), pair.lookups.parameters, threads=2)
    messages = pair.messages()[:, :520].reshape(2, 260)
    packed = bridge.pack(pair.lookups.encrypt(messages))
    places = bridge.positions(520)
    server = LevelledEvaluator(parameters)
    total = server.add(server.scale(packed, 3), packed)
    assert (pair.levelled.decrypt(total)[0, places] == 4 * messages.reshape(-1) % 8).all()


@pytest.mark.parametrize(
    ("lookups", "level"),
    [
        ("toy_large", 1),
        *(
            pytest.param(*case, marks=pytest.mark.tier("all"))
            for case in (("toy_large", 2), ("toy_fine", 2), ("toy", 2))
        ),
    ],
)
def test_noise_of_packing_is_what_is_foreseen(lookups: str, level: int) -> None:
    """The coefficients that hold nothing have the keyswitches' noise, values what they brought too; both are below the model, and not far."""
    parameters = smallest(lookups)
    pair = Pair(parameters, lookups)
    bridge = FromLookups(
        from_lookups_keys(pair.levelled, pair.lookups), pair.lookups.parameters, p_fail_log2=math.inf, threads=2
    )
    session = Session(pair.lookups.evaluation_keys())
    fresh = pair.lookups.encrypt(pair.messages()[0, :256])
    packed = bridge.pack(session.bootstrap(fresh, lambda m: m), level)
    phases = pair.levelled.phases(packed)[0].astype(object)
    primes = parameters.set.primes[:level]
    modulus = math.prod(primes)
    values = (
        sum(row * (modulus // p) * pow(modulus // p, -1, p) for row, p in zip(phases, primes, strict=True)) % modulus
    )
    values = np.where(values > modulus // 2, values - modulus, values)
    found = float(np.std(values[bridge.positions(256)].astype(np.float64)))
    assert 0.3 * packed.noise.deviation < found < 1.1 * packed.noise.deviation


def test_there_and_back() -> None:
    parameters = smallest("toy_large")
    pair = Pair(parameters, "toy_large")
    there = ToLookups(to_lookups_key(pair.levelled, pair.lookups))
    back = FromLookups(from_lookups_keys(pair.levelled, pair.lookups), pair.lookups.parameters)
    session, messages = Session(pair.lookups.evaluation_keys()), pair.messages()
    values = there.convert(session, pair.levelled.encrypt(messages), np.arange(32))
    packed = back.pack(session.bootstrap(values, lambda m: 15 - m))
    again = there.convert(session, packed, back.positions(32))
    assert (pair.lookups.decrypt(again)[0] == 15 - messages[0, :32]).all()


# --- keys as bytes, and what does not belong together ---


def test_keys_as_bytes() -> None:
    parameters = smallest("toy_two_limb")
    pair = Pair(parameters, "toy_two_limb")
    there, back = to_lookups_key(pair.levelled, pair.lookups), from_lookups_keys(pair.levelled, pair.lookups)
    read = ToLookupsKey.from_bytes(there.to_bytes(), parameters, pair.levelled.key_id, pair.lookups.parameters)
    again = FromLookupsKeys.from_bytes(back.to_bytes(), parameters)
    assert (again.lookups_digest, again.lookups_key_id) == (back.lookups_digest, pair.lookups.key_id)
    messages = pair.messages()
    packed = ToLookups(read).packed(pair.levelled.encrypt(messages))
    assert (pair.lookups.decrypt(packed)[:, ToLookups(read).places(np.arange(pair.size))] == messages).all()
    bridge = FromLookups(again, pair.lookups.parameters)
    assert pair.levelled.decrypt(bridge.pack(pair.lookups.encrypt([3])))[0, 0] == 3
    with pytest.raises(SerializationError, match="evaluation keys"):
        LevelledEvaluationKeys.from_bytes(back.to_bytes())


def test_hostile_keys_as_bytes() -> None:
    parameters = smallest("toy")
    pair = Pair(parameters, "toy")
    there = to_lookups_key(pair.levelled, pair.lookups).to_bytes()
    back = from_lookups_keys(pair.levelled, pair.lookups).to_bytes()
    rng = np.random.default_rng(8)
    for data, read in (
        (there, lambda each: ToLookupsKey.from_bytes(each, parameters, pair.levelled.key_id)),
        (back, FromLookupsKeys.from_bytes),
    ):
        for _ in range(40):
            damaged = bytearray(data)
            damaged[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
            with pytest.raises(FheError):
                read(bytes(damaged))
        for length in (0, 3, 100, len(data) - 1):
            with pytest.raises(FheError):
                read(data[:length])
    other = pair.lookups.encrypt_packed(np.zeros((2, 16, 256), dtype=np.int64))
    with pytest.raises(KeyMismatchError, match="something else"):
        ToLookupsKey.from_bytes(other.to_bytes(), parameters, pair.levelled.key_id)
    with pytest.raises(KeyMismatchError, match="something else"):
        ToLookupsKey.from_bytes(there, parameters, bytes(16))
    with pytest.raises(KeyMismatchError, match="something else"):
        ToLookupsKey.from_bytes(there, replace(parameters, plaintext_modulus=16), pair.levelled.key_id)


def test_what_does_not_belong_together_is_refused() -> None:
    parameters = smallest("toy")
    pair, other = Pair(parameters, "toy"), Pair(parameters, "toy", entropy=5)
    session = Session(pair.lookups.evaluation_keys())
    there = ToLookups(to_lookups_key(pair.levelled, pair.lookups))
    back = FromLookups(keys := from_lookups_keys(pair.levelled, pair.lookups), pair.lookups.parameters)
    mine, theirs = pair.levelled.encrypt(pair.messages()), other.levelled.encrypt(pair.messages())
    with pytest.raises(KeyMismatchError, match="ciphertexts of key"):
        there.packed(theirs)
    with pytest.raises(KeyMismatchError, match="different secret keys"):
        there.convert(Session(other.lookups.evaluation_keys()), mine, [0])
    with pytest.raises(KeyMismatchError, match="different secret keys"):
        back.pack(other.lookups.encrypt([1]))
    with pytest.raises(KeyMismatchError, match="another set"):
        FromLookups(keys, parameter_set("toy_two_limb"))
    with pytest.raises(KeyMismatchError, match="no key number 2"):
        FromLookups(replace(keys, keys={g: k for g, k in keys.keys.items() if g != component(0)}), parameter_set("toy"))
    for wrong in ([], [4096], [-1], [0.5], [[1]]):
        with pytest.raises(ShapeError, match="coefficients"):
            there.convert(session, mine, wrong)
    with pytest.raises(ParameterError, match="boolean"):
        there.packed(mine, Encoding.BOOLEAN)
    with pytest.raises(ParameterError, match="no multiple"):
        there.packed(mine, Encoding.TORUS, 8)
    with pytest.raises(ParameterError, match="expected 4 "):
        back.pack(pair.lookups.encrypt([1]).with_encoding(Encoding.FULL_DOMAIN))
    with pytest.raises(ParameterError, match="level"):
        back.pack(pair.lookups.encrypt([1]), 5)
    with pytest.raises(ShapeError, match="1 to 4096"):
        back.positions(4097)
    for name in ("toy_lanes", "toy_lanes_block"):
        with pytest.raises(ParameterError, match="one value to a ciphertext"):
            to_lookups_key(pair.levelled, ClientKey.generate(name))
        with pytest.raises(ParameterError, match="one value to a ciphertext"):
            from_lookups_keys(pair.levelled, ClientKey.generate(name))


def test_too_little_room_is_said() -> None:
    small = Pair(LevelledParameters.of("toy_bgv12", 4), "toy_large")
    with pytest.raises(ParameterError, match="at least 32"):
        ToLookups(to_lookups_key(small.levelled, small.lookups)).packed(small.levelled.encrypt(small.messages()))
    large = Pair(LevelledParameters.of("toy_bgv12", 65537), "toy_large")
    noisy = large.levelled.encrypt(large.messages(), 1)
    noisy = LevelledCiphertexts(
        noisy.parameters, noisy.key_id, noisy.words, 1, replace(noisy.noise, bound=float(noisy.parameters.modulus(1)))
    )
    with pytest.raises(ParameterError, match="too noisy"):
        ToLookups(to_lookups_key(large.levelled, large.lookups)).packed(noisy)
    coarse = Pair(LevelledParameters.of("toy_bgv12", 65537), "toy")
    back = FromLookups(from_lookups_keys(coarse.levelled, coarse.lookups), coarse.lookups.parameters)
    with pytest.raises(ParameterError, match="decrypt wrongly"):
        back.pack(coarse.lookups.encrypt_torus([0.125]))


# --- on a device ---


@gpu
@pytest.mark.parametrize("lookups", ["toy", "toy_two_limb", "toy_extended"])
def test_words_of_a_device_are_the_cpus(lookups: str) -> None:
    parameters = smallest(lookups)
    pair = Pair(parameters, lookups)
    key, keys = to_lookups_key(pair.levelled, pair.lookups), from_lookups_keys(pair.levelled, pair.lookups)
    ciphertexts = pair.levelled.encrypt(pair.messages(2))
    found = [ToLookups(key, device=device).packed(ciphertexts).words for device in ("cpu", "cuda")]
    assert (found[0] == found[1]).all()
    values = pair.lookups.encrypt(pair.messages()[0, :9])
    packed = [FromLookups(keys, pair.lookups.parameters, device=device).pack(values) for device in ("cpu", "cuda")]
    assert (packed[0].words == packed[1].to_host().words).all()
