"""Rotations whose digits select keys: words of the CPU, gates and key files of sets with a Gaussian small key."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from emulation import some_of

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError, SerializationError
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def key() -> ClientKey:
    return ClientKey.generate("toy_ap_gate")


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, key: ClientKey) -> Iterator[Session]:
    yield Session(key.evaluation_keys(), device=request.param)


class Rotations(NamedTuple):
    params: _engine.ParameterSet
    session: _engine.CpuSession
    switched: np.ndarray
    tables: np.ndarray
    index: np.ndarray
    expected: dict[int, np.ndarray]  # of some ciphertexts


def later(*names: str) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.tier("all")) for name in names]


@pytest.fixture(
    scope="module", params=["toy_ap", "toy_ap_gate", *later("toy_ap_ternary", "toy_ap_two_limb", "toy_ap_raised")]
)
def rotations(request: pytest.FixtureRequest) -> Rotations:
    """Of 33 ciphertexts, three by the schoolbook, which takes its time. Every third mask word may be 0, so that blocks have ciphertexts that
    take a step and ciphertexts that skip it."""
    params = _engine.parameter_set(request.param)
    seed, bodies, keyswitch = _engine.SecretKey.generate(params, bytes([33] * 32)).evaluation_keys()
    rng = np.random.default_rng(33)
    switched = rng.integers(0, 2 * params.polynomial_size, (33, params.small_words), dtype=np.uint32)
    switched[:, ::3] *= rng.integers(0, 2, switched[:, ::3].shape, dtype=np.uint32)
    tables = rng.integers(0, params.modulus, (2, params.polynomial_size), dtype=word_dtype(params))
    index = rng.integers(0, 2, 33, dtype=np.uint32)
    some = [0, 31, 32]
    full = _engine.reference.expand_bootstrap_key(params, seed, bodies)
    expected = _engine.reference.blind_rotate(params, full, switched[some], tables, index[some])
    session = _engine.CpuSession(_engine.CpuKey(params, seed, bodies, keyswitch), threads=1)
    return Rotations(params, session, switched, tables, index, dict(zip(some, expected, strict=True)))


@pytest.mark.parametrize("batch", [0, 1, 31, 32, 33])
def test_the_cpu_has_the_words_of_the_reference(rotations: Rotations, batch: int) -> None:
    params = rotations.params
    rotated = rotations.session.blind_rotate(rotations.switched[:batch], rotations.tables, rotations.index[:batch])
    shape = (params.component_count, params.polynomial_size)
    assert rotated.shape == (batch, *shape)
    for item, words in rotations.expected.items():
        if item < batch:
            np.testing.assert_array_equal(rotated[item], words.reshape(shape))


@pytest.mark.parametrize("gate", ["AND", "XNOR", "MUX", "MAJORITY"])
def test_gates(key: ClientKey, session: Session, gate: str) -> None:
    count = 2 if gate in ("AND", "XNOR") else 3
    rows = np.array(list(itertools.product([False, True], repeat=count)))
    inputs = list(some_of(session, np.tile(rows, (11, 1)), len(rows)).T)
    a, b, c = (*inputs, inputs[0])[:3]
    clear = {"AND": a & b, "XNOR": a == b, "MUX": np.where(a, b, c), "MAJORITY": a.astype(int) + b + c >= 2}
    outputs = session.gate(gate, *(key.encrypt_bits(bits) for bits in inputs))
    np.testing.assert_array_equal(key.decrypt(outputs), clear[gate])


def test_exponents_of_every_digit(key: ClientKey) -> None:
    """One mask word t, all others 0: the table is turned by t s for every t, s the secret coefficient."""
    params = _engine.parameter_set("toy_ap_gate")
    secret = _engine.SecretKey.generate(params, bytes(range(32)))
    small = np.frombuffer(secret.export(), np.int8)[: params.lwe_dimension].astype(np.int64)
    session = _engine.CpuSession(_engine.CpuKey(params, *secret.evaluation_keys()), threads=1)
    size = params.polynomial_size
    table = np.full((1, size), params.modulus // 8, np.uint32)  # its sign changes where the exponent says
    place = int(np.argmax(np.abs(small)))
    switched = np.zeros((2 * size, params.small_words), np.uint32)
    switched[:, place] = np.arange(2 * size)
    rotated = session.blind_rotate(switched, table)
    negative = secret.phase_glwe(rotated.reshape(2 * size, -1, size)) > params.modulus // 2
    turned = (np.arange(size) - np.arange(2 * size)[:, None] * small[place]) % (2 * size)
    np.testing.assert_array_equal(negative, turned >= size)


def test_key_files(key: ClientKey) -> None:
    data = key.evaluation_keys().to_bytes()
    keys = EvaluationKeys.from_bytes(data)
    assert keys.parameters.name == "toy_ap_gate" and keys.to_bytes() == data
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    with pytest.raises(SerializationError):
        EvaluationKeys.from_bytes(bytes(damaged))
    with pytest.raises(SerializationError):
        EvaluationKeys.from_bytes(data[: len(data) // 2])
    with pytest.raises(KeyMismatchError):
        EvaluationKeys.from_bytes(data, parameters=_engine.parameter_set("toy_gate"))


def test_a_small_key_out_of_bounds_is_refused() -> None:
    params = _engine.parameter_set("toy_ap")
    data = _engine.SecretKey.generate(params).export()
    for value in (10, -10, 127, -128):
        altered = np.frombuffer(data, np.int8).copy()
        altered[params.lwe_dimension - 1] = value
        with pytest.raises(SerializationError, match=r"small key: expected coefficients in \[-9, 9\]"):
            _engine.SecretKey.restore(params, altered.tobytes())
    for value in (9, -9):
        altered[params.lwe_dimension - 1] = value
        assert _engine.SecretKey.restore(params, altered.tobytes()).export() == altered.tobytes()
