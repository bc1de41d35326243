"""Between which integers messages may lie, and that no look-up reads beyond its table without a word."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloakwork.fhe_core import wire
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededCiphertexts, concatenate
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError, PrecisionOverflowError, SerializationError, ShapeError
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.lookup_tables import LookupTables
from cloakwork.fhe_core.switched_ciphertexts import load_ciphertexts

TABLE = [1, 2, 3, 0]


@pytest.fixture(scope="module", params=["toy"])
def key(request: pytest.FixtureRequest) -> ClientKey:
    return ClientKey.generate(request.param)


@pytest.fixture(scope="module")
def session(key: ClientKey) -> Session:
    return Session(key.evaluation_keys())


def test_a_sum_that_may_wrap_is_refused() -> None:
    """15 + 15 on lut4 gave f of a wrapped value before."""
    key = ClientKey.generate("lut4_64")
    session = Session(key.evaluation_keys())
    x, y = key.encrypt([15]), key.encrypt([15])
    with pytest.raises(
        PrecisionOverflowError, match=r"messages in \[0, 16\).*may lie in \[0, 30\].*with_message_bound"
    ):
        session.bootstrap(x + y, lambda m: m)
    with pytest.raises(PrecisionOverflowError, match=r"\[0, 30\]"):
        session.bootstrap(x + x, lambda m: m)


@pytest.mark.parametrize(
    ("make", "least", "largest"),
    [
        (lambda x, y: x + y, 0, 6),
        (lambda x, y: x - y, -3, 3),
        (lambda x, y: -x, -3, 0),
        (lambda x, y: 3 - x, 0, 3),
        (lambda x, y: x + 5 - 7, -2, 1),
        (lambda x, y: x * 2 - 3, -3, 3),
        (lambda x, y: x * [-1, 1, 2], -3, 6),
        (lambda x, y: (x * [-1, 1, 2])[1:], 0, 6),
        (lambda x, y: (x * [-1, 1, 2])[:2], -3, 3),
        (lambda x, y: x + np.array([0, 1, 5]), 0, 8),
        (lambda x, y: concatenate([x, x + y])[2:4], 0, 6),
        (lambda x, y: concatenate([x, x + y])[:3], 0, 3),
        (lambda x, y: (x + y).reshape(3, 1).copy(), 0, 6),
        (lambda x, y: x[:, None] + y[None], 0, 6),
        (lambda x, y: x.add_torus_constant(1, 8), 1, 4),
        (lambda x, y: x.add_torus_constant(-1, 16), -1, 3),
        (lambda x, y: x * 0, 0, 0),
        (lambda x, y: x.with_message_bound(1, 2) + y, 1, 5),
        (lambda x, y: x.with_encoding(Encoding.MESSAGE), 0, 3),
        (lambda x, y: x.with_encoding(Encoding.FULL_DOMAIN).with_encoding(Encoding.MESSAGE), 0, 7),
    ],
)
def test_bounds_of_operations(key: ClientKey, session: Session, make: object, least: int, largest: int) -> None:
    x, y = key.encrypt([0, 1, 3]), key.encrypt([3, 0, 2])
    result = make(x, y)  # type: ignore[operator]
    assert result.message_bound == (least, largest)
    if 0 <= least and largest <= 3:
        session.bootstrap(result, TABLE)
    else:
        with pytest.raises(PrecisionOverflowError, match=rf"may lie in \[{least}, {largest}\]"):
            session.bootstrap(result, TABLE, allow_noise=True)


@settings(max_examples=25, deadline=None)
@given(weights=st.lists(st.integers(-5, 5), min_size=3, max_size=3), constant=st.integers(-9, 9))
def test_bounds_of_linear_layers_are_reached_and_never_passed(weights: list[int], constant: int) -> None:
    key, session = _toy()
    corners = np.array(np.meshgrid(*[[0, 3]] * 3)).reshape(3, -1).T
    values = corners @ np.array(weights) + constant
    outputs = session.linear([weights], key.encrypt(corners)) + constant
    assert outputs.message_bound == (values.min(), values.max())
    assert session.linear_packed([weights], key.encrypt_packed(corners)).message_bound == (
        values.min() - constant,
        values.max() - constant,
    )


_MADE: list[tuple[ClientKey, Session]] = []


def _toy() -> tuple[ClientKey, Session]:
    if not _MADE:
        key = ClientKey.generate("toy")
        _MADE.append((key, Session(key.evaluation_keys())))
    return _MADE[0]


def test_outputs_of_look_ups_know_their_tables(key: ClientKey, session: Session) -> None:
    x = key.encrypt([0, 1, 3])
    bits = session.bootstrap(x, [0, 0, 1, 1])
    assert bits.message_bound == (0, 1)
    total = bits + bits[::-1] + bits[[1, 2, 0]]
    assert total.message_bound == (0, 3)
    session.bootstrap(total, TABLE)
    outputs = session.bootstrap(x, [[0, 0, 1, 1], [2, 3, 2, 2]], table_index=[0, 1, 1])
    assert [outputs[i].message_bound for i in range(3)] == [(0, 1), (2, 3), (2, 3)]
    shifted = session.bootstrap(x.with_message_bound(0, 2)[:2], [[0, 0, 1, 1], [2, 3, 2, 2]], shifts=[0, 1])
    assert shifted.shape == (2, 2)
    assert [shifted[i].message_bound for i in range(2)] == [(0, 1), (2, 3)]
    full = key.encrypt([0, 1, 3], encoding=Encoding.FULL_DOMAIN)
    assert session.bootstrap_full_domain(full + full, [1, 0, 1, 0]).message_bound is None  # wraps around by definition
    assert session.bootstrap_full_domain(full, [1, 0, 1, 0], output=Encoding.MESSAGE).message_bound == (0, 1)
    tables = LookupTables.of_messages(key.parameters, [0, 0, 1, 1])
    assert session.bootstrap(x, tables).message_bound == (0, 1)
    with pytest.raises(PrecisionOverflowError):
        session.bootstrap(x + x, tables)


def test_shifts_stay_within_the_table(key: ClientKey, session: Session) -> None:
    x = key.encrypt([0, 1, 2])
    with pytest.raises(PrecisionOverflowError, match="plus shifts of up to 1"):
        session.bootstrap(x, TABLE, shifts=[0, 1])
    outputs = session.bootstrap(x.with_message_bound(0, 2), TABLE, shifts=[0, 1])
    np.testing.assert_array_equal(key.decrypt(outputs), [[1, 2], [2, 3], [3, 0]])


def test_claims_are_checked(key: ClientKey) -> None:
    x = key.encrypt([0, 1])
    with pytest.raises(ParameterError, match="least <= largest"):
        x.with_message_bound(2, 1)
    for wrong in (0.5, "1", True, None):
        with pytest.raises(ShapeError, match="two integers"):
            x.with_message_bound(0, wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="expected encoding message, got torus"):
        key.encrypt_torus([0.1]).with_message_bound(0, 1)
    assert key.encrypt_torus([0.1]).message_bound is None
    assert x.message_bound == (0, 3)  # unchanged by what was said of others


def test_bounds_of_giants_do_not_overflow(key: ClientKey, session: Session) -> None:
    x = key.encrypt([3])
    half = x * 2**30 * 2**30
    for giant in (half, half - half, half * 2 - half, half - x, session.linear([[2**30]], x * 2**30)):
        assert giant.weight_norm > 2.0**60 and np.isfinite(giant.weight_norm)
        assert Ciphertexts.from_bytes(giant.to_bytes()).weight_norm == 2.0**32
    for _ in range(40):
        x = x * (2**31 - 1)
    assert x.message_bound is not None and x.message_bound[1] > 2**60
    assert (x - x).message_bound is not None
    assert Ciphertexts.from_words(x.parameters, x.words, encoding=Encoding.MESSAGE).message_bound == (0, 3)


# --- files -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [(0, 0), (0, 1), (0, 3), (-3, 3), (0, 7), (5, 5), (-(2**22), 2**22), (-7, -1)])
def test_bounds_survive_files(key: ClientKey, session: Session, bound: tuple[int, int], tmp_path: Path) -> None:
    values = key.encrypt([0, 1])
    things = [values, values + values, key.encrypt([0], seeded=True), key.encrypt_packed([0])]
    things.append(key.encrypt_packed([0], seeded=False))
    for thing in things:
        said = thing.with_message_bound(*bound)
        said.save(tmp_path / "x")
        loaded = type(thing).load(tmp_path / "x")
        assert loaded.message_bound == bound
        assert loaded.to_bytes() == said.to_bytes()
        assert load_ciphertexts(said.to_bytes()).message_bound == bound
    packed = key.encrypt_packed([0, 1]).with_message_bound(*bound)
    assert session.extract(packed).message_bound == bound


def test_bounds_too_wide_for_the_field_are_unknown(key: ClientKey) -> None:
    loaded = Ciphertexts.from_bytes((key.encrypt([1]) * 2**23).to_bytes())
    assert loaded.message_bound is not None
    assert loaded.message_bound[0] < -(2**60) and loaded.message_bound[1] > 2**60
    assert Ciphertexts.from_bytes(loaded.to_bytes()).message_bound == loaded.message_bound


def test_files_without_a_bound(key: ClientKey, session: Session) -> None:
    """Those of older releases: messages of their own range when the noise is one ciphertext's, anything that decodes otherwise."""
    for x, bound in ((key.encrypt([1, 2]), (0, 3)), (key.encrypt([1, 2]) + key.encrypt([1, 1]), (0, 7))):
        data = bytearray(x.to_bytes())
        data[106:112] = bytes(6)
        loaded = Ciphertexts.from_bytes(_mended(data))
        assert loaded.message_bound == bound
        assert loaded.to_bytes()[106:112] == bytes(6)
    with pytest.raises(PrecisionOverflowError, match=r"\[0, 7\]"):
        session.bootstrap(loaded, TABLE)
    session.bootstrap(loaded.with_message_bound(0, 3), TABLE)


