"""Common-mask sets: the keys row by row, the CPU against the reference, and ciphertexts of r values.

Noise bounds are those of test_client.py: they fail by chance with probability below 1e-6.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine, noise
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.arrays.lanes import ciphertext_shape
from cloakwork.fhe_core.ciphertexts import Ciphertexts, concatenate
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError, ShapeError
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set, parameter_text, upload_bytes
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts, load_ciphertexts, load_results

Z_LIMIT = 4.9
ENTROPY = hashlib.sha256(b"tests/fhe_core/arrays/test_lanes.py").digest()
LANE_SETS = ["toy_lanes", "toy_lanes_block"]
reference = _engine.reference
Integers = NDArray[np.int64]


class Lab:
    """A key from fixed entropy, its lanes one by one, and what follows from it."""

    def __init__(self, name: str) -> None:
        self.params = _engine.parameter_set(name)
        self.secret = _engine.SecretKey.generate(self.params, ENTROPY)
        p = self.params
        coefficients = np.frombuffer(self.secret.export(), dtype=np.int8).astype(np.int64)
        self.small = coefficients[: p.lane_count * p.lwe_dimension].reshape(p.lane_count, -1)
        self.large = coefficients[self.small.size :].reshape(p.lane_count, p.glwe_dimension, p.polynomial_size)
        self.evaluation_keys = self.secret.evaluation_keys()
        self.session = _engine.CpuSession(_engine.CpuKey(p, *self.evaluation_keys), threads=2)
        seed, bootstrap, keyswitch = self.evaluation_keys
        self.bootstrap_key = reference.expand_bootstrap_key(p, seed, bootstrap)
        self.keyswitch_key = reference.expand_keyswitch_key(p, seed, keyswitch)

    def words(self, *shape: int) -> NDArray[np.uint32]:
        rng = np.random.default_rng(list(shape))
        return rng.integers(0, self.params.modulus, shape, dtype=np.uint64).astype(np.uint32)


@pytest.fixture(scope="module", params=LANE_SETS)
def lab(request: pytest.FixtureRequest) -> Lab:
    return Lab(request.param)


def centred(values: np.ndarray, modulus: int) -> Integers:
    values = values.astype(np.int64) % modulus
    return np.where(values > (modulus - 1) // 2, values - modulus, values)


def assert_noise(found: np.ndarray, sigma: float) -> None:
    assert abs(found.mean()) < Z_LIMIT * sigma / math.sqrt(found.size)
    assert abs(found.var() / sigma**2 - 1) < Z_LIMIT * math.sqrt(2 / found.size)
    assert np.abs(found).max() < 10 * sigma


# --- keys ------------------------------------------------------------------------------------------------------------------------


def test_every_lane_has_keys_of_its_own(lab: Lab) -> None:
    """Half of two binary small keys agree, not all; the ring keys are as independent."""
    p = lab.params
    for keys in (lab.small, lab.large.reshape(p.lane_count, -1)):
        assert len({key.tobytes() for key in keys}) == p.lane_count
        a, b = (key - key.mean() for key in keys)
        assert abs((a * b).sum()) < Z_LIMIT * math.sqrt((a**2).sum() * (b**2).sum() / len(a))


def test_phases_are_bodies_less_the_mask_times_the_lanes_key(lab: Lab) -> None:
    p = lab.params
    lwe = lab.words(3, p.large_words)
    mask, bodies = lwe[:, : p.large_dimension].astype(np.int64), lwe[:, p.large_dimension :].astype(np.int64)
    expected = (bodies - mask @ lab.large.reshape(p.lane_count, -1).T) % p.modulus
    np.testing.assert_array_equal(lab.secret.phase_lwe(lwe), expected)
    small = lab.words(3, p.small_words) % np.uint32(1 << p.keyswitch_modulus_log2)
    wide = small.astype(np.int64)
    expected = wide[:, p.lwe_dimension :] - wide[:, : p.lwe_dimension] @ lab.small.T
    np.testing.assert_array_equal(lab.secret.phase_small(small), expected % (1 << p.keyswitch_modulus_log2))
    glwe = lab.words(17, p.component_count, p.polynomial_size)
    np.testing.assert_array_equal(lab.secret.phase_glwe(glwe), schoolbook_phases(lab, glwe))


def schoolbook_phases(lab: Lab, glwe: np.ndarray) -> Integers:
    """[B, r, N]: body j less the sum of A_c * S_cj modulo X^N + 1."""
    p = lab.params
    phases = glwe[:, p.glwe_dimension :].astype(np.int64)
    for component in range(p.glwe_dimension):
        mask = glwe[:, component].astype(np.int64)
        signed = np.concatenate([-mask, mask], axis=1)  # coefficient i of X^j * A is entry N + i - j
        for lane in range(p.lane_count):
            for j in np.flatnonzero(lab.large[lane, component]):
                shifted = signed[:, p.polynomial_size - j : 2 * p.polynomial_size - j]
                phases[:, lane] -= lab.large[lane, component, j] * shifted
    return phases % p.modulus


def test_every_keyswitch_row(lab: Lab) -> None:
    """Lane j's body: S_ij 2^(w - base_log (l + 1)) and noise of its own under small key j."""
    p = lab.params
    base_log, levels = p.keyswitch_gadget
    key = lab.keyswitch_key
    assert key.shape == (p.large_dimension, levels, p.small_words)
    phases = lab.secret.phase_small(key.reshape(-1, p.small_words)).reshape(p.large_dimension, levels, p.lane_count)
    weights = 2 ** (p.keyswitch_modulus_log2 - base_log * (np.arange(levels) + 1))
    large = lab.large.reshape(p.lane_count, -1).T
    errors = centred(
        phases.astype(np.int64) - large[:, None, :] * weights[:, None], 1 << p.keyswitch_modulus_log2
    ).reshape(-1, p.lane_count)
    for lane in range(p.lane_count):
        assert_noise(errors[:, lane], p.lwe_sigma)
    product = (errors[:, 0] * errors[:, 1]).mean() / p.lwe_sigma**2
    assert abs(product) < Z_LIMIT / math.sqrt(len(errors)), "lanes share their noise"


