"""The wire format against docs/reference/wire_format.md: an independent reader, pinned digests, round trips, sizes, files."""

from __future__ import annotations

import hashlib
import io
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloakwork.fhe_core import parameters, wire
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import (
    Ciphertexts,
    PackedCiphertexts,
    SeededCiphertexts,
    SeededPackedCiphertexts,
    concatenate,
)
from cloakwork.fhe_core.errors import KeyMismatchError, SerializationError, ShapeError
from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, parameter_set
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import load_ciphertexts
from cloakwork.fhe_core.wire import Header, Kind, Planes
from cloakwork.fhe_core.wire import layout as wire_layout
from cloakwork.fhe_core.wire.files import atomic_writer

SEED = bytes(range(32))
KEY_ID = bytes(range(100, 116))
PURPOSE = bytes(range(200, 232))


def synthetic_sections(header: Header, start: int = 1) -> list[wire.Section]:
    """Words that differ everywhere and touch both ends of the range."""
    sections: list[wire.Section] = []
    for form in wire.section_layout(header.kind, header.parameters, header.seeded, header.shape):
        if isinstance(form, Planes):
            count = int(np.prod(form.shape, dtype=np.int64))
            words = (
                (np.arange(count, dtype=np.uint64) + np.uint64(start))
                * np.uint64(0x9E3779B97F4A7C15)
                % np.uint64(form.bound)
            )
            words[0], words[-1] = form.bound - 1, 0
            sections.append(words.reshape(form.shape).astype(form.dtype))
        else:
            sections.append((SEED * form.byte_count)[: form.byte_count])
    return sections


def ciphertext_header(name: str, kind: Kind, seeded: bool, shape: tuple[int, ...]) -> Header:
    params = parameter_set(name)
    encoding = Encoding.MESSAGE if params.message_bits else Encoding.BOOLEAN
    return Header(
        kind=kind, parameters=params, seeded=seeded, key_id=KEY_ID, shape=shape, encoding=encoding, weight_norm=2.5
    )


def parse_by_the_document(data: bytes) -> tuple[dict[str, object], bytes]:
    """The header of docs/reference/wire_format.md, field by field, and what follows it up to the checksum."""
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    (total,) = struct.unpack_from("<Q", data, 8)
    rank = data[105]
    header: dict[str, object] = {
        "magic": data[0:4],
        "version": struct.unpack_from("<H", data, 4)[0],
        "kind": data[6],
        "flags": data[7],
        "total": total,
        "name": data[16:48].rstrip(b"\0").decode(),
        "digest": data[48:80],
        "key_id": data[80:96],
        "weight_norm": struct.unpack_from("<d", data, 96)[0],
        "encoding": data[104],
        "reserved": data[106:112],
        "shape": struct.unpack_from(f"<{rank}Q", data, 112),
    }
    return header, data[112 + 8 * rank : -32]


def unblocked(data: bytes, count: int, planes: int) -> list[int]:
    """As evaluation keys have them since version 3: planes of 65536 words at a time."""
    return [
        word
        for first in range(0, count, 65536)
        for word in unplane(
            data[first * planes : min(first + 65536, count) * planes], min(65536, count - first), planes
        )
    ]


def unplane(data: bytes, count: int, planes: int) -> list[int]:
    return [sum(data[plane * count + word] << (8 * plane) for plane in range(planes)) for word in range(count)]


@pytest.mark.parametrize(("name", "planes"), [("toy", 4), ("lut4", 7), ("toy_lanes", 4)])
def test_bytes_are_those_of_the_document(name: str, planes: int) -> None:
    header = ciphertext_header(name, Kind.CIPHERTEXTS, False, (2,))
    (words,) = synthetic_sections(header)
    data = wire.dump(header, [words])
    fields, body = parse_by_the_document(data)
    assert fields == {
        "magic": b"CLKW",
        "version": 1,
        "kind": 4,
        "flags": 0,
        "total": len(data),
        "name": name,
        "digest": parameter_digest(header.parameters),
        "key_id": KEY_ID,
        "weight_norm": 2.5,
        "encoding": header.encoding,
        "reserved": bytes(6),
        "shape": (2,),
    }
    assert isinstance(words, np.ndarray)
    assert unplane(body, words.size, planes) == words.reshape(-1).tolist()