def test_fields_that_are_not_written_are_refused(key: ClientKey) -> None:
    x = key.encrypt([1, 2])
    fields = [
        (3, 3),  # empty
        (0, 4),  # what zeros say
        (-(2**23), 5),
        (0, 2**23 - 1),
    ]
    for least, end in fields:
        data = bytearray(x.to_bytes())
        data[106:112] = least.to_bytes(3, "little", signed=True) + end.to_bytes(3, "little", signed=True)
        with pytest.raises(SerializationError, match="message bound"):
            Ciphertexts.from_bytes(_mended(data))
    for other in (key.encrypt_torus([0.1]), key.encrypt_bits([True]), key.public_key(), key.evaluation_keys()):
        data = bytearray(other.to_bytes())
        data[106:112] = struct.pack("<6B", 0, 0, 0, 2, 0, 0)
        with pytest.raises(SerializationError):
            type(other).from_bytes(_mended(data))


def _mended(data: bytearray) -> bytes:
    return bytes(data[:-32]) + hashlib.sha256(data[:-32]).digest()


def test_bounds_are_public_and_need_no_key(key: ClientKey) -> None:
    """They follow from the operations: equal for all values, and the header says no more."""
    small, large = key.encrypt([0, 0]), key.encrypt([3, 3])
    assert small.message_bound == large.message_bound
    assert wire.peek((small + small).to_bytes()).message_bound == wire.peek((large + large).to_bytes()).message_bound
    assert SeededCiphertexts.from_bytes(key.encrypt([0], seeded=True).to_bytes()).message_bound == (0, 3)
