"""Keys of several parties: what the joint keys are, who can decrypt, flooding, hostile objects, key files."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import pickle
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core import _engine, noise, wire
from cloakwork.fhe_core.arrays.encoding import Encoding, centre
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import (
    CancelledError,
    FheError,
    KeyMismatchError,
    ParameterError,
    SerializationError,
    ShapeError,
)
from cloakwork.fhe_core.parameters import offered_sets, parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.session.lookup_tables import LookupTables
from cloakwork.fhe_core.threshold import flooding
from cloakwork.fhe_core.threshold.flooding import Leakage
from cloakwork.fhe_core.threshold.party import (
    EvaluationShare,
    JointPublicKey,
    PartialDecryption,
    Party,
    PublicShare,
    combine,
    combined_phases,
    common_reference,
    joint_evaluation_keys,
    joint_public_key,
)
from cloakwork.fhe_core.wire import keystore

TOYS = ["toy_2p", "toy_3p"]
# Of `test_bytes_are_pinned`: public share, evaluation share, evaluation keys, partial decryption, the party's key and what it committed to.
PINNED = ["075971ae5c210ecf", "112ea16db4b6db4b", "f9ee753b287ed9f0", "78e1762bcac501aa", "efb8766f231cffe2"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
Z_LIMIT = 6.0  # deviations; two in 10^9 of fixed draws would be beyond


@dataclass
class Ceremony:
    """All that the parties of one joint key made and sent."""

    parties: list[Party]
    commitments: list[bytes]
    contributions: list[bytes]
    shares: list[PublicShare]
    joint: JointPublicKey
    evaluation_shares: list[EvaluationShare]
    keys: EvaluationKeys

    def decrypt(self, ciphertexts: Any) -> Any:
        return combine(ciphertexts, [party.partial_decrypt(ciphertexts) for party in self.parties])


def ceremony(name: str, entropy: int = 1) -> Ceremony:
    params = parameter_set(name)
    parties = [Party._from_entropy(name, index, bytes([entropy] * 32)) for index in range(params.party_count)]
    commitments, contributions = [party.commitment for party in parties], [party.contribution for party in parties]
    shares = [party.public_share(commitments, contributions) for party in parties]
    joint = joint_public_key(shares, [share.commitment for share in shares])
    evaluation_shares = [party.evaluation_share(joint) for party in parties]
    keys = joint_evaluation_keys(joint, evaluation_shares)
    return Ceremony(parties, commitments, contributions, shares, joint, evaluation_shares, keys)


@pytest.fixture(scope="module", params=TOYS)
def made(request: pytest.FixtureRequest) -> Ceremony:
    return ceremony(request.param)


@pytest.fixture(scope="module")
def two() -> Ceremony:
    return ceremony("toy_2p")


@pytest.fixture(scope="module")
def session(made: Ceremony) -> Session:
    return Session(made.keys)


def secrets(made: Ceremony) -> tuple[np.ndarray, np.ndarray]:
    """The joint small key [n] and ring key [k, N], which nobody has outside of tests."""
    params = made.joint.parameters
    n = params.party_dimension
    exported = [np.frombuffer(party._key.export(), np.int8)[32:].astype(np.int64) for party in made.parties]
    ring = sum(secret[n:] for secret in exported).reshape(params.glwe_dimension, -1)
    return np.concatenate([secret[:n] for secret in exported]), ring


def joint_phases(made: Ceremony, glwe: np.ndarray) -> np.ndarray:
    """B - A (z_1 + z_2 + ..), centred."""
    params, total = made.joint.parameters, glwe[:, -1].astype(object)
    for party in made.parties:
        total = total - (glwe[:, -1].astype(object) - party._key.phase_glwe(glwe).astype(object))
    return centre(params, (total % params.modulus).astype(np.uint64))


def assert_noise(errors: np.ndarray, sigma: float) -> None:
    assert abs(errors.mean()) < Z_LIMIT * sigma / math.sqrt(errors.size) * 2  # draws of a row depend on each other
    assert abs(math.sqrt((errors.astype(float) ** 2).mean()) / sigma - 1) < 0.1


# --- what the keys are -----------------------------------------------------------------------------------------------------------


def test_the_joint_public_key_has_the_sum_of_the_ring_keys(made: Ceremony) -> None:
    params, public = made.joint.parameters, made.joint.public_key
    _, ring = secrets(made)
    zeros = np.zeros((40, params.polynomial_size), np.uint64)
    errors = joint_phases(made, _engine.public_encrypt_glwe(params, public.seed, public.bodies, zeros))
    assert_noise(errors.ravel(), math.sqrt(noise.public_key_variance(params)) * params.modulus)
    lowest, highest = (-2, 2) if params.glwe_secret == "ternary" else (0, 3)
    assert (ring.min(), ring.max()) == (lowest, highest)


def test_every_bootstrap_row_encrypts_its_bit_under_the_joint_key(made: Ceremony) -> None:
    """Phase E - m g_l S_i for a mask and E + m g_l for the body, with the products of the bits of a pair as m."""
    params = made.joint.parameters
    small, ring = secrets(made)
    first, second = small[0::2], small[1::2]
    bits = np.stack([first * (1 - second), second * (1 - first), first * second], axis=1)
    phases = joint_phases(made, made.keys.bootstrap_bodies.reshape(-1, params.component_count, params.polynomial_size))
    phases = phases.reshape(params.step_count, params.keys_per_step, params.row_count, -1)
    (mask_base, mask_levels), (body_base, body_levels) = params.mask_gadget, params.body_gadget
    one = np.zeros(params.polynomial_size, np.int64)
    one[0] = 1
    weighted = [-(2 ** (54 - mask_base * (level + 1))) * key for key in ring for level in range(mask_levels)]
    weighted += [2 ** (54 - body_base * (level + 1)) * one for level in range(body_levels)]
    errors = phases - bits[:, :, None, None] * np.array(weighted)
    errors = centre(params, (errors % params.modulus).astype(np.uint64))
    assert_noise(errors.ravel(), math.sqrt(noise.public_key_variance(params)) * params.modulus)


def test_every_keyswitch_row_encrypts_the_joint_ring_key(made: Ceremony) -> None:
    params = made.joint.parameters
    _, ring = secrets(made)
    rows = _engine.reference.expand_keyswitch_key(params, made.keys.seed, made.keys.keyswitch_bodies)
    rows = rows.reshape(-1, params.small_words)
    modulus, (base, levels) = 2**params.keyswitch_modulus_log2, params.keyswitch_gadget
    phases = rows[:, -1].astype(np.int64)
    for party in made.parties:
        phases = phases - (rows[:, -1].astype(np.int64) - party._key.phase_small(rows))
    weights = 2 ** (params.keyswitch_modulus_log2 - base * (np.arange(levels) + 1))
    errors = (phases - (ring.ravel()[:, None] * weights).ravel() + modulus // 2) % modulus - modulus // 2
    assert_noise(errors, params.lwe_sigma * math.sqrt(params.party_count))


def test_the_cpu_has_the_words_of_the_reference(made: Ceremony) -> None:
    params, keys = made.joint.parameters, made.keys
    reference = _engine.reference
    bootstrap = reference.expand_bootstrap_key(params, keys.seed, keys.bootstrap_bodies)
    assert np.array_equal(bootstrap.reshape(-1), keys.bootstrap_bodies.reshape(-1))  # nothing of it follows from a seed
    keyswitch = reference.expand_keyswitch_key(params, keys.seed, keys.keyswitch_bodies)
    cpu = _engine.CpuSession(_engine.CpuKey(params, keys.seed, keys.bootstrap_bodies, keys.keyswitch_bodies), threads=1)
    rng = np.random.default_rng(3)
    lwe = rng.integers(0, params.modulus, (3, params.large_words), dtype=np.uint64)
    tables = rng.integers(0, params.modulus, (2, params.polynomial_size), dtype=np.uint64)
    index = np.array([0, 1, 0], np.uint32)
    switched = reference.modulus_switch(params, reference.keyswitch(params, keyswitch, lwe))
    np.testing.assert_array_equal(cpu.modulus_switch(cpu.keyswitch(lwe)), switched)
    np.testing.assert_array_equal(
        cpu.blind_rotate(switched, tables, index), reference.blind_rotate(params, bootstrap, switched, tables, index)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 2, 33, pytest.param(300, marks=pytest.mark.tier("all"))])
@pytest.mark.parametrize(
    "name", [*TOYS, *(pytest.param(name, marks=pytest.mark.tier("all")) for name in ("lut3_2p", "lut3_3p"))]
)
def test_a_device_has_the_words_of_the_cpu(name: str, batch: int) -> None:
    params, keys = parameter_set(name), _device_ceremony(name).keys
    words = (keys.seed, keys.bootstrap_bodies, keys.keyswitch_bodies)
    cpu = _engine.CpuSession(_engine.CpuKey(params, *words), threads=4)
    cuda = _engine.CudaSession(_engine.CudaKey(params, *words, device=0))
    rng = np.random.default_rng(batch)
    lwe = rng.integers(0, params.modulus, (batch, params.large_words), dtype=np.uint64)
    tables = rng.integers(0, params.modulus, (2, params.polynomial_size), dtype=np.uint64)
    index = rng.integers(0, 2, batch, dtype=np.uint32)
    coefficients = np.array([0, 1, params.polynomial_size - 1], np.uint32)
    np.testing.assert_array_equal(cuda.keyswitch(lwe), cpu.keyswitch(lwe))
    np.testing.assert_array_equal(
        cuda.bootstrap(lwe, tables, index, coefficients), cpu.bootstrap(lwe, tables, index, coefficients)
    )


@functools.lru_cache(maxsize=1)
def _device_ceremony(name: str) -> Ceremony:
    return ceremony(name)


# --- who can do what -------------------------------------------------------------------------------------------------------------


def test_lookups_and_gates(made: Ceremony, session: Session) -> None:
    params = made.joint.parameters
    messages = np.arange(4)
    inputs = session.extract(made.joint.public_key.encrypt(messages))
    table = np.array([1, 2, 3, 0])
    once = session.bootstrap(inputs, LookupTables.of_messages(params, table))
    twice = session.bootstrap(once, LookupTables.of_messages(params, table))
    assert made.decrypt(once).tolist() == [1, 2, 3, 0] and made.decrypt(twice).tolist() == [2, 3, 0, 1]
    public = made.joint.public_key
    bits = np.array(list(itertools.product([False, True], repeat=2)))
    a, b = (session.extract(public.encrypt(column, encoding=Encoding.BOOLEAN)) for column in bits.T)
    assert made.decrypt(session.gate("NAND", a, b)).tolist() == [True, True, True, False]
    assert made.decrypt(session.gate("XOR", a, b)).tolist() == [False, True, True, False]
    answer = session.rerandomise(once)
    assert made.decrypt(answer).tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("lut3_2p", marks=pytest.mark.tier("all")),
        pytest.param("lut3_3p", marks=pytest.mark.tier("release")),
    ],
)
def test_shipped_sets(name: str, device: str) -> None:
    made = _device_ceremony(name)
    session, params = Session(made.keys, device=device), made.joint.parameters
    messages = np.arange(8)
    inputs = session.extract(made.joint.public_key.encrypt(messages))
    table = (3 * messages + 1) % 8
    output = session.bootstrap(inputs, LookupTables.of_messages(params, table))
    assert made.decrypt(output).tolist() == table.tolist()


def test_one_party_alone_has_noise(made: Ceremony, session: Session) -> None:
    """Without one part of the decryption the phase of every ciphertext is anywhere: 512 encryptions of one message, in 16 bins."""
    zeros = session.extract(made.joint.public_key.encrypt(np.zeros(512, np.int64)))
    partials = [party.partial_decrypt(zeros) for party in made.parties]
    assert not combine(zeros, partials).any()
    modulus = made.joint.parameters.modulus
    for missing in range(len(partials)):
        words = zeros.words[:, -1].astype(object)
        for partial in partials[:missing] + partials[missing + 1 :]:
            words = words - partial.words.astype(object)
        counts = np.bincount((words % modulus * 16 // modulus).astype(int), minlength=16)
        assert ((counts - 32) ** 2 / 32).sum() < 60  # chi-squared of 15 degrees of freedom: 2 in 10^7
        with pytest.raises(ParameterError, match="one of each of the . parties"):
            combine(zeros, partials[:missing] + partials[missing + 1 :])


def test_nobody_makes_a_whole_key() -> None:
    for name in ("toy_2p", "lut3_2p"):
        with pytest.raises(ParameterError, match="belong to 2 parties and nobody has them whole"):
            ClientKey.generate(name)
        params = parameter_set(name)
        with pytest.raises(ParameterError, match="nobody has them whole"):
            _engine.SecretKey.restore(params, bytes(params.lwe_dimension + params.large_dimension))
    with pytest.raises(ParameterError, match="keys of one owner"):
        Party.generate("toy_two_limb", 0)
    for index in (-1, 2):
        with pytest.raises(ParameterError, match=r"party: expected a number in \[0, 2\)"):
            Party.generate("toy_2p", index)
    assert not any(params.party_count > 1 for params in offered_sets(True))


def test_shares_under_the_same_masks_are_the_same(two: Ceremony) -> None:
    """Two of them with fresh noise would tell the ring key twice; and other masks have other noise."""
    party = two.parties[0]
    again = party.public_share(two.commitments, two.contributions)
    assert again.to_bytes() == two.shares[0].to_bytes()
    seed = bytes(31) + b"\1"
    assert np.array_equal(party._key.keyswitch_share(seed), party._key.keyswitch_share(seed))
    assert not np.array_equal(party._key.keyswitch_share(seed), party._key.keyswitch_share(bytes(32)))


def test_a_mask_is_flooded_once(two: Ceremony) -> None:
    """The same mask has the same flooding whatever body stands beside it and however often it is asked for; another margin has another."""
    session = Session(two.keys)
    one = session.extract(two.joint.public_key.encrypt(np.array([1, 2])))
    party = two.parties[1]
    assert np.array_equal(party.partial_decrypt(one).words, party.partial_decrypt(one + 1).words)
    other = party.partial_decrypt(one, margin=1 / 32)
    assert (party.partial_decrypt(one).words != other.words).all()


# --- flooding --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [256.0, 511.0, 512.0, 3e4, 2.0**31, 2.0**45])
def test_flooding_has_its_deviation(two: Ceremony, sigma: float) -> None:
    params = two.joint.parameters
    count = 4000
    masks = np.zeros((count, params.large_dimension), np.uint64)
    tags = np.arange(count * 32, dtype=np.uint64).astype(np.uint8).reshape(count, 32).copy()
    tags[:, :4] = np.arange(count, dtype="<u4")[:, None].view(np.uint8)
    found = centre(params, two.parties[0]._key.partial_phases(masks, tags, sigma)).astype(float)
    assert abs(found.mean()) < Z_LIMIT * sigma / math.sqrt(count)
    assert abs(found.std() / sigma - 1) < Z_LIMIT / math.sqrt(2 * count)
    kurtosis = (found**4).mean() / (found**2).mean() ** 2
    assert abs(kurtosis - 3) < Z_LIMIT * math.sqrt(24 / count)
    if sigma > 2000:  # low digits are as uniform as the highest
        assert abs(np.bincount((found % 32).astype(int), minlength=32) - count / 32).max() < 70


@pytest.mark.parametrize("sigma", [255.0, 2.0**50 * 1.01, math.inf, math.nan])
def test_flooding_refuses_other_deviations(two: Ceremony, sigma: float) -> None:
    with pytest.raises(ParameterError, match="flooding"):
        two.parties[0]._key.partial_phases(
            np.zeros((1, two.joint.parameters.large_dimension), np.uint64), np.zeros((1, 32), np.uint8), sigma
        )


def test_decryptions_carry_the_flooding_of_all_parties(made: Ceremony, session: Session) -> None:
    zeros = session.extract(made.joint.public_key.encrypt(np.zeros(1024, np.int64)))
    params = made.joint.parameters
    phases = combined_phases(zeros, [party.partial_decrypt(zeros) for party in made.parties])
    errors = centre(params, phases) / params.modulus
    sigma = flooding.flooding_sigma(params, 1 / 16, 1.0) * math.sqrt(params.party_count)
    assert abs(errors.std() / sigma - 1) < Z_LIMIT / math.sqrt(2 * 1024)
    assert flooding.decryption_margin(params, Encoding.MESSAGE) == 1 / 16


@pytest.mark.parametrize("name", ["lut3_2p", "lut3_3p"])
def test_failure_and_leakage_of_shipped_sets(name: str) -> None:
    """Noise and flooding of all parties together leave the margin with 2^-64; what is stated in docs/howto/threshold.md."""
    params = parameter_set(name)
    stated = {"lut3_2p": (3243, 66847), "lut3_3p": (606, 17315)}[name]
    for encoding, count in zip((Encoding.MESSAGE, Encoding.BOOLEAN), stated, strict=True):
        margin = flooding.decryption_margin(params, encoding)
        assert margin is not None
        sigma = flooding.flooding_sigma(params, margin, 1.0)
        variance = params.party_count * sigma**2 + noise.blind_rotation_variance(params) * noise.SD_INFLATION**2
        assert noise.log2_two_sided_tail(margin / math.sqrt(variance)) == pytest.approx(-64, abs=0.01)
        ratio = flooding.noise_ratio(params, sigma, 1.0)
        assert Leakage().decryptions_left(params.security_bits, ratio) == count
        assert Leakage().after(count, ratio).bits_lost(132) <= 4 < Leakage().after(count + 1, ratio).bits_lost(132)
        assert flooding.noise_ratio(params, sigma, 0.0) == ratio  # a header that claims no noise gains nothing


def test_the_bits_lost_are_those_of_the_best_order() -> None:
    for square_sum in (1e-4, 0.04, 1.0, 50.0):
        orders = np.geomspace(1.0001, 1e7, 200_000)
        best = ((1 - 1 / orders) * (132 - orders * square_sum / 2 * math.log2(math.e))).max()
        assert Leakage(square_sum, 0.0).bits_lost(132) == pytest.approx(132 - best, rel=1e-3)
    assert Leakage(1e9, 0.0).bits_lost(132) == 132


def test_a_used_up_key_refuses(made: Ceremony, session: Session) -> None:
    party = made.parties[0]
    ciphertexts = session.extract(made.joint.public_key.encrypt(np.arange(4)))
    ratio = party._flooding(ciphertexts, None)[1]
    used = Leakage().after(Leakage().decryptions_left(132, ratio) - 2, ratio)
    tired = Party(party._key, party.key_id, used)
    assert tired.decryptions_left(ciphertexts) == 2 and 3.99 < tired.bits_lost <= 4
    with pytest.raises(ParameterError, match="4 values are asked for and 2 are left"):
        tired.partial_decrypt(ciphertexts)
    tired.partial_decrypt(ciphertexts[:2])
    assert tired.decryptions_left(ciphertexts) == 0


def test_noisy_results_and_missing_margins_are_refused(two: Ceremony) -> None:
    session, party = Session(two.keys), two.parties[0]
    ciphertexts = session.extract(two.joint.public_key.encrypt(np.array([1])))
    noisy = type(ciphertexts).from_words(
        ciphertexts.parameters, ciphertexts.words, encoding=Encoding.MESSAGE, weight_norm=2.0**20, key_id=party.key_id
    )
    with pytest.raises(ParameterError, match="leave no room to hide it in"):
        party.partial_decrypt(noisy)
    real = session.extract(two.joint.public_key.encrypt(np.array([0.1]), encoding=Encoding.TORUS))
    for margin in (None, 0.0, -1.0, 0.3, math.nan):
        with pytest.raises(ParameterError, match="margin: expected a fraction"):
            party.partial_decrypt(real, margin=margin)
    values = combine(real, [party.partial_decrypt(real, margin=1 / 64) for party in two.parties])
    assert abs(values[0] - 0.1) < 1 / 64


# --- a ceremony that goes wrong --------------------------------------------------------------------------------------------------


def test_contributions_and_shares_are_those_that_were_committed_to(two: Ceremony) -> None:
    params = two.joint.parameters
    swapped = two.contributions[::-1]
    with pytest.raises(KeyMismatchError, match="party 0 is not the one that it committed to"):
        common_reference(params, two.commitments, swapped)
    with pytest.raises(ParameterError, match="commitments: expected one of each of the 2 parties"):
        common_reference(params, two.commitments[:1], two.contributions)
    with pytest.raises(ParameterError, match="expected 32 bytes of party 1"):
        common_reference(params, two.commitments, [two.contributions[0], b"short"])
    stranger = Party.generate("toy_2p", 0)
    with pytest.raises(KeyMismatchError, match="number 0 is not this party's"):
        stranger.public_share(two.commitments, two.contributions)
    commitments = [share.commitment for share in two.shares]
    rogue = replace(two.shares[1], bodies=two.shares[0].bodies)
    with pytest.raises(KeyMismatchError, match="party 1 is not the one that it committed to"):
        joint_public_key([two.shares[0], rogue], commitments)
    other = ceremony("toy_2p", 2)
    with pytest.raises(KeyMismatchError, match="another common reference string"):
        joint_public_key([two.shares[0], other.shares[1]], commitments)
    with pytest.raises(ParameterError, match="one of every party, got those of 0, 0"):
        joint_public_key([two.shares[0], two.shares[0]], commitments)
    with pytest.raises(ParameterError, match="got none"):
        joint_public_key([], [])
    three = ceremony("toy_3p")
    with pytest.raises(KeyMismatchError, match="expected parameter set 'toy_2p'"):
        joint_public_key([two.shares[0], three.shares[1]], commitments)
    assert joint_public_key(two.shares[::-1], commitments).key_id == two.joint.key_id


def test_a_party_makes_keys_for_one_joint_key_of_its_own(two: Ceremony) -> None:
    other = ceremony("toy_2p", 2)
    with pytest.raises(KeyMismatchError, match="not made of the share of this party"):
        two.parties[0].evaluation_share(other.joint)
    party = two.parties[0]
    changed = replace(two.joint, shares=(two.shares[0], replace(two.shares[1], bodies=two.shares[0].bodies)))
    with pytest.raises(KeyMismatchError, match="belongs to another one already"):
        party.evaluation_share(changed)
    with pytest.raises(KeyMismatchError, match="belongs to another joint key"):
        joint_evaluation_keys(two.joint, [two.evaluation_shares[0], other.evaluation_shares[1]])
    foreign = replace(two.evaluation_shares[1], belongs_to=other.joint.transcript)
    with pytest.raises(KeyMismatchError, match="made for another joint public key"):
        joint_evaluation_keys(two.joint, [two.evaluation_shares[0], foreign])
    with pytest.raises(KeyMismatchError, match="no evaluation share"):
        Party.generate("toy_2p", 0).partial_decrypt(
            Session(two.keys).extract(two.joint.public_key.encrypt(np.array([1])))
        )


def test_progress_can_cancel(two: Ceremony) -> None:
    seen: list[tuple[int, int]] = []
    two.parties[0].evaluation_share(two.joint, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] and [done for done, _ in seen] == sorted(done for done, _ in seen)
    with pytest.raises(CancelledError, match="evaluation share"):
        two.parties[0].evaluation_share(two.joint, lambda _done, _total: False)


def test_partial_decryptions_of_something_else(two: Ceremony) -> None:
    session = Session(two.keys)
    ciphertexts = session.extract(two.joint.public_key.encrypt(np.array([1, 2])))
    first, second = (party.partial_decrypt(ciphertexts) for party in two.parties)
    wrong = two.parties[1].partial_decrypt(ciphertexts[::-1])
    with pytest.raises(KeyMismatchError, match="party 1 is of other ciphertexts"):
        combine(ciphertexts, [first, wrong])
    with pytest.raises(KeyMismatchError, match="another joint key"):
        combine(ciphertexts, [first, replace(second, key_id=bytes(16))])
    with pytest.raises(ParameterError, match="one of every party"):
        combine(ciphertexts, [first, first])
    foreign = ceremony("toy_2p", 2)
    with pytest.raises(KeyMismatchError):
        foreign.parties[0].partial_decrypt(ciphertexts)
    with pytest.raises(ShapeError, match="at least one"):
        two.parties[0].partial_decrypt(ciphertexts[:0])


# --- bytes -----------------------------------------------------------------------------------------------------------------------


def objects(made: Ceremony) -> list[Any]:
    ciphertexts = Session(made.keys).extract(made.joint.public_key.encrypt(np.array([[1, 2, 3]])))
    return [made.shares[1], made.evaluation_shares[1], made.parties[1].partial_decrypt(ciphertexts)]


def test_shares_come_back(made: Ceremony, tmp_path: Path) -> None:
    for share in objects(made):
        data = share.to_bytes()
        assert type(share).from_bytes(data).to_bytes() == data
        share.save(tmp_path / "share")
        assert type(share).load(tmp_path / "share", parameters=made.joint.parameters).index == 1
    keys = EvaluationKeys.from_bytes(made.keys.to_bytes())
    assert np.array_equal(keys.bootstrap_bodies, made.keys.bootstrap_bodies) and keys.key_id == made.joint.key_id


def test_bytes_are_pinned() -> None:
    """Shares from fixed entropy: a change of a byte's meaning is a new version number of the kinds that it concerns."""
    made = ceremony("toy_2p", 7)
    inputs = Session(made.keys).extract(made.joint.public_key.encrypt(np.arange(4)))
    constant = type(inputs).from_words(
        inputs.parameters,
        np.arange(inputs.parameters.large_words, dtype=np.uint64)[None] << np.uint64(40),
        encoding=Encoding.MESSAGE,
        key_id=made.joint.key_id,
    )
    found = [
        made.shares[1].to_bytes(),
        made.evaluation_shares[1].to_bytes(),
        made.keys.to_bytes(),
        made.parties[1].partial_decrypt(constant).to_bytes(),
        made.parties[1]._key.export() + made.contributions[1] + made.commitments[1],
    ]
    digests = [hashlib.sha256(data).hexdigest()[:16] for data in found]
    assert digests == PINNED


