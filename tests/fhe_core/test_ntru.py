"""NTRU accumulators: rows of their keys, words of the reference and the back ends, gates and look-ups, key files."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from emulation import some_of

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.parameters import offered_sets, parameter_set, require_structured
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session import lookup_tables
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys

TOYS = ["toy_ntru", "toy_ntru_lut"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
Z_LIMIT = 6.0  # deviations; two in 10^9 of fixed draws would be beyond


class Rotations(NamedTuple):
    session: _engine.CpuSession
    switched: np.ndarray
    tables: np.ndarray
    index: np.ndarray
    expected: np.ndarray  # of the first ciphertext and the last


@pytest.fixture(scope="module", params=TOYS)
def secret(request: pytest.FixtureRequest) -> _engine.SecretKey:
    return _engine.SecretKey.generate(_engine.parameter_set(request.param), bytes(range(1, 33)))


def ring_key(secret: _engine.SecretKey) -> np.ndarray:
    return np.frombuffer(secret.export(), np.int8)[secret.params.lwe_dimension :].astype(np.int64)


def times_ring_key(secret: _engine.SecretKey, polynomials: np.ndarray) -> np.ndarray:
    """-(c S): what an accumulator c says, by the phase of the GLWE ciphertext (c, 0); centred."""
    p = secret.params
    glwe = np.stack([polynomials, np.zeros_like(polynomials)], axis=-2).astype(np.uint32)
    phases = secret.phase_glwe(glwe.reshape(-1, 2, p.polynomial_size)).astype(np.int64)
    return np.where(phases > p.modulus // 2, phases - p.modulus, phases).reshape(polynomials.shape)


def test_every_row_divides_its_noise_by_the_ring_key(secret: _engine.SecretKey) -> None:
    """K S = G + m g_l S, so that -(K S) + m g_l S has the standard deviation of the set; the entry J has -2 J S = -(G + g_l) - g_l S."""
    p = secret.params
    seed, bodies, _ = secret.evaluation_keys()
    full = _engine.reference.expand_bootstrap_key(p, seed, bodies)
    assert full.shape == (p.step_count + 1, p.keys_per_step, p.row_count, 1, p.polynomial_size)
    assert np.array_equal(full.reshape(-1), bodies.reshape(-1))  # nothing of it follows from a seed
    base_log, levels = p.mask_gadget
    weights = 2 ** (27 - base_log * (np.arange(levels) + 1))
    ring, one = ring_key(secret), np.zeros(p.polynomial_size, np.int64)
    one[0] = 1
    small = np.frombuffer(secret.export(), np.int8)[: p.lwe_dimension].astype(np.int64)
    first, second = small[0::2], small[1::2]
    messages = np.stack([first * (1 - second), second * (1 - first), first * second], axis=1)
    phases = times_ring_key(secret, full[1:, :, :, 0])
    noise = phases + messages[:, :, None, None] * weights[:, None] * ring
    noise = (noise + p.modulus // 2) % p.modulus - p.modulus // 2
    assert abs(noise.mean()) < Z_LIMIT * p.key_sigma / math.sqrt(noise.size)
    assert abs(noise.var() / p.key_sigma**2 - 1) < Z_LIMIT * math.sqrt(2 / noise.size) + 1e-3
    assert np.abs(noise).max() < 10 * p.key_sigma

    entry = 2 * times_ring_key(secret, full[0, 0, :, 0]) + weights[:, None] * (one + ring)
    entry = (entry + p.modulus // 2) % p.modulus - p.modulus // 2
    assert abs(entry.var() / p.key_sigma**2 - 1) < Z_LIMIT * math.sqrt(2 / entry.size) + 1e-3
    assert np.abs(entry).max() < 10 * p.key_sigma
    assert not full[0, 1:].any()


@pytest.fixture(scope="module")
def rotations(secret: _engine.SecretKey) -> Rotations:
    """Of 33 ciphertexts, of which some exponents are 0; the schoolbook rotates the first and the last, which takes its time."""
    p = secret.params
    seed, bodies, keyswitch = secret.evaluation_keys()
    rng = np.random.default_rng(33)
    switched = rng.integers(0, 2 * p.polynomial_size, (33, p.small_words), dtype=np.uint32)
    switched[:, ::3] *= rng.integers(0, 2, switched[:, ::3].shape, dtype=np.uint32)
    tables = rng.integers(0, p.modulus, (2, p.polynomial_size), dtype=np.uint32)
    index = rng.integers(0, 2, 33, dtype=np.uint32)
    full = _engine.reference.expand_bootstrap_key(p, seed, bodies)
    expected = _engine.reference.blind_rotate(p, full, switched[[0, 32]], tables, index[[0, 32]])
    session = _engine.CpuSession(_engine.CpuKey(p, seed, bodies, keyswitch), threads=1)
    return Rotations(session, switched, tables, index, expected)


@pytest.mark.parametrize("batch", [0, 1, 2, 31, 33])
def test_the_cpu_has_the_words_of_the_reference(secret: _engine.SecretKey, rotations: Rotations, batch: int) -> None:
    p = secret.params
    rotated = rotations.session.blind_rotate(rotations.switched[:batch], rotations.tables, rotations.index[:batch])
    assert rotated.shape == (batch, 2, p.polynomial_size) and not rotated[:, 1].any()
    for item, words in zip((0, 32), rotations.expected, strict=True):
        if item < batch:
            np.testing.assert_array_equal(rotated[item], words.reshape(2, p.polynomial_size))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "batch", [2, *(pytest.param(batch, marks=pytest.mark.tier("all")) for batch in (1, 3, 5, 150, 400))]
)
def test_a_device_has_the_words_of_the_cpu(secret: _engine.SecretKey, batch: int) -> None:
    """One ciphertext (the latency layout), several, and more than a wave; rotations whole and extracted at several coefficients."""
    p = secret.params
    keys = secret.evaluation_keys()
    host = _engine.CpuSession(_engine.CpuKey(p, *keys), threads=2)
    device = _engine.CudaSession(_engine.CudaKey(p, *keys, device=0))
    rng = np.random.default_rng(batch)
    switched = rng.integers(0, 2 * p.polynomial_size, (batch, p.small_words), dtype=np.uint32)
    tables = rng.integers(0, p.modulus, (2, p.polynomial_size), dtype=np.uint32)
    index = rng.integers(0, 2, batch, dtype=np.uint32)
    np.testing.assert_array_equal(
        device.blind_rotate(switched, tables, index), host.blind_rotate(switched, tables, index)
    )
    lwe = rng.integers(0, p.modulus, (batch, p.large_words), dtype=np.uint32)
    coefficients = np.array([0, 1, p.polynomial_size - 1], np.uint32)
    np.testing.assert_array_equal(
        device.bootstrap(lwe, tables, index, coefficients), host.bootstrap(lwe, tables, index, coefficients)
    )


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, gate_key: ClientKey) -> Iterator[Session]:
    yield Session(gate_key.evaluation_keys(), device=request.param)


@pytest.fixture(scope="module")
def gate_key() -> ClientKey:
    return ClientKey.generate("toy_ntru")


@pytest.mark.parametrize("gate", ["NAND", "XOR", "MUX", "MAJORITY"])
def test_gates(gate_key: ClientKey, session: Session, gate: str) -> None:
    count = 2 if gate in ("NAND", "XOR") else 3
    rows = np.array(list(itertools.product([False, True], repeat=count)))
    inputs = list(some_of(session, np.tile(rows, (5, 1)), len(rows)).T)
    a, b, c = (*inputs, inputs[0])[:3]
    clear = {"NAND": ~(a & b), "XOR": a ^ b, "MUX": np.where(a, b, c), "MAJORITY": a.astype(int) + b + c >= 2}
    once = session.gate(gate, *(gate_key.encrypt_bits(bits) for bits in inputs))
    np.testing.assert_array_equal(gate_key.decrypt(once), clear[gate])
    again = session.gate("AND", once, gate_key.encrypt_bits(np.ones(len(inputs[0]), bool)))  # outputs as inputs
    np.testing.assert_array_equal(gate_key.decrypt(again), clear[gate])


def test_the_entry_takes_every_table() -> None:
    """Tables of one value, of alternating largest words, and random ones: digits of the entry are those of the table, not of noise."""
    secret = _engine.SecretKey.generate(_engine.parameter_set("toy_ntru_lut"), bytes(range(2, 34)))
    p = secret.params
    session = _engine.CpuSession(_engine.CpuKey(p, *secret.evaluation_keys()), threads=1)
    size, half = p.polynomial_size, p.modulus // 2
    rng = np.random.default_rng(7)
    tables = np.stack(
        [
            np.zeros(size),
            np.full(size, half),
            np.where(np.arange(size) % 2, half, half + 1),
            rng.integers(0, p.modulus, size),
        ]
    ).astype(np.uint32)
    rotations = np.array([0, 5, size - 1, size, 2 * size - 1])
    for number, table in enumerate(tables):
        switched = np.zeros((len(rotations), p.small_words), np.uint32)
        switched[:, -1] = rotations
        phases = secret.phase_glwe(
            session.blind_rotate(switched, tables, np.full(len(rotations), number, np.uint32))
        ).astype(np.int64)
        turned = np.concatenate([table, (p.modulus - table.astype(np.int64)) % p.modulus])
        for phase, rotation in zip(phases, rotations, strict=True):
            expected = turned[(np.arange(size) + rotation) % (2 * size)]
            error = (phase - expected + half) % p.modulus - half
            assert np.abs(error).max() < p.modulus * 2**-10


def test_look_ups_of_sums() -> None:
    key = ClientKey.generate("toy_ntru_lut")
    session = Session(key.evaluation_keys())
    values = np.arange(4)
    square = session.bootstrap(key.encrypt(values), [x * x % 4 for x in range(4)])
    np.testing.assert_array_equal(key.decrypt(square), values**2 % 4)
    again = session.bootstrap(square, lookup_tables.LookupTables.of_messages(key.parameters, [3, 2, 1, 0]))
    np.testing.assert_array_equal(key.decrypt(again), 3 - values**2 % 4)


def test_key_files() -> None:
    key = ClientKey.generate("toy_ntru")
    data = key.evaluation_keys().to_bytes()
    keys = EvaluationKeys.from_bytes(data)
    assert keys.parameters.name == "toy_ntru" and keys.to_bytes() == data
    for damaged in (data[:-1], data[: len(data) // 2], data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]):
        with pytest.raises(SerializationError):
            EvaluationKeys.from_bytes(damaged)
    with pytest.raises(KeyMismatchError):
        EvaluationKeys.from_bytes(data, parameters=_engine.parameter_set("toy_gate"))


def test_a_ring_key_without_an_inverse_is_refused() -> None:
    """Zero, and X^(N/2) + 11520 has small coefficients of which none but a ternary multiple is; so the zero key alone can be made by hand."""
    p = _engine.parameter_set("toy_ntru")
    altered = np.frombuffer(_engine.SecretKey.generate(p).export(), np.int8).copy()
    altered[p.lwe_dimension :] = 0
    with pytest.raises(SerializationError, match="expected an invertible polynomial"):
        _engine.SecretKey.restore(p, altered.tobytes())
    altered[p.lwe_dimension] = 1  # S = 1
    assert _engine.SecretKey.restore(p, altered.tobytes()).export() == altered.tobytes()


def test_taken_by_name_and_when_asked_for_alone() -> None:
    params = parameter_set("gate_ntru")
    assert params.structured_secret and params.security_bits >= 132
    names = {each.name for each in offered_sets(structured=True)}
    assert names.isdisjoint({"gate_ntru", "lut4_ntru", *TOYS})
    with pytest.raises(ParameterError, match="divides noise"):
        require_structured(params, False)
    require_structured(params, True)
