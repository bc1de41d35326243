"""Hostile bytes: one test per class of error. Every one ends in an error of the tree, before memory is spent on it."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloakwork.fhe_core import wire
from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import FheError, KeyMismatchError, SerializationError
from cloakwork.fhe_core.parameters import parameter_set, public_key_bytes
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts, load_ciphertexts

# Offsets of docs/reference/wire_format.md.
VERSION, KIND, FLAGS, TOTAL, NAME, DIGEST, WEIGHT, ENCODING, RANK, BOUND, SHAPE = (
    4,
    6,
    7,
    8,
    16,
    48,
    96,
    104,
    105,
    106,
    112,
)


def mend(body: bytes | bytearray) -> bytes:
    """The body with a valid checksum, as somebody who wants it to be read would send it."""
    return bytes(body) + hashlib.sha256(body).digest()


def patched(data: bytes, offset: int, field: bytes) -> bytes:
    body = bytearray(data[:-32])
    body[offset : offset + len(field)] = field
    return mend(body)


def resized(data: bytes, change: bytes | int) -> bytes:
    """The body extended by bytes or shortened by a number of them, with its total and checksum mended."""
    body = bytearray(data[:-32] + change) if isinstance(change, bytes) else bytearray(data[: -32 - change])
    struct.pack_into("<Q", body, TOTAL, len(body) + 32)
    return mend(body)


@pytest.fixture(scope="module")
def key() -> ClientKey:
    return ClientKey._from_entropy("toy", bytes(32))


@pytest.fixture(scope="module")
def objects(key: ClientKey) -> dict[str, tuple[Any, bytes]]:
    """One of each public kind and form: its class and its bytes."""
    seeded = key.encrypt([1, 2, 3], seeded=True)
    packed = key.encrypt_packed([1, 2, 3])
    switched = SwitchedCiphertexts.switch(seeded.expand().with_purpose(bytes(range(32))), 20)
    made: list[Any] = [
        seeded,
        seeded.expand(),
        packed,
        packed.expand(),
        switched,
        key.public_key(),
        key.evaluation_keys(),
    ]
    return {type(thing).__name__: (type(thing), thing.to_bytes()) for thing in made}


ALL = [
    "SeededCiphertexts",
    "Ciphertexts",
    "SeededPackedCiphertexts",
    "PackedCiphertexts",
    "SwitchedCiphertexts",
    "PublicKey",
    "EvaluationKeys",
]


@pytest.fixture(scope="module")
def seeded(objects: dict[str, tuple[Any, bytes]]) -> bytes:
    return objects["SeededCiphertexts"][1]


@pytest.mark.parametrize("name", ALL)
def test_the_objects_themselves_are_read(objects: dict[str, tuple[Any, bytes]], name: str) -> None:
    cls, data = objects[name]
    assert cls.from_bytes(data).to_bytes() == data


# --- damage ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_truncated(objects: dict[str, tuple[Any, bytes]], name: str) -> None:
    cls, data = objects[name]
    for length in (0, 1, 4, 111, 112, 143, 144, 150, len(data) // 2, len(data) - 33, len(data) - 32, len(data) - 1):
        with pytest.raises(SerializationError, match="truncated"):
            cls.from_bytes(data[:length])


@pytest.mark.parametrize("name", ALL)
def test_extended(objects: dict[str, tuple[Any, bytes]], name: str) -> None:
    cls, data = objects[name]
    for extra in (b"\0", bytes(32), data):
        with pytest.raises(SerializationError, match="extended"):
            cls.from_bytes(data + extra)


@pytest.mark.parametrize("name", ALL)
def test_truncated_and_extended_with_mended_totals(objects: dict[str, tuple[Any, bytes]], name: str) -> None:
    cls, data = objects[name]
    for change in (1, 8, 32, b"\0", bytes(8), bytes(4096)):
        with pytest.raises(SerializationError, match="the counts of the header ask for"):
            cls.from_bytes(resized(data, change))


@settings(max_examples=300, deadline=None)
@given(position=st.integers(0), bit=st.integers(0, 7))
def test_flipped_bit(objects: dict[str, tuple[Any, bytes]], position: int, bit: int) -> None:
    for cls, data in objects.values():
        damaged = bytearray(data)
        damaged[position % len(data)] ^= 1 << bit
        with pytest.raises((SerializationError, KeyMismatchError)):
            cls.from_bytes(bytes(damaged))


def test_flipped_byte_in_the_words_is_found_by_the_checksum(seeded: bytes) -> None:
    damaged = bytearray(seeded)
    damaged[-40] ^= 1
    with pytest.raises(SerializationError, match="checksum does not match"):
        SeededCiphertexts.from_bytes(damaged)


# --- lies ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "field", "message"),
    [
        (0, b"PK\x03\x04", "magic bytes"),
        (VERSION, struct.pack("<H", 0), "format version 1, got 0"),
        (VERSION, struct.pack("<H", 2), "format version 1, got 2"),
        (KIND, b"\0", "kind from 1 to 10, got 0"),
        (KIND, b"\x07", "expected ciphertexts, got public share"),
        (KIND, b"\x0b", "kind from 1 to 10, got 11"),
        (KIND, b"\xff", "kind from 1 to 10, got 255"),
        (FLAGS, b"\x04", "flags from 0 to 3, got 4"),
        (FLAGS, b"\x81", "flags from 0 to 3, got 129"),
        (FLAGS, b"\x03", "the counts of the header ask for"),  # a purpose that is not there
        (NAME, bytes(32), "parameter set's name"),
        (NAME, b"toy\0toy".ljust(32, b"\0"), "parameter set's name"),
        (NAME, b"../../etc/passwd".ljust(32, b"\0"), "parameter set's name"),
        (NAME, b"\xff" * 32, "parameter set's name"),
        (NAME, b"lut99".ljust(32, b"\0"), "cannot be used: .*none called"),
        (WEIGHT, struct.pack("<d", float("nan")), "weight norm"),
        (WEIGHT, struct.pack("<d", float("inf")), "weight norm"),
        (WEIGHT, struct.pack("<d", -1.0), "weight norm"),
        (WEIGHT, struct.pack("<d", -0.0), "weight norm"),
        (WEIGHT, struct.pack("<d", 1e300), "weight norm"),
        (ENCODING, b"\x04", "encoding from 0 to 3, got 4"),
        (RANK, b"\x09", "at most 8 dimensions"),
        (RANK, b"\xff", "at most 8 dimensions"),
        (BOUND, b"\x01", "expected a message bound"),
        (BOUND + 5, b"\x80", "expected a message bound"),
        (SHAPE, struct.pack("<Q", 0), "dimensions of at least 1"),
        (SHAPE, struct.pack("<Q", 4), "the counts of the header ask for"),
        (SHAPE, struct.pack("<Q", 2**63), "the counts of the header ask for"),
        (SHAPE, struct.pack("<Q", 2**64 - 1), "the counts of the header ask for"),
        (RANK, b"\x00", "the counts of the header ask for"),
    ],
)
def test_header_field(seeded: bytes, offset: int, field: bytes, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        SeededCiphertexts.from_bytes(patched(seeded, offset, field))


def test_message_encoding_of_a_set_without_messages() -> None:
    data = ClientKey.generate("gate_64").encrypt([True], seeded=True).to_bytes()
    with pytest.raises(SerializationError, match="has no integer messages"):
        SeededCiphertexts.from_bytes(patched(data, ENCODING, b"\x01"))


def test_wrong_parameter_digest(seeded: bytes) -> None:
    with pytest.raises(KeyMismatchError, match="another version of parameter set 'toy'"):
        SeededCiphertexts.from_bytes(patched(seeded, DIGEST, bytes(32)))


def test_another_sets_name_with_this_sets_digest(seeded: bytes) -> None:
    with pytest.raises(KeyMismatchError, match="another version of parameter set 'lut4'"):
        SeededCiphertexts.from_bytes(patched(seeded, NAME, b"lut4".ljust(32, b"\0")))


@pytest.mark.parametrize("name", ["PublicKey", "EvaluationKeys"])
@pytest.mark.parametrize(
    ("offset", "field"), [(FLAGS, b"\0"), (RANK, b"\1"), (ENCODING, b"\1"), (WEIGHT, struct.pack("<d", 1.0))]
)
def test_ciphertext_fields_in_a_key(
    objects: dict[str, tuple[Any, bytes]], name: str, offset: int, field: bytes
) -> None:
    cls, data = objects[name]
    with pytest.raises(SerializationError, match="fields that this kind does not have"):
        cls.from_bytes(patched(data, offset, field))


@pytest.mark.parametrize("expected", ALL)
@pytest.mark.parametrize("given_name", ALL)
def test_one_object_for_another(objects: dict[str, tuple[Any, bytes]], expected: str, given_name: str) -> None:
    if expected == given_name:
        return
    with pytest.raises(SerializationError, match="expected .*, got"):
        objects[expected][0].from_bytes(objects[given_name][1])


def test_keys_are_not_ciphertexts(objects: dict[str, tuple[Any, bytes]]) -> None:
    with pytest.raises(SerializationError, match="expected ciphertexts, got evaluation keys"):
        load_ciphertexts(objects["EvaluationKeys"][1])


def test_secret_key_where_a_public_object_is_expected(tmp_path: Any, key: ClientKey) -> None:
    key.save(tmp_path / "client.key", "passphrase")
    data = (tmp_path / "client.key").read_bytes()
    readers = [
        EvaluationKeys.from_bytes,
        PublicKey.from_bytes,
        Ciphertexts.from_bytes,
        SeededPackedCiphertexts.from_bytes,
    ]
    for reader in [*readers, load_ciphertexts]:
        with pytest.raises(SerializationError, match="a secret key must stay with its owner"):
            reader(data)


def test_words_out_of_range(objects: dict[str, tuple[Any, bytes]]) -> None:
    params = parameter_set("toy")
    for name in ("SeededCiphertexts", "Ciphertexts", "SeededPackedCiphertexts", "PackedCiphertexts", "PublicKey"):
        cls, data = objects[name]
        thing = cls.from_bytes(data)
        words = thing.bodies if name == "PublicKey" else thing.words
        for value in (params.modulus, 2**32 - 1):
            words.reshape(-1)[-1] = value
            with pytest.raises(SerializationError, match=f"every word below {params.modulus}"):
                cls.from_bytes(thing.to_bytes())


def test_evaluation_key_words_out_of_range(objects: dict[str, tuple[Any, bytes]]) -> None:
    params = parameter_set("toy")
    data = objects["EvaluationKeys"][1]
    planes, count = (params.keyswitch_modulus_log2 + 7) // 8, params.keyswitch_key_rows
    end = len(data) - 32 - public_key_bytes(params)
    start = end - planes * count
    with pytest.raises(SerializationError, match=f"every word below {params.modulus}"):
        EvaluationKeys.from_bytes(patched(data, len(data) - 33, b"\xff"))  # top byte of the last body of the public key
    with pytest.raises(SerializationError, match=f"every word below {params.modulus}"):
        EvaluationKeys.from_bytes(patched(data, start - 1, b"\xff"))  # top byte of the last bootstrap body
    if params.keyswitch_modulus_log2 % 8:
        with pytest.raises(SerializationError, match=f"every word below {1 << params.keyswitch_modulus_log2}"):
            EvaluationKeys.from_bytes(patched(data, end - 1, b"\xff"))


# --- resources -------------------------------------------------------------------------------------------------------------------


def test_larger_than_allowed(objects: dict[str, tuple[Any, bytes]]) -> None:
    for cls, data in objects.values():
        with pytest.raises(SerializationError, match=f"expected at most {len(data) - 1} bytes"):
            cls.from_bytes(data, max_bytes=len(data) - 1)
        cls.from_bytes(data, max_bytes=len(data))


def test_the_expanded_size_counts_too(seeded: bytes) -> None:
    load_ciphertexts(seeded)
    with pytest.raises(SerializationError, match="expected at most 1000 bytes"):
        load_ciphertexts(seeded, max_bytes=1000)


@pytest.mark.parametrize("shape", [(2**40,), (2**63, 2), (2**32, 2**32), (2**64 - 1,) * 8])
def test_huge_counts_allocate_nothing(seeded: bytes, shape: tuple[int, ...]) -> None:
    """Also when the total is made to agree (modulo 2^64) with the counts."""
    params = parameter_set("toy")
    total = wire.object_bytes(wire.Kind.CIPHERTEXTS, params, True, shape)
    body = bytearray(seeded[:SHAPE]) + struct.pack(f"<{len(shape)}Q", *shape) + bytes(64)
    body[RANK] = len(shape)
    for claimed in (total % 2**64, len(body) + 32):
        struct.pack_into("<Q", body, TOTAL, claimed)
        data = mend(body)
        tracemalloc.start()
        try:
            with pytest.raises(SerializationError):
                SeededCiphertexts.from_bytes(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1 << 20


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_noise(data: bytes) -> None:
    for reader in (Ciphertexts.from_bytes, EvaluationKeys.from_bytes, load_ciphertexts):
        with pytest.raises(SerializationError):
            reader(data)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_patched_headers_with_valid_checksums(seeded: bytes, data: st.DataObject) -> None:
    """Any header bytes: the object is refused with an error of the tree, or it is one whose every field is legal."""
    position = data.draw(st.integers(0, SHAPE + 7))
    field = data.draw(st.binary(min_size=1, max_size=8))
    hostile = patched(seeded, position, field)
    try:
        loaded = SeededCiphertexts.from_bytes(hostile)
    except FheError:
        return
    assert loaded.to_bytes() == hostile
    assert int(np.max(loaded.words)) < loaded.parameters.modulus
