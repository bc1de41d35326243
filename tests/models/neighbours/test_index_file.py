"""An index as a file: the way there and back, damage, and what a stranger writes."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from cloakwork.models.errors import CompileError
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_file import load_index

RNG = np.random.default_rng(19)


def sealed(data: bytes) -> bytes:
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    index = NeighbourIndex.build(RNG.standard_normal((50, 4)), np.array(["a", "b"])[np.arange(50) % 2], n_neighbors=3)
    index.save(tmp_path / "index")
    return tmp_path / "index"


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("classify", [True, False])
def test_there_and_back(tmp_path: Path, metric: str, classify: bool) -> None:
    table = RNG.standard_normal((70, 5))
    index = NeighbourIndex.build(table, np.arange(70) % 3, metric=metric, classify=classify)  # type: ignore[arg-type]
    index.save(tmp_path / "index")
    found = load_index(tmp_path / "index")
    np.testing.assert_array_equal(found.integers, index.integers)
    np.testing.assert_array_equal(found.offsets, index.offsets)
    assert found.client.to_json() == index.client.to_json() and found.report() == index.report()
    samples = 0.5 * table[::10]
    np.testing.assert_array_equal(
        found.scores(found.client.integers(samples)), index.scores(index.client.integers(samples))
    )


def test_damage(path: Path) -> None:
    data = path.read_bytes()
    for wrong in (b"", data[:20], data[:-1], data + b"\0", b"PK" + data[2:]):
        path.write_bytes(wrong)
        with pytest.raises(CompileError, match="index: "):
            load_index(path)
    for place in range(0, len(data), 37):
        changed = bytearray(data)
        changed[place] ^= 4
        path.write_bytes(bytes(changed))
        with pytest.raises(CompileError, match="index: "):
            load_index(path)
    path.write_bytes(data)
    with pytest.raises(CompileError, match="at most 100 bytes"):
        load_index(path, max_bytes=100)


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [
        (4, "<H", 2),
        (6, "<H", 1),
        (6, "<H", 13),
        (8, "<Q", 51),
        (8, "<Q", 1 << 60),
        (16, "<I", 3),
        (28, "<I", 1 << 31),
        (28, "<I", 5),
        (28, "<I", 0),
    ],
)
def test_hostile_headers(path: Path, place: int, form: str, value: int) -> None:
    changed = bytearray(path.read_bytes())
    struct.pack_into(form, changed, place, value)
    path.write_bytes(sealed(bytes(changed)))
    with pytest.raises(CompileError, match="index: "):
        load_index(path)


def test_hostile_contents(path: Path) -> None:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<I", data, 28)
    fields = json.loads(data[32 : 32 + length])
    for described in (
        b"{}",
        b"\xff\xfe",
        json.dumps(fields | {"rows": 49}).encode(),
        json.dumps(fields | {"limit": 1}).encode(),
    ):
        changed = bytearray(data[:28] + struct.pack("<I", len(described)) + described + data[32 + length :])
        path.write_bytes(sealed(bytes(changed)))
        with pytest.raises(CompileError, match="index: "):
            load_index(path)
