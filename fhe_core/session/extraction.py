"""Packed ciphertexts to one LWE ciphertext for each value: rows [values, kN + r], on the host or on devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import engine
from cloakwork.fhe_core.arrays.device_words import Base, ShardedArray
from cloakwork.fhe_core.ciphertexts import PackedCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.engine import DeviceArray
from cloakwork.fhe_core.errors import DeviceError
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.words import Words

if TYPE_CHECKING:
    from cloakwork.fhe_core._engine import CpuSession, CudaSession

Packed: TypeAlias = PackedCiphertexts | SeededPackedCiphertexts


def expanded_on_host(packed: Packed, resident: bool) -> PackedCiphertexts:
    if resident:
        raise DeviceError("extract: expected a session on a GPU for a resident result, got one on 'cpu'")
    if packed.device != "cpu":
        raise DeviceError(f"packed ciphertexts: expected them on the host, got them on {packed.device}; use to_host()")
    return packed.expand() if isinstance(packed, SeededPackedCiphertexts) else packed


def extract_on_host(session: CpuSession, packed: PackedCiphertexts) -> Words:
    size = packed.parameters.polynomial_size
    full, rest = divmod(packed.size, size)
    glwe = np.ascontiguousarray(packed.words)
    parts = []
    if full:
        parts.append(session.sample_extract(glwe[:full], np.arange(size, dtype=np.uint32)))
    if rest:
        parts.append(session.sample_extract(glwe[full:], np.arange(rest, dtype=np.uint32)))
    rows = [part.reshape(-1, part.shape[-1]) for part in parts]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def extract_columns_on_host(session: CpuSession, packed: PackedCiphertexts, columns: NDArray[np.int64]) -> Words:
    """Returns [items, columns, kN + r]: of the last axis of the values these columns, ascending, alone."""
    size, width = packed.parameters.polynomial_size, packed.shape[-1]
    items = packed.size // width
    values = (np.arange(items)[:, None] * width + columns).reshape(-1)
    glwe, group = np.ascontiguousarray(packed.words), values // size
    parts = np.split(values, np.flatnonzero(np.diff(group)) + 1)
    rows = [
        session.sample_extract(glwe[part[0] // size, None], (part % size).astype(np.uint32)).reshape(len(part), -1)
        for part in parts
    ]
    return np.concatenate(rows).reshape(items, len(columns), -1)


def extract_on_devices(sessions: Sequence[CudaSession], packed: Packed) -> Base:
    """Extracts on one device, or shares of the first axis of the values on each."""
    count, items = len(sessions), packed.shape[0] if packed.shape else 1
    each = packed.size // items
    bounds = [items * i // count * each for i in range(count + 1)]
    shares = [extract_values(session, packed, bounds[i], bounds[i + 1]) for i, session in enumerate(sessions)]
    return shares[0] if count == 1 else ShardedArray(shares)


def extract_values(session: CudaSession, packed: Packed, first: int, last: int) -> DeviceArray:
    """Returns values first .. last - 1 on a device."""
    params = packed.parameters
    size, words = params.polynomial_size, params.large_words
    if last <= first:
        return engine.upload(np.empty((0, words), word_dtype(params)), session.device)
    start, stop = first // size, -(-last // size)
    glwe = _glwe_on_device(session, packed, start, stop)
    coefficients = size if stop - start > 1 else last - start * size
    rows = session.sample_extract(glwe, np.arange(coefficients, dtype=np.uint32))
    flat = rows.reshape((rows.shape[0] * coefficients, words))
    return flat[first - start * size : last - start * size]


def _glwe_on_device(session: CudaSession, packed: Packed, start: int, stop: int) -> DeviceArray:
    """Returns GLWE ciphertexts start .. stop - 1; seeded ones are expanded there."""
    if isinstance(packed, SeededPackedCiphertexts):
        return engine.expanded(packed.parameters, "glwe", packed.seed, packed.bodies[start:stop], session.device, start)
    held: Words | DeviceArray = packed.words
    return engine.upload(held[start:stop], session.device) if isinstance(held, np.ndarray) else held[start:stop]
