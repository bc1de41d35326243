"""Large arrays of the host through a CUDA session: pieces, staging by several threads, page-locked and ordinary memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine

pytestmark = pytest.mark.gpu

ITEMS = 54_321  # 56 MB of a toy set: five pieces, the last a short one; its parts end inside a page
Words = NDArray[Any]


class Doubling:
    """x -> 2 x modulo Q on one device."""

    def __init__(self) -> None:
        self.params = _engine.parameter_set("toy")
        keys = _engine.SecretKey.generate(self.params, bytes(range(32))).evaluation_keys()
        self.key = _engine.CudaKey(self.params, *keys)
        self.x: Words = np.random.default_rng(1).integers(
            0, self.params.modulus, (ITEMS, self.params.large_dimension + 1), dtype=np.uint32
        )
        self.expected = (2 * self.x.astype(np.uint64) % np.uint64(self.params.modulus)).astype(np.uint32)

    def run(self, x: Words, out: Words | None = None) -> Words:
        return np.asarray(_engine.CudaSession(self.key).combine(x, 2, out=out))


@pytest.fixture(scope="module")
def doubling() -> Doubling:
    return Doubling()


def test_ordinary_and_page_locked(doubling: Doubling) -> None:
    locked = _engine.pinned_empty(doubling.x.shape, np.uint32)
    locked[...] = doubling.x
    for x in (doubling.x, locked):
        np.testing.assert_array_equal(doubling.run(x), doubling.expected)
        out = np.empty_like(doubling.x)
        assert doubling.run(x, out) is out
        np.testing.assert_array_equal(out, doubling.expected)


def test_several_sessions_at_once(doubling: Doubling) -> None:
    """All callers share the threads that copy."""
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda shift: doubling.run(np.roll(doubling.x, shift, axis=0)), range(3)))
    for shift, result in enumerate(results):
        np.testing.assert_array_equal(result, np.roll(doubling.expected, shift, axis=0))


def test_upload_and_download(doubling: Doubling) -> None:
    array = _engine.DeviceArray.from_host(doubling.x, 0)
    np.testing.assert_array_equal(array.to_host(), doubling.x)


def test_page_locked_blocks_of_all_sizes() -> None:
    """Blocks of all sizes: CUDA's own, and mapped in huge pages."""
    for mebibytes in (0.01, 1, 5, 64, 3):
        count = int(mebibytes * 2**18)
        array = _engine.pinned_empty((count,), np.uint32)
        array[...] = np.arange(count, dtype=np.uint32)
        assert int(array[-1]) == count - 1
        assert _engine.DeviceArray.from_host(array, 0).to_host()[count // 2] == count // 2