def test_a_purpose_follows_the_dimensions() -> None:
    header = replace(ciphertext_header("toy", Kind.CIPHERTEXTS, True, (2, 3)), purpose=PURPOSE)
    plain = wire.dump(replace(header, purpose=None), synthetic_sections(header))
    data = wire.dump(header, synthetic_sections(header))
    start = 112 + 2 * 8
    assert data[7] == 3 and struct.unpack_from("<Q", data, 8)[0] == len(data) == len(plain) + 32
    assert data[16:start] == plain[16:start] and data[start : start + 32] == PURPOSE
    assert data[start + 32 : -32] == plain[start:-32]
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    read = SeededCiphertexts.from_bytes(data)
    assert read.purpose == PURPOSE == read.expand().purpose == load_ciphertexts(data).purpose
    assert read.to_bytes() == data and read.with_purpose(None).to_bytes() == plain


def test_operations_and_purposes() -> None:
    header = ciphertext_header("toy", Kind.CIPHERTEXTS, False, (4,))
    plain = Ciphertexts.from_bytes(wire.dump(header, synthetic_sections(header)))
    mine, other = plain.with_purpose(PURPOSE), plain.with_purpose(bytes(32))
    for kept in (mine[1:], mine.reshape(2, 2), -mine, mine + 1, mine * 2, mine + mine, concatenate([mine, mine])):
        assert kept.purpose == PURPOSE
    for lost in (mine + plain, mine + other, concatenate([mine, other]), mine.with_purpose(None)):
        assert lost.purpose is None
    with pytest.raises(ShapeError, match="expected 32 bytes, got 5"):
        plain.with_purpose(b"model")


@pytest.mark.parametrize("kind", [Kind.EVALUATION_KEYS, Kind.PUBLIC_KEY])
def test_keys_have_no_purpose(kind: Kind) -> None:
    header = Header(kind=kind, parameters=parameter_set("toy"), seeded=True, key_id=KEY_ID)
    body = bytearray(wire.dump(header, synthetic_sections(header))[:-32])
    body[7] |= 2
    body[112:112] = PURPOSE
    struct.pack_into("<Q", body, 8, len(body) + 32)
    with pytest.raises(SerializationError, match="fields that this kind does not have"):
        wire.peek(bytes(body) + hashlib.sha256(body).digest())


@pytest.mark.parametrize("change", ["flag set", "flag cleared", "cut", "unknown flag"])
def test_purposes_that_do_not_fit_the_object(change: str) -> None:
    """With total and checksum made right."""
    header = replace(ciphertext_header("toy", Kind.CIPHERTEXTS, True, (2,)), purpose=PURPOSE)
    if change == "flag set":
        header = replace(header, purpose=None)
    body = bytearray(wire.dump(header, synthetic_sections(header))[:-32])
    if change.startswith("flag"):
        body[7] ^= 2
    elif change == "cut":
        del body[120 + 16 :]
    else:
        body[7] |= 4
    struct.pack_into("<Q", body, 8, len(body) + 32)
    data = bytes(body) + hashlib.sha256(body).digest()
    for read in (wire.peek, SeededCiphertexts.from_bytes):
        with pytest.raises(SerializationError, match="flags" if change == "unknown flag" else "ask for|at least 1"):
            read(data)


def test_evaluation_keys_are_seed_bootstrap_bodies_keyswitch_bodies_public_key() -> None:
    params = parameter_set("toy")
    header = Header(kind=Kind.EVALUATION_KEYS, parameters=params, seeded=True, key_id=None)
    seed, bootstrap, keyswitch, public_seed, public = synthetic_sections(header)
    fields, body = parse_by_the_document(wire.dump(header, [seed, bootstrap, keyswitch, public_seed, public]))
    assert (fields["version"], fields["flags"], fields["key_id"], fields["shape"]) == (3, 1, bytes(16), ())
    assert isinstance(bootstrap, np.ndarray) and isinstance(keyswitch, np.ndarray) and isinstance(public, np.ndarray)
    split = 32 + bootstrap.size * 4
    assert body[:32] == seed
    assert bootstrap.size > 65536 and bootstrap.size % 65536 != 0  # several blocks, the last one shorter
    assert unblocked(body[32:split], bootstrap.size, 4) == bootstrap.reshape(-1).tolist()
    planes = parameters.keyswitch_word_bytes(params)
    end = split + keyswitch.size * planes
    assert unplane(body[split:end], keyswitch.size, planes) == keyswitch.reshape(-1).tolist()
    assert body[end : end + 32] == public_seed
    assert unplane(body[end + 32 :], public.size, 4) == public.reshape(-1).tolist()
    assert len(body) - end == parameters.public_key_bytes(params)