def test_every_bootstrap_key_row(lab: Lab) -> None:
    """Mask rows: -s_j S_cj g in every lane j. Body rows of lane j: s_j g there, noise elsewhere."""
    p = lab.params
    n, k, lanes = p.polynomial_size, p.glwe_dimension, p.lane_count
    expected = np.zeros((p.step_count, p.keys_per_step, p.row_count, lanes, n), dtype=np.int64)
    for lane in range(lanes):
        bits = small_key_bits(p, lab.small[lane])[:, :, None]
        row = 0
        for component, (base_log, levels) in enumerate([p.mask_gadget] * k + [p.body_gadget] * lanes):
            for level in range(levels):
                weight = 1 << (27 - base_log * (level + 1))
                if component < k:
                    expected[:, :, row, lane] = -bits * weight * lab.large[lane, component]
                elif component - k == lane:
                    expected[:, :, row, lane, 0] = bits[:, :, 0] * weight
                row += 1
        assert row == p.row_count
    phases = lab.secret.phase_glwe(lab.bootstrap_key.reshape(-1, k + lanes, n)).reshape(expected.shape)
    errors = centred(phases.astype(np.int64) - expected, p.modulus)
    for row in range(p.row_count):
        for lane in range(lanes):
            assert_noise(errors[:, :, row, lane], p.glwe_sigma)
    by_lane = errors.swapaxes(0, 3).reshape(lanes, -1)
    product = (by_lane[0] * by_lane[1]).mean() / p.glwe_sigma**2
    assert abs(product) < Z_LIMIT / math.sqrt(by_lane.shape[1]), "lanes share their noise"


def small_key_bits(p: _engine.ParameterSet, small: Integers) -> Integers:
    """[step, key] of the two rotations that the toy sets have."""
    if p.structured_secret:
        return small.reshape(p.step_count, p.keys_per_step)
    first, second = small[0::2], small[1::2]
    return np.stack([first * (1 - second), second * (1 - first), first * second], axis=1)


