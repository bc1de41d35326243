"""Types of the compiled engine for the public side: expanded keys, sessions, and arrays on devices.

Only some builds have a CUDA back end. This module alone asks; the others name what is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.errors import DeviceError
from cloakwork.fhe_core.words import Progress, Small, Words

RowNumbers: TypeAlias = NDArray[np.int32]
Factors: TypeAlias = int | NDArray[np.int64]


if TYPE_CHECKING:
    DeviceArray: TypeAlias = _engine.DeviceArray
    EngineKey: TypeAlias = _engine.CpuKey | _engine.CudaKey
else:  # in unions of types, whatever the build has
    DeviceArray = getattr(_engine, "DeviceArray", type(None))


# --- keys and sessions -------------------------------------------------------------------------------------------------------------------


class SeededKey(Protocol):
    """Seeded keys, from which keys are expanded."""

    @property
    def parameters(self) -> ParameterSet: ...
    @property
    def seed(self) -> bytes: ...
    @property
    def bootstrap_bodies(self) -> Words: ...
    @property
    def keyswitch_bodies(self) -> Small: ...


class DeviceTransform(Protocol):
    """Large transforms on one device (`large_ntt`)."""

    @property
    def device(self) -> int: ...
    def transform(self, words: DeviceArray, inverse: bool) -> DeviceArray: ...
    def seconds(self, words: DeviceArray, inverse: bool, calls: int, repeats: int) -> list[float]: ...


def device_transform(tables: _engine.LargeNtt, ordinal: int) -> DeviceTransform:
    return cast(DeviceTransform, _engine.CudaLargeNtt(tables, ordinal))


def host_key(key: SeededKey, progress: Progress) -> EngineKey:
    return _engine.CpuKey(key.parameters, key.seed, key.bootstrap_bodies, key.keyswitch_bodies, progress=progress)


def device_key(key: SeededKey, ordinal: int, progress: Progress) -> EngineKey:
    return _engine.CudaKey(
        key.parameters, key.seed, key.bootstrap_bodies, key.keyswitch_bodies, device=ordinal, progress=progress
    )


def host_session(key: EngineKey, threads: int) -> _engine.CpuSession:
    return _engine.CpuSession(cast(_engine.CpuKey, key), threads=threads)


def device_session(key: EngineKey, stream: Any = None) -> _engine.CudaSession:
    return _engine.CudaSession(cast(_engine.CudaKey, key), stream=stream)


# --- devices -----------------------------------------------------------------------------------------------------------------------------


def has_cuda() -> bool:
    """Whether this build has the CUDA back end; a device may still be missing."""
    return hasattr(_engine, "CudaKey")


def require_cuda(device: str, otherwise: str = "") -> None:
    if not has_cuda():
        raise DeviceError(
            f"device '{device}': this build of cloakwork has no CUDA back end; install nvcc (CUDA 12.4 or newer) and build with "
            f"CLOAKWORK_CUDA=ON{otherwise}"
        )


def free_bytes(ordinal: int) -> int:
    """Counts the free bytes of a device's memory."""
    return _engine.device_memory(ordinal)[0]


def host_array(shape: Sequence[int], dtype: Any) -> NDArray[Any]:
    """Allocates an array, uninitialised; in page-locked memory where the build has it, so that downloads need no copy."""
    return _engine.pinned_empty(shape, dtype) if has_cuda() else np.empty(shape, dtype)


def upload(words: NDArray[Any], ordinal: int) -> DeviceArray:
    return _engine.DeviceArray.from_host(np.ascontiguousarray(words), ordinal)


def is_device_array(words: object) -> TypeGuard[DeviceArray]:
    return has_cuda() and isinstance(words, _engine.DeviceArray)


def borrowed(words: Any) -> DeviceArray | None:
    """Returns memory of torch or CuPy on a device as an array of ours; None for host memory."""
    if not has_cuda():
        return None
    if hasattr(words, "__dlpack_device__"):
        cuda = 2  # kDLCUDA
        return _engine.DeviceArray.from_external(words) if words.__dlpack_device__()[0] == cuda else None
    if hasattr(words, "__cuda_array_interface__"):
        return _engine.DeviceArray.from_external(words)
    return None


def expanded(params: ParameterSet, kind: str, seed: bytes, bodies: Words, ordinal: int, first: int = 0) -> DeviceArray:
    """Expands seeded ciphertexts, of kind "lwe" or "glwe", on a device. Args: first: the number of the first one under its seed."""
    return _engine.device_expand(params, kind, seed, np.ascontiguousarray(bodies), ordinal, first)


Term: TypeAlias = tuple[DeviceArray | None, RowNumbers | None, Factors]
"""Words, which rows of them (None: in order), and their factors."""

NOTHING: Term = (None, None, 1)


def combined(
    params: ParameterSet, rows: int, x: Term, y: Term = NOTHING, constants: NDArray[np.uint64] | None = None
) -> DeviceArray:
    """Returns x + y, with constants on the bodies."""
    (x_words, x_rows, x_factors), (y_words, y_rows, y_factors) = x, y
    return _engine.device_combine(
        params, rows, cast(Any, x_words), x_rows, x_factors, cast(Any, y_words), y_rows, y_factors, constants
    )


def concatenated(parts: Sequence[DeviceArray], outer: int, shape: Sequence[int]) -> DeviceArray:
    """Returns arrays side by side behind `outer` items, in the shape that results."""
    return _engine.device_concatenate(parts, outer, shape)