@pytest.mark.parametrize(
    ("version", "digest"),
    [
        (2, "82c1381dc9da81dd7e7932313f36152d"),
        (3, "eba17dfb8646a4655f51919cc8be22cf"),
    ],
)
def test_evaluation_keys_are_frozen(version: int, digest: str) -> None:
    header = Header(
        kind=Kind.EVALUATION_KEYS, parameters=parameter_set("toy"), seeded=True, key_id=KEY_ID, version=version
    )
    data = wire.dump(header, synthetic_sections(header))
    assert struct.unpack_from("<H", data, 4) == (version,)
    assert hashlib.sha256(data[:16] + data[80:-32]).hexdigest()[:32] == digest


@pytest.mark.parametrize("name", ["toy", "lut4", "toy_lanes"])
def test_version_2_of_evaluation_keys_is_read(name: str) -> None:
    """Planes of whole sections: the same words, which are written as version 3."""
    header = Header(kind=Kind.EVALUATION_KEYS, parameters=parameter_set(name), seeded=True, key_id=KEY_ID)
    sections = synthetic_sections(header)
    data, old = wire.dump(header, sections), wire.dump(replace(header, version=2), sections)
    assert len(old) == len(data) and old != data
    assert wire.peek(old).version == 2 and wire.peek(data).version is None
    wire.check_words(io.BytesIO(old), wire.peek(old))
    assert EvaluationKeys.from_bytes(old).to_bytes() == data
    for version in (0, 4, 65535):
        body = bytearray(data[:-32])
        struct.pack_into("<H", body, 4, version)
        with pytest.raises(
            SerializationError, match=f"expected wire format version 2 or 3, got {version}; use the release"
        ):
            EvaluationKeys.from_bytes(bytes(body) + hashlib.sha256(body).digest())