def test_bodies_and_masks_lie_where_the_specification_says(lab: Lab) -> None:
    p = lab.params
    n, k, lanes = p.polynomial_size, p.glwe_dimension, p.lane_count
    seed, bootstrap, keyswitch = lab.evaluation_keys
    assert bootstrap.shape == (p.step_count, p.keys_per_step, p.row_count, lanes, n)
    assert keyswitch.shape == (p.large_dimension, p.keyswitch_gadget[1], lanes)
    np.testing.assert_array_equal(lab.bootstrap_key[:, :, :, k:], bootstrap)
    np.testing.assert_array_equal(lab.keyswitch_key[:, :, p.lwe_dimension :], keyswitch)
    step, which, row = p.step_count - 1, p.keys_per_step - 1, p.row_count - 1
    index = ((step * p.keys_per_step + which) * p.row_count + row) * k + k - 1
    mask = _engine.testing.expand_words(p, seed, 1, index, n)
    np.testing.assert_array_equal(lab.bootstrap_key[step, which, row, k - 1], mask)
    public_seed, bodies = lab.secret.public_key()
    assert bodies.shape == (k, lanes, n)
    rows = [
        np.stack([*(_engine.testing.expand_words(p, public_seed, 3, r * k + c, n) for c in range(k)), *bodies[r]])
        for r in range(k)
    ]
    for lane in range(lanes):
        assert_noise(centred(lab.secret.phase_glwe(np.stack(rows))[:, lane], p.modulus), p.glwe_sigma)


def test_encryptions_of_every_kind_have_the_noise_of_one_lane(lab: Lab) -> None:
    p = lab.params
    messages = lab.words(2000, p.lane_count).astype(np.uint64)
    lwe = lab.secret.encrypt_lwe(messages)
    assert lwe.shape == (2000, p.large_words)
    polynomials = lab.words(19, p.lane_count, p.polynomial_size).astype(np.uint64)
    glwe = _engine.expand_glwe(p, *lab.secret.encrypt_glwe_seeded(polynomials))
    for errors in (
        centred(lab.secret.phase_lwe(lwe).astype(np.int64) - messages.astype(np.int64), p.modulus),
        centred(lab.secret.phase_glwe(glwe).astype(np.int64) - polynomials.astype(np.int64), p.modulus).swapaxes(1, 2),
    ):
        for lane in range(p.lane_count):
            assert_noise(errors[..., lane], p.glwe_sigma)
    public = _engine.public_encrypt_glwe(p, *lab.secret.public_key(), polynomials)
    errors = centred(lab.secret.phase_glwe(public).astype(np.int64) - polynomials.astype(np.int64), p.modulus)
    deviation = math.sqrt(noise.public_key_variance(p)) * p.modulus
    for lane in range(p.lane_count):  # of one key E, whose squared norm spreads by sqrt(2 / kN), under one secret
        slack = Z_LIMIT * (math.sqrt(2 / errors[:, lane].size) + math.sqrt(2 / p.large_dimension))
        assert abs(errors[:, lane].var() / deviation**2 - 1) < slack
        assert np.abs(errors[:, lane]).max() < 10 * deviation


# --- the CPU against the reference ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3])
def test_every_stage_is_the_reference_word_for_word(lab: Lab, batch: int) -> None:
    """Random words, each lane with its own."""
    p = lab.params
    lwe, tables = lab.words(batch, p.large_words), lab.words(2, p.table_size)
    index = (np.arange(batch) % 2).astype(np.uint32)
    small = reference.keyswitch(p, lab.keyswitch_key, lwe)
    np.testing.assert_array_equal(lab.session.keyswitch(lwe), small)
    switched = reference.modulus_switch(p, small)
    np.testing.assert_array_equal(lab.session.modulus_switch(small), switched)
    rotated = reference.blind_rotate(p, lab.bootstrap_key, switched, tables, index)
    np.testing.assert_array_equal(lab.session.blind_rotate(switched, tables, index), rotated)
    coefficients = np.array([0, 1, p.polynomial_size - 1], np.uint32)
    extracted = reference.sample_extract(p, rotated, coefficients)
    np.testing.assert_array_equal(lab.session.sample_extract(rotated, coefficients), extracted)
    np.testing.assert_array_equal(lab.session.bootstrap(lwe, tables, index, coefficients), extracted)