def test_hostile_shares(made: Ceremony) -> None:
    kinds = {PublicShare, EvaluationShare, PartialDecryption}
    for share in objects(made):
        data, own = share.to_bytes(), type(share)
        for other in kinds - {own}:
            with pytest.raises(SerializationError, match="expected .*, got"):
                other.from_bytes(data)
        for hostile in (data[:-1], data + b"\0", data[:200], b"", b"PK" + data[2:], data[:-33] + b"\xff" + data[-32:]):
            with pytest.raises(SerializationError):
                own.from_bytes(hostile)
        with pytest.raises(SerializationError, match="expected at most 100 bytes"):
            own.from_bytes(data, max_bytes=100)
        stranger = replace(share, index=made.joint.parameters.party_count)
        with pytest.raises(SerializationError, match="expected a party below"):
            own.from_bytes(stranger.to_bytes())
        with pytest.raises(KeyMismatchError, match="expected parameter set"):
            own.from_bytes(data, parameters=parameter_set("toy"))
    with_id = replace(made.shares[0], key_id=bytes(range(16)))
    with pytest.raises(SerializationError, match="expected no key id"):
        PublicShare.from_bytes(with_id.to_bytes())


def test_sets_of_one_owner_have_no_shares() -> None:
    params = parameter_set("toy_two_limb")
    words = np.zeros((1, 256), np.uint64)
    with pytest.raises(SerializationError, match="keys of one owner"):
        PublicShare.from_bytes(PublicShare(params, 0, bytes(32), None, words).to_bytes())