@pytest.mark.parametrize("count", [1, 65535, 65536, 65537, 2 * 65536 - 1, 2 * 65536, 2 * 65536 + 1, 3 * 65536 + 17])
@pytest.mark.parametrize(("dtype", "planes"), [(np.uint32, 4), (np.uint64, 7), (np.uint32, 3)])
def test_blocks_of_every_size(count: int, dtype: type[np.uint32] | type[np.uint64], planes: int) -> None:
    """Sizes around multiples of a block, which no parameter set happens to have."""
    form = Planes((count,), np.dtype(dtype), planes, 1 << (8 * planes - 1), wire_layout.BLOCK_WORDS)
    words = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) % np.uint64(form.bound)).astype(
        dtype
    )
    stream = io.BytesIO()
    wire._emit_planes(words, form, lambda data: stream.write(data) and None)
    data = stream.getvalue()
    assert len(data) == form.byte_count and unblocked(data, count, planes) == words.tolist()
    assert [end - first for first, end in form.blocks()][:-1] == [65536] * ((count - 1) // 65536)
    np.testing.assert_array_equal(wire._read_section(wire.bytes_source(data), form), words)
    for position in {0, count // 2, count - 1, *(p for p in (65535, 65536) if p < count)}:
        damaged = io.BytesIO()
        words[position], kept = form.bound, words[position]
        wire._emit_planes(words, form, lambda data, out=damaged: out.write(data) and None)
        words[position] = kept
        with pytest.raises(SerializationError, match="found one above"):
            wire._check_planes(damaged, 0, Kind.EVALUATION_KEYS, form)
    wire._check_planes(stream, 0, Kind.EVALUATION_KEYS, form)
    with pytest.raises(SerializationError, match="truncated"):
        wire._check_planes(io.BytesIO(data[:-1]), 0, Kind.EVALUATION_KEYS, form)


def test_evaluation_keys_without_a_public_key_say_what_to_do() -> None:
    """Version 1: the same without the last two sections."""
    header = Header(kind=Kind.EVALUATION_KEYS, parameters=parameter_set("toy"), seeded=True, key_id=KEY_ID)
    body = bytearray(
        wire.dump(header, synthetic_sections(header))[: -32 - parameters.public_key_bytes(header.parameters)]
    )
    struct.pack_into("<H", body, 4, 1)
    struct.pack_into("<Q", body, 8, len(body) + 32)
    with pytest.raises(
        SerializationError,
        match="expected wire format version 2 or 3, got 1; it lacks the public key .* make evaluation keys again",
    ):
        EvaluationKeys.from_bytes(bytes(body) + hashlib.sha256(body).digest())


# SHA-256 of the synthetic object without name, digest and checksum: fixed for version 1 of the format. A new value is a new version.
PINNED = {
    ("toy", Kind.CIPHERTEXTS, False): "7bf8b962d3efb736b6d017bed0d54799",
    ("toy", Kind.CIPHERTEXTS, True): "0aa77f060b710472c1870ef77d1bb25b",
    ("toy", Kind.PACKED_CIPHERTEXTS, False): "340e2a72ffb2a9800aef67d9bbf9ae22",
    ("toy", Kind.PACKED_CIPHERTEXTS, True): "643a37de7836d9b6547571e8d8e81002",
    ("lut4", Kind.CIPHERTEXTS, False): "519040689fe4028252393794c52b2dfa",
    ("lut4", Kind.PACKED_CIPHERTEXTS, True): "6899eb2bf9208929e8f71a813bb92f42",
    ("toy_lanes", Kind.CIPHERTEXTS, False): "d223cbce5613c40654171a580912154a",
    ("toy_lanes", Kind.CIPHERTEXTS, True): "d371d6b69b89abe5a249266bd0ac04d0",
    ("toy_lanes", Kind.PACKED_CIPHERTEXTS, False): "b59b2e72c7a0f104d7ad7f9b2a891638",
    ("toy_lanes", Kind.PACKED_CIPHERTEXTS, True): "11ae0e20a3d5b52de5b373a1249f495c",
}


@pytest.mark.parametrize(("name", "kind", "seeded"), PINNED)
def test_version_1_is_frozen(name: str, kind: Kind, seeded: bool) -> None:
    header = ciphertext_header(name, kind, seeded, (3, 2))
    data = wire.dump(header, synthetic_sections(header))
    assert hashlib.sha256(data[:16] + data[80:-32]).hexdigest()[:32] == PINNED[name, kind, seeded]


def test_the_parameter_digest_is_that_of_the_documented_text() -> None:
    params = parameter_set("lut4")
    text = (
        "cloakwork parameter set 1\n"
        f"kind={params.kind}\nmessage_bits=4\npolynomial_size={params.polynomial_size}\nglwe_dimension={params.glwe_dimension}\n"
        f"modulus={params.modulus}\nmask_gadget={params.mask_gadget[0]},{params.mask_gadget[1]}\n"
        f"body_gadget={params.body_gadget[0]},{params.body_gadget[1]}\ncmux={params.cmux}\nglwe_secret={params.glwe_secret}\n"
        f"glwe_sigma={params.glwe_sigma!r}\nlwe_secret={params.lwe_secret}\nlwe_dimension={params.lwe_dimension}\n"
        f"keyswitch_modulus_log2={params.keyswitch_modulus_log2}\nlwe_sigma={params.lwe_sigma!r}\n"
        f"keyswitch_gadget={params.keyswitch_gadget[0]},{params.keyswitch_gadget[1]}\n"
    )
    assert parameter_digest(params) == hashlib.sha256(text.encode()).digest()


def test_no_two_sets_share_a_digest() -> None:
    digests = {parameter_digest(params): params.name for params in parameters.parameter_sets()}
    assert len(digests) == len(parameters.parameter_sets())


@st.composite
def headers(draw: st.DrawFn) -> Header:
    params = parameter_set(draw(st.sampled_from(["toy", "gate_64", "lut4", "toy_lanes"])))
    kind = draw(st.sampled_from([Kind.CIPHERTEXTS, Kind.PACKED_CIPHERTEXTS]))
    encodings = [Encoding.TORUS, Encoding.BOOLEAN]
    if params.message_bits:
        encodings += [Encoding.MESSAGE, Encoding.FULL_DOMAIN]
    return Header(
        kind=kind,
        parameters=params,
        seeded=draw(st.booleans()),
        key_id=draw(st.none() | st.binary(min_size=16, max_size=16).filter(any)),
        shape=tuple(draw(st.lists(st.integers(1, 3), max_size=3))),
        encoding=draw(st.sampled_from(encodings)),
        weight_norm=draw(st.floats(0, 2.0**32)),
        purpose=draw(st.none() | st.binary(min_size=32, max_size=32)),
    )


@given(headers(), st.integers(1, 1000))
def test_round_trip(header: Header, start: int) -> None:
    sections = synthetic_sections(header, start)
    data = wire.dump(header, sections)
    purpose = header.purpose is not None
    assert len(data) == wire.object_bytes(header.kind, header.parameters, header.seeded, header.shape, purpose=purpose)
    assert wire.peek(data) == header
    found, read = wire.read(wire.bytes_source(data), header.kind, seeded=header.seeded)
    assert found == header
    for original, copy in zip(sections, read, strict=True):
        if isinstance(original, bytes):
            assert copy == original
        else:
            assert isinstance(copy, np.ndarray) and copy.dtype == original.dtype
            np.testing.assert_array_equal(copy, original)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(buffer: type) -> None:
    header = ciphertext_header("toy", Kind.CIPHERTEXTS, False, ())
    sections = synthetic_sections(header)
    loaded = Ciphertexts.from_bytes(buffer(wire.dump(header, sections)))
    assert loaded.shape == ()
    np.testing.assert_array_equal(loaded.words, sections[0])


def _with_word(header: Header, section: int, position: int, value: int) -> bytes:
    """The synthetic object with one word of a section changed and the checksum mended."""
    sections = synthetic_sections(header)
    words = sections[section]
    assert isinstance(words, np.ndarray)
    words.reshape(-1)[position] = value
    return wire.dump(header, sections)


@pytest.mark.parametrize("name", ["toy", pytest.param("lut4", marks=pytest.mark.tier("all")), "gate_64", "toy_lanes"])
@pytest.mark.parametrize("section", [1, 2])
@pytest.mark.parametrize("position", [0, -1, 65_536, 200_000])
def test_words_of_keys_above_their_modulus_are_refused_wherever_they_lie(
    name: str, section: int, position: int, tmp_path: Path
) -> None:
    """By whole reading and by `check_words`, which never holds the object."""
    header = Header(kind=Kind.EVALUATION_KEYS, parameters=parameter_set(name), seeded=True, key_id=KEY_ID)
    form = wire.section_layout(header.kind, header.parameters, True, ())[section]
    assert isinstance(form, Planes)
    position %= int(np.prod(form.shape))
    path = tmp_path / "keys"
    largest = (1 << 8 * form.plane_count) - 1  # what the planes hold: bound - 1 where the bound is a power of 2^8
    for value in {form.bound - 1, min(form.bound, largest), largest}:
        path.write_bytes(_with_word(header, section, position, value))
        with path.open("rb") as stream:
            if value < form.bound:
                wire.check_words(stream, wire.peek(path.read_bytes()))
                EvaluationKeys.load(path)
            else:
                with pytest.raises(SerializationError, match=f"every word below {form.bound}"):
                    wire.check_words(stream, wire.peek(path.read_bytes()))
                with pytest.raises(SerializationError, match=f"every word below {form.bound}"):
                    EvaluationKeys.load(path)


@given(headers(), st.integers(1, 1000), st.data())
def test_check_words_agrees_with_read(header: Header, start: int, data: st.DataObject) -> None:
    sections = synthetic_sections(header, start)
    words = sections[-1]
    assert isinstance(words, np.ndarray)
    changed = data.draw(st.integers(0, 2 * header.parameters.modulus - 1))
    words.reshape(-1)[data.draw(st.integers(0, words.size - 1))] = changed
    stream = io.BytesIO(wire.dump(header, sections))
    if changed < header.parameters.modulus:
        wire.check_words(stream, header)
    else:
        with pytest.raises(SerializationError, match="found one above"):
            wire.check_words(stream, header)
    with pytest.raises(SerializationError, match="truncated"):
        wire.check_words(io.BytesIO(stream.getvalue()[: -wire.CHECKSUM_BYTES - 1]), header)


def test_check_words_needs_little_memory(tmp_path: Path) -> None:
    header = Header(kind=Kind.EVALUATION_KEYS, parameters=parameter_set("lut4"), seeded=True, key_id=KEY_ID)
    path = tmp_path / "keys"
    wire.save(path, header, synthetic_sections(header))
    tracemalloc.start()
    try:
        with path.open("rb") as stream:
            wire.check_words(stream, header)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < 4 << 20 < path.stat().st_size // 8


def _objects(params: ParameterSet) -> list[EvaluationKeys | PublicKey]:
    evaluation = Header(kind=Kind.EVALUATION_KEYS, parameters=params, seeded=True, key_id=KEY_ID)
    public = Header(kind=Kind.PUBLIC_KEY, parameters=params, seeded=True, key_id=KEY_ID)
    return [
        EvaluationKeys(params, *synthetic_sections(evaluation), KEY_ID),  # type: ignore[arg-type]
        PublicKey(params, *synthetic_sections(public), KEY_ID),  # type: ignore[arg-type]
    ]


def test_keys_through_bytes_and_files(tmp_path: Path) -> None:
    for key in _objects(parameter_set("toy")):
        key.save(tmp_path / "key")
        data = key.to_bytes()
        assert (tmp_path / "key").read_bytes() == data
        for copy in (type(key).from_bytes(data), type(key).load(tmp_path / "key")):
            assert (copy.parameters, copy.key_id, copy.seed) == (key.parameters, KEY_ID, key.seed)
            assert copy.to_bytes() == data


@pytest.mark.parametrize("cls", [Ciphertexts, SeededCiphertexts, PackedCiphertexts, SeededPackedCiphertexts])
def test_ciphertexts_through_files(cls: type[Ciphertexts], tmp_path: Path) -> None:
    header = ciphertext_header("toy", cls.kind, cls.seeded, (2, 2))
    data = wire.dump(header, synthetic_sections(header))
    first = cls.from_bytes(data)
    first.save(tmp_path / "ciphertexts")
    second = cls.load(tmp_path / "ciphertexts", parameters=parameter_set("toy"))
    assert second.to_bytes() == data
    assert (second.shape, second.encoding, second.weight_norm) == ((2, 2), Encoding.MESSAGE, 2.5)
    assert load_ciphertexts(data).shape == (2, 2)


def test_sizes_are_those_of_the_objects() -> None:
    for params in parameters.parameter_sets():
        assert parameters.upload_bytes(params) == wire.object_bytes(Kind.EVALUATION_KEYS, params, True)
        frame = wire.HEADER_BYTES + 8 + wire.CHECKSUM_BYTES
        full = wire.object_bytes(Kind.CIPHERTEXTS, params, False, (10,))
        seeded = wire.object_bytes(Kind.CIPHERTEXTS, params, True, (10,))
        assert full == frame + 10 * parameters.ciphertext_bytes(params)
        assert seeded == frame + wire.SEED_BYTES + 10 * parameters.seeded_ciphertext_bytes(params)


def test_uploads_are_small() -> None:
    assert parameters.upload_bytes(parameter_set("gate_64")) <= 16 << 20
    assert parameters.upload_bytes(parameter_set("lut4")) <= 40 << 20


def test_saving_and_loading_hold_the_key_once(tmp_path: Path) -> None:
    key = _objects(parameter_set("gate_64"))[0]
    assert isinstance(key, EvaluationKeys)
    tracemalloc.start()
    try:
        key.save(tmp_path / "keys")
        saving = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        loaded = EvaluationKeys.load(tmp_path / "keys")
        loading = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert saving < key.nbytes // 2
    assert key.nbytes < loading < key.nbytes * 3 // 2
    assert loaded.to_bytes() == key.to_bytes()


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(OSError, match="no more space"), atomic_writer(target) as stream:
        stream.write(b"half of the new")
        raise OSError("no more space")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert target.read_bytes() == b"old"


def test_a_save_that_cannot_begin_names_the_file(tmp_path: Path) -> None:
    target = tmp_path / "missing" / "file"
    with pytest.raises(FileNotFoundError) as failed, atomic_writer(target):
        pass
    assert failed.value.filename == str(target)


def test_the_expected_set_is_enforced() -> None:
    header = ciphertext_header("toy", Kind.CIPHERTEXTS, True, (1,))
    data = wire.dump(header, synthetic_sections(header))
    with pytest.raises(KeyMismatchError, match="expected parameter set 'lut4', got 'toy'"):
        SeededCiphertexts.from_bytes(data, parameters=parameter_set("lut4"))


def test_toy_objects_are_refused_outside_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    header = ciphertext_header("toy", Kind.CIPHERTEXTS, True, (1,))
    data = wire.dump(header, synthetic_sections(header))
    monkeypatch.delenv("CLOAKWORK_ALLOW_TOY")
    with pytest.raises(SerializationError, match="'toy' is insecure"):
        SeededCiphertexts.from_bytes(data)