@pytest.mark.parametrize("batch", [31, 32, 33, 65])
def test_batches_are_their_ciphertexts(lab: Lab, batch: int) -> None:
    p = lab.params
    lwe, table = lab.words(batch, p.large_words), lab.words(1, p.table_size)
    whole = lab.session.bootstrap(lwe, table)
    for i in {0, batch // 2, batch - 1}:
        np.testing.assert_array_equal(whole[i : i + 1], lab.session.bootstrap(lwe[i : i + 1].copy(), table))


@pytest.mark.parametrize("instructions", ["baseline", "avx2", "avx512"])
def test_every_instruction_set_has_the_same_words(lab: Lab, instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOAKWORK_CPU", instructions)
    try:
        key = _engine.CpuKey(lab.params, *lab.evaluation_keys)
    except ParameterError as error:  # of the processor; any has the baseline
        assert instructions != "baseline"
        pytest.skip(str(error))
    lwe, table = lab.words(5, lab.params.large_words), lab.words(1, lab.params.table_size)
    found = _engine.CpuSession(key, threads=1).bootstrap(lwe, table)
    np.testing.assert_array_equal(found, lab.session.bootstrap(lwe, table))


def test_linear_layers_act_on_every_word(lab: Lab) -> None:
    p = lab.params
    rng = np.random.default_rng(5)
    weights = rng.integers(-9, 10, (4, 7), dtype=np.int32)
    lwe = lab.words(3, 7, p.large_words)
    expected = np.einsum("rc,scw->srw", weights.astype(np.int64), lwe.astype(np.int64)) % p.modulus
    np.testing.assert_array_equal(lab.session.linear(weights, lwe), expected)
    x, y = lab.words(5, p.large_words), lab.words(6, p.large_words)[:5].copy()
    combined = (3 * x.astype(np.int64) - 2 * y.astype(np.int64)) % p.modulus
    combined[:, p.large_dimension :] = (combined[:, p.large_dimension :] + 12345) % p.modulus
    np.testing.assert_array_equal(lab.session.combine(x, 3, y, -2, 12345), combined)
    glwe = lab.words(2, p.component_count, p.polynomial_size)
    samples = p.polynomial_size // 7 + 3  # the last ones in a second ciphertext
    lwe = lab.session.sample_extract(glwe, np.arange(p.polynomial_size, dtype=np.uint32))
    values = lwe.reshape(-1, p.large_words)[: samples * 7].reshape(samples, 7, -1)
    packed = lab.session.linear_packed(weights, glwe, samples)
    np.testing.assert_array_equal(packed, lab.session.linear(weights, np.ascontiguousarray(values)))


# --- ciphertexts of r values ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key() -> ClientKey:
    return ClientKey.generate("toy_lanes")


@pytest.fixture(scope="module")
def session(key: ClientKey) -> Session:
    return Session(key.evaluation_keys())


def messages(*shape: int) -> Integers:
    return np.random.default_rng(list(shape)).integers(0, 4, shape)


def test_values_have_an_axis_for_the_lanes(key: ClientKey) -> None:
    values = messages(5, 3, 2)
    ciphertexts = key.encrypt(values)
    assert ciphertexts.shape == (5, 3) and ciphertexts.words.shape == (5, 3, key.parameters.large_words)
    np.testing.assert_array_equal(key.decrypt(ciphertexts), values)
    np.testing.assert_array_equal(key.decrypt(key.encrypt([1, 3])), [1, 3])
    seeded = key.encrypt(values, seeded=True)
    assert seeded.shape == (5, 3) and seeded.bodies.shape == (5, 3, 2)
    np.testing.assert_array_equal(key.decrypt(seeded), values)
    np.testing.assert_array_equal(key.decrypt(ciphertexts[2, 1:]), values[2, 1:])
    np.testing.assert_array_equal(key.decrypt(ciphertexts.reshape(15)), values.reshape(15, 2))
    np.testing.assert_array_equal(key.decrypt(concatenate([ciphertexts, ciphertexts], 1)), np.tile(values, (1, 2, 1)))
    found, distance = key.decrypt(ciphertexts, return_noise=True)
    assert distance.shape == found.shape and 0 < np.abs(distance).max() < 1e-5


@pytest.mark.parametrize("shape", [(), (4,), (4, 1), (2, 3), (2, 4), (3, 2, 1)])
def test_other_shapes_are_refused(key: ClientKey, shape: tuple[int, ...]) -> None:
    values = np.zeros(shape, dtype=np.int64)
    public = key.public_key()
    for encrypt in (key.encrypt, key.encrypt_packed, public.encrypt, lambda x: key.encrypt(x, seeded=True)):
        with pytest.raises(ShapeError, match=r"expected shape \[\.\., 2\], a value for each of the 2 lanes"):
            encrypt(values)


def test_sets_of_one_lane_have_no_such_axis() -> None:
    assert ciphertext_shape(parameter_set("toy"), (4, 2)) == (4, 2) and ciphertext_shape(parameter_set("toy"), ()) == ()


@pytest.mark.parametrize("count", [1, 255, 256, 257, 600])
def test_packed_values(key: ClientKey, session: Session, count: int) -> None:
    values = messages(count, 2)
    for packed in (
        key.encrypt_packed(values),
        key.encrypt_packed(values, seeded=False),
        key.public_key().encrypt(values),
    ):
        assert packed.shape == (count,)
        np.testing.assert_array_equal(key.decrypt(packed), values)
        np.testing.assert_array_equal(key.decrypt(session.extract(packed)), values)
    chosen = np.arange(count)[:: max(count // 3, 1)]
    packed = key.encrypt_packed(values)
    np.testing.assert_array_equal(key.decrypt(session.extract_columns(packed, chosen)), values[chosen])


def test_arithmetic_treats_lanes_alike(key: ClientKey, session: Session) -> None:
    values = messages(6, 2) % 2
    x = key.encrypt(values)
    np.testing.assert_array_equal(key.decrypt(x + x[::-1]), values + values[::-1])
    np.testing.assert_array_equal(key.decrypt(x + np.arange(6) % 3), values + (np.arange(6) % 3)[:, None])
    np.testing.assert_array_equal(key.decrypt(2 - x), 2 - values)
    np.testing.assert_array_equal(key.decrypt(3 * x), 3 * values)
    weights = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 2, 0, 0, 1]])
    np.testing.assert_array_equal(key.decrypt(session.linear(weights, x)), weights @ values)
    packed = key.encrypt_packed(values)
    np.testing.assert_array_equal(key.decrypt(session.linear_packed(weights, packed)), weights @ values)


def test_look_ups(key: ClientKey, session: Session) -> None:
    values = messages(9, 2)
    x = key.encrypt(values)
    np.testing.assert_array_equal(key.decrypt(session.bootstrap(x, lambda m: (3 * m + 1) % 4)), (3 * values + 1) % 4)
    tables = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
    index = np.arange(9) % 2
    expected = np.where(index[:, None] == 0, values, 3 - values)
    np.testing.assert_array_equal(key.decrypt(session.bootstrap(x, tables, table_index=index)), expected)
    small = key.encrypt(values % 2).with_message_bound(0, 1)
    shifted = key.decrypt(session.bootstrap(small, [3, 1, 0, 2], shifts=[0, 1, 2]))
    np.testing.assert_array_equal(shifted, np.array([3, 1, 0, 2])[values[:, None, :] % 2 + np.arange(3)[:, None]])
    full = key.encrypt(values, encoding=Encoding.FULL_DOMAIN)
    np.testing.assert_array_equal(
        key.decrypt(session.bootstrap_full_domain(full, [2, 2, 0, 1])), np.array([2, 2, 0, 1])[values]
    )


def test_integers_of_a_modulus(key: ClientKey) -> None:
    values = np.array([[5, -3], [1000, 7]])
    integers = key.encrypt_integers(values, 4096)
    np.testing.assert_array_equal(key.decrypt_integers(integers + integers), (2 * values) % 4096)


def test_gates() -> None:
    key = ClientKey.generate("toy_lanes_block")
    session = Session(key.evaluation_keys())
    a, b = (messages(8, 2, seed)[..., 0] % 2 == 1 for seed in (3, 4))
    x, y = key.encrypt(a), key.encrypt(b)
    for gate, expected in (("AND", a & b), ("XOR", a ^ b), ("NOR", ~(a | b)), ("ORYN", a | ~b)):
        np.testing.assert_array_equal(key.decrypt(session.gate(gate, x, y)), expected)
    np.testing.assert_array_equal(key.decrypt(session.gate("MUX", x, y, -y)), np.where(a, b, ~b))
    mixed = np.array(["AND", "XOR"] * 4)
    np.testing.assert_array_equal(
        key.decrypt(session.gate(mixed, x, y)), np.where((mixed == "AND")[:, None], a & b, a ^ b)
    )


def test_answers_are_rerandomised_in_every_lane(key: ClientKey, session: Session) -> None:
    values = messages(4, 2)
    x = session.bootstrap(key.encrypt(values), [0, 1, 2, 3])
    fresh = session.rerandomise(x)
    assert (fresh.words != x.words).mean() > 0.999
    np.testing.assert_array_equal(key.decrypt(fresh), values)


def test_a_lane_decrypts_only_under_its_own_key(key: ClientKey) -> None:
    """The keys of a client whose lanes are exchanged read nothing: 2 bits of 400 values agree by chance."""
    p = key.parameters
    secret = np.frombuffer(key._secret_key.export(), dtype=np.int8)
    small = secret[: 2 * p.lwe_dimension].reshape(2, -1)[::-1]
    large = secret[2 * p.lwe_dimension :].reshape(2, -1)[::-1]
    exchanged = _engine.SecretKey.restore(p, np.concatenate([small.ravel(), large.ravel()]).tobytes())
    other = ClientKey(exchanged, key.key_id)
    values = messages(400, 2)
    ciphertexts = key.encrypt(values)
    agree = (other.decrypt(ciphertexts) == values).mean(axis=0)
    assert (np.abs(agree - 1 / 8) < 0.08).all()  # of eight messages with the padding bit; sd 0.0165
    np.testing.assert_array_equal(key.decrypt(ciphertexts), values)


# --- files and the wire -------------------------------------------------------------------------------------------------------------


def test_objects_come_back(key: ClientKey) -> None:
    values = messages(3, 2)
    objects = [key.encrypt(values), key.encrypt(values, seeded=True), key.encrypt_packed(values)]
    objects += [key.encrypt_packed(values, seeded=False)]  # type: ignore[list-item]
    for item in objects:
        data = item.to_bytes()
        again = load_ciphertexts(data)
        assert again.shape == (3,)
        np.testing.assert_array_equal(key.decrypt(again), values)
        for size in (len(data) - 1, len(data) + 1):
            with pytest.raises(SerializationError):
                load_ciphertexts((data + b"\0")[:size])
    switched = SwitchedCiphertexts.switch(key.encrypt(values), 12)
    np.testing.assert_array_equal(key.decrypt(load_results(switched.to_bytes())), values)
    public = PublicKey.from_bytes(key.public_key().to_bytes())
    np.testing.assert_array_equal(key.decrypt(public.encrypt(values)), values)


def test_evaluation_keys_come_back(key: ClientKey) -> None:
    values = messages(5, 2)
    keys = key.evaluation_keys()
    data = keys.to_bytes()
    assert len(data) == upload_bytes(key.parameters)
    session = Session(EvaluationKeys.from_bytes(data))
    np.testing.assert_array_equal(key.decrypt(session.bootstrap(key.encrypt(values), [1, 2, 3, 0])), (values + 1) % 4)


def test_the_secret_key_comes_back(key: ClientKey, tmp_path: Path) -> None:
    key.save(tmp_path / "key", "correct horse battery staple")
    again = ClientKey.load(tmp_path / "key", "correct horse battery staple")
    values = messages(5, 2)
    np.testing.assert_array_equal(again.decrypt(key.encrypt(values)), values)
    p = key.parameters
    with pytest.raises(SerializationError, match=f"expected {2 * (p.lwe_dimension + p.large_dimension)} bytes"):
        _engine.SecretKey.restore(p, key._secret_key.export()[: p.lwe_dimension + p.large_dimension])


def test_a_block_of_the_second_lane_is_checked_too() -> None:
    p = _engine.parameter_set("toy_lanes_block")
    data = bytearray(_engine.SecretKey.generate(p).export())
    data[p.lwe_dimension : p.lwe_dimension + 3] = bytes([1, 1, 0])
    with pytest.raises(SerializationError, match="blocks of 3"):
        _engine.SecretKey.restore(p, bytes(data))


def test_other_sets_do_not_take_them(key: ClientKey) -> None:
    """The shapes are those of `toy`, the digest and the words are not."""
    toy = parameter_set("toy")
    assert "lane_count=2\n" in parameter_text(key.parameters) and "lane_count" not in parameter_text(toy)
    assert parameter_digest(toy) != parameter_digest(key.parameters)
    with pytest.raises(KeyMismatchError):
        load_ciphertexts(key.encrypt([1, 2]).to_bytes(), parameters=toy)
    with pytest.raises(ShapeError, match=r"\[\.\., 258\]"):
        Ciphertexts.from_words(key.parameters, np.zeros((3, toy.large_dimension + 1), np.uint32))
    words = np.zeros((3, key.parameters.large_words), np.uint32)
    np.testing.assert_array_equal(key.decrypt(Ciphertexts.from_words(key.parameters, words)), np.zeros((3, 2)))
    _, bodies = _engine.SecretKey.generate(toy).encrypt_lwe_seeded(np.zeros(4, np.uint64))
    with pytest.raises(ShapeError, match=r"shape \[\*, 2\]"):
        _engine.expand_lwe(key.parameters, bytes(32), bodies)