def test_key_files(two: Ceremony, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keystore.save_secret, "__defaults__", (keystore.ScryptCost(log2_n=10),))
    party, path = two.parties[0], tmp_path / "party.key"
    ciphertexts = Session(two.keys).extract(two.joint.public_key.encrypt(np.array([1, 2])))
    party.partial_decrypt(ciphertexts)
    party.save(path, "one of two")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Party.load(path, "one of two")
    assert (again.index, again.key_id, again._leakage) == (0, party.key_id, party._leakage)
    assert again._key.export() == party._key.export() and again.contribution == party.contribution
    assert np.array_equal(again.partial_decrypt(ciphertexts).words, party.partial_decrypt(ciphertexts).words)
    with pytest.raises(KeyMismatchError, match="does not open"):
        Party.load(path, "another")
    with pytest.raises(SerializationError, match="expected secret key, got party key; a secret key must stay"):
        ClientKey.load(path, "one of two")
    with pytest.raises(SerializationError, match="must stay with its owner"):
        PublicShare.load(path)
    assert party._key.export() not in path.read_bytes()
    fresh = Party.generate("toy_2p", 1)
    fresh.save(path, "x")
    assert Party.load(path, "x").key_id is None
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(party)
    with pytest.raises(FheError):
        _engine.PartyKey.restore(two.joint.parameters, 0, party._key.export()[:-1])
    damaged = bytearray(party._key.export())
    damaged[40] = 7
    with pytest.raises(SerializationError, match=r"small key: expected coefficients in \[0, 1\]"):
        _engine.PartyKey.restore(two.joint.parameters, 0, bytes(damaged))
    assert wire.Kind.PARTY_KEY.is_secret
