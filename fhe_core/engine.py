"""Types of the compiled engine for the public side: expanded keys, sessions, and arrays on devices.

Only some builds have a CUDA back end. This module alone asks; the others name what is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeAlias, TypeGuard, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.errors import DeviceError
from cloakwork.fhe_core.words import Progress, Small, Words

Held = TypeVar("Held")
"""Where batches lie: host arrays in, host arrays out; arrays of the session's device in, arrays of the device out."""

RowNumbers: TypeAlias = NDArray[np.int32]
Factors: TypeAlias = int | NDArray[np.int64]


class DeviceArray(Protocol):
    """C-contiguous words (uint32 or uint64) on one device, reference counted and freed in the order of its work."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def device_number(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, slice: slice) -> Self: ...
    def reshape(self, shape: Sequence[int]) -> Self: ...
    def to_host(self, out: NDArray[Any] | None = None) -> NDArray[Any]: ...
    def to_device(self, device: int) -> Self: ...
    def synchronize(self) -> None: ...
    def leading_columns(self, count: int) -> Self: ...
    def all_below(self, bound: int) -> bool: ...


class EngineKey(Protocol):
    """Evaluation keys in a device's own form."""

    @property
    def params(self) -> ParameterSet: ...
    @property
    def nbytes(self) -> int: ...


class EngineSession(Protocol[Held]):
    """The stages of a bootstrap, the whole, and matrix products, on batches [B, ..]; `out` is where to write them."""

    @property
    def params(self) -> ParameterSet: ...
    def keyswitch(self, lwe: Held, out: Held | None = None) -> Held: ...
    def modulus_switch(self, small_lwe: Held, out: Held | None = None) -> Held: ...
    def blind_rotate(
        self,
        switched: Held,
        tables: Words,
        table_index: Small | None = None,
        progress: Progress = None,
        out: Held | None = None,
    ) -> Held: ...
    def sample_extract(self, glwe: Held, coefficients: Small | None = None, out: Held | None = None) -> Held: ...
    def bootstrap(
        self,
        lwe: Held,
        tables: Words,
        table_index: Small | None = None,
        coefficients: Small | None = None,
        progress: Progress = None,
        out: Held | None = None,
    ) -> Held: ...
    def linear(self, weights: NDArray[np.int32], lwe: Held, out: Held | None = None) -> Held: ...
    def combine(
        self,
        x: Held,
        scale_x: int,
        y: Held | None = None,
        scale_y: int = 0,
        constant: int = 0,
        out: Held | None = None,
    ) -> Held: ...


class HostSession(EngineSession[Words], Protocol):
    """A session on the CPU."""

    @property
    def threads(self) -> int: ...
    def linear_packed(self, weights: NDArray[np.int32], glwe: Words, samples: int) -> Words: ...


class DeviceWeights(Protocol):
    """A matrix on a device, in the form of its linear layer."""

    @property
    def shape(self) -> tuple[int, int]: ...


Place = TypeVar("Place", bound=Words | DeviceArray)


class DeviceSession(EngineSession[Words | DeviceArray], Protocol):
    """A session on one GPU. Calls on its arrays return when their work is enqueued."""

    @property
    def device(self) -> int: ...
    @property
    def stream(self) -> int: ...
    @property
    def last_bootstrap(self) -> dict[str, float]:
        """Seconds of its stages, by name."""
        ...

    def synchronize(self) -> None: ...
    def upload_weights(self, weights: NDArray[np.int32]) -> DeviceWeights: ...
    def sample_extract(self, glwe: Place, coefficients: Small | None = None, out: Place | None = None) -> Place: ...
    def bootstrap(
        self,
        lwe: Place,
        tables: Words,
        table_index: Small | None = None,
        coefficients: Small | None = None,
        progress: Progress = None,
        out: Place | None = None,
    ) -> Place: ...
    def gathered_linear(
        self,
        weights: DeviceWeights,
        lwe: Place,
        gather: RowNumbers | None = None,
        bias: NDArray[np.uint64] | None = None,
        out_rows: RowNumbers | None = None,
        out_sample_rows: int = 0,
        out: Place | None = None,
    ) -> Place: ...
    def take(self, x: DeviceArray, rows: RowNumbers) -> DeviceArray: ...


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


def host_session(key: EngineKey, threads: int) -> HostSession:
    return cast(HostSession, _engine.CpuSession(cast(_engine.CpuKey, key), threads=threads))


def device_session(key: EngineKey, stream: Any = None) -> DeviceSession:
    return cast(DeviceSession, _engine.CudaSession(cast(_engine.CudaKey, key), stream=stream))


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
    return _engine.device_concatenate(cast(Sequence[_engine.DeviceArray], parts), outer, shape)
