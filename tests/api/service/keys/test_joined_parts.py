"""How many objects an upload has, and how often its bytes are written, in whatever parts it comes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from cloakwork.api.service.keys.shared_parts import PART_BYTES, UploadPart, joinable

MIB = 1 << 20


def uploaded(sizes: Iterable[int]) -> tuple[list[UploadPart], int, int]:
    """Parts at the end, their largest number, and bytes that were written."""
    parts: list[UploadPart] = []
    end = most = written = 0
    for size in sizes:
        start, end = end, end + size
        joined = joinable(parts, start, end)
        parts = parts[: len(parts) - len(joined)]
        start = joined[0].start if joined else start
        parts.append(UploadPart(start, end - start, ""))
        written += end - start
        most = max(most, len(parts))
        assert [part.start for part in parts] == [0, *(part.end for part in parts)][:-1]
        assert all(part.bytes <= max(PART_BYTES, size) for part in parts)
    return parts, most, written


@pytest.mark.parametrize(
    "sizes",
    [
        [1] * 5000,
        [1000] * 5000,
        range(3000, 0, -1),
        range(1, 3000),
        [2**k for k in range(22, -1, -1)],
        [3**k for k in range(13, -1, -1)],
        [8 * MIB] * 40,
        [5 * MIB, 4 * MIB] * 20,
        [8 * MIB, 1] * 20,
        np.random.default_rng(3).geometric(1e-5, 3000).tolist(),
    ],
    ids=range(10),
)
def test_parts_are_few_and_bytes_are_written_some_times(sizes: Iterable[int]):
    whole = sum(sizes)
    _, most, written = uploaded(sizes)
    assert most <= 2 * whole / PART_BYTES + 2 + math.log2(PART_BYTES)
    assert written <= whole * (1 + math.log(PART_BYTES, 1.5))
