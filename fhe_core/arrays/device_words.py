"""Words of ciphertexts in the memory of CUDA devices: [.., kN + 1] by shape, rows of one contiguous array by number.

Indexing, reshaping and broadcasting choose rows and move nothing; arithmetic gathers while it reads. Words spread over several devices
(`ShardedArray`) keep their order: they can be reshaped and combined with words spread alike, not indexed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import engine
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.engine import DeviceArray, Factors
from cloakwork.fhe_core.errors import DeviceError, ShapeError
from cloakwork.fhe_core.words import Words

Rows: TypeAlias = NDArray[np.int64]


def device_ordinals(device: str) -> list[int]:
    """Returns N of `cuda:N` or `cuda:N,M,..`; empty for a bare family name."""
    family, colon, ordinals = device.partition(":")
    numbers = [int(n) for n in ordinals.split(",") if n.isdecimal()]
    if (
        family not in ("cpu", "cuda")
        or (family == "cpu" and colon)
        or len(numbers) != (ordinals.count(",") + 1 if colon else 0)
    ):
        raise DeviceError(f"device: expected 'cpu', 'cuda', 'cuda:N' or 'cuda:N,M,..', got '{device}'")
    if len(set(numbers)) != len(numbers):
        raise DeviceError(f"device: expected every GPU once, got '{device}'")
    return numbers


def cuda_ordinals(device: str) -> list[int]:
    """Returns the GPUs that hold arrays of a CUDA device's name; `cuda` is `cuda:0`."""
    numbers = device_ordinals(device) or [0]
    if device == "cpu":
        raise DeviceError("device: expected 'cuda', 'cuda:N' or 'cuda:N,M,..', got 'cpu'; use to_host")
    engine.require_cuda(device)
    return numbers


class ShardedArray:
    """Words of several devices, one after the other along the first axis."""

    def __init__(self, parts: Sequence[DeviceArray]) -> None:
        self.parts = tuple(parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0].dtype

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def device(self) -> str:
        return "cuda:" + ",".join(str(part.device_number) for part in self.parts)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<ShardedArray {self.dtype}{list(self.shape)} on {self.device}>"

    def reshape(self, shape: Sequence[int]) -> ShardedArray:
        item = math.prod(shape[1:])
        if any(part.size % item for part in self.parts) or math.prod(shape) != math.prod(self.shape):
            raise ShapeError(
                f"reshape: words on several devices do not fit shape {list(shape)}: an item would be split between devices; "
                "spread whole items, or gather them with to_host()"
            )
        return ShardedArray([part.reshape((part.size // item, *shape[1:])) for part in self.parts])

    def to_host(self, out: Words | None = None) -> Words:
        result: Words = engine.host_array(self.shape, self.dtype) if out is None else out
        start = 0
        for part in self.parts:
            part.to_host(result[start : start + part.shape[0]])
            start += part.shape[0]
        return result

    def synchronize(self) -> None:
        for part in self.parts:
            part.synchronize()


Base: TypeAlias = DeviceArray | ShardedArray


class DeviceWords:
    """`base` is [R, kN + 1]; `rows` [..] says which row each ciphertext is, None: all of them in order."""

    def __init__(self, params: ParameterSet, base: Base, shape: Sequence[int], rows: Rows | None = None) -> None:
        self._params = params
        self._base = base
        self._rows = rows
        self.shape: tuple[int, ...] = (*shape, base.shape[-1])

    @classmethod
    def of(cls, params: ParameterSet, array: Base) -> DeviceWords:
        """Gathers all of an array [.., kN + 1] on one device or several."""
        shape = tuple(array.shape)
        return cls(params, array.reshape((math.prod(shape[:-1]), shape[-1])), shape[:-1])

    @classmethod
    def upload(cls, params: ParameterSet, words: Words, device: str) -> DeviceWords:
        """Uploads words over several devices, contiguous shares of the first axis."""
        ordinals = cuda_ordinals(device)
        rows = np.ascontiguousarray(words).reshape(-1, words.shape[-1])
        if len(ordinals) == 1:
            return cls(params, engine.upload(rows, ordinals[0]), words.shape[:-1])
        count = words.shape[0] if words.ndim > 1 else 1
        each = len(rows) // max(count, 1)
        bounds = [count * i // len(ordinals) * each for i in range(len(ordinals) + 1)]
        parts = [
            engine.upload(rows[start:stop], ordinal)
            for ordinal, start, stop in zip(ordinals, bounds, bounds[1:], strict=False)
        ]
        return cls(params, ShardedArray(parts), words.shape[:-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._base.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> str:
        return self._base.device

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceWords {self.dtype}{list(self.shape)} on {self.device}>"

    @property
    def _parts(self) -> tuple[DeviceArray, ...]:
        """One for each device."""
        return self._base.parts if isinstance(self._base, ShardedArray) else (self._base,)

    # --- choosing rows ---

    def _grid(self) -> Rows:
        if isinstance(self._base, ShardedArray):
            raise ShapeError(
                f"ciphertexts on {self.device}: parts of words on several devices cannot be chosen there; gather them with to_host() first"
            )
        if self._rows is not None:
            return self._rows
        return np.arange(self._base.shape[0], dtype=np.int64).reshape(self.shape[:-1])

    def __getitem__(self, index: Any) -> DeviceWords:
        """As numpy, on the axes of the ciphertexts; the last axis, of a ciphertext's words, stays whole."""
        parts = index if isinstance(index, tuple) else (index,)
        if parts and isinstance(parts[-1], slice) and parts[-1] == slice(None):
            parts = parts[:-1]
        rows = np.asarray(self._grid()[parts if parts else ...])
        return DeviceWords(self._params, self._base, rows.shape, rows)

    def reshape(self, shape: Sequence[int]) -> DeviceWords:
        rows = None if self._rows is None else self._rows.reshape(tuple(shape)[:-1])
        return DeviceWords(self._params, self._base, tuple(shape)[:-1], rows)

    def broadcast_to(self, shape: Sequence[int]) -> DeviceWords:
        if tuple(shape) == self.shape:
            return self
        rows = np.broadcast_to(self._grid(), tuple(shape)[:-1])
        return DeviceWords(self._params, self._base, rows.shape, rows)

    def leading(self, count: int) -> Callable[[], Words]:
        """Returns the first words of every ciphertext: enqueues their copy and returns what waits for it and gives them, [.., count], in host
        memory."""
        copies = [part.leading_columns(count) for part in self._parts]
        shape, rows = (*self.shape[:-1], count), self._rows

        def words() -> Words:
            gathered: Words = np.concatenate([copy.to_host() for copy in copies])
            return gathered.reshape(shape) if rows is None else gathered[rows]

        return words

    # --- the words themselves ---

    def contiguous(self) -> Base:
        """Returns [B, kN + 1] in order."""
        if self._rows is None or isinstance(self._base, ShardedArray):
            return self._base
        flat = self._rows.reshape(-1)
        if flat.size and bool((np.diff(flat) == 1).all()):
            return self._base[int(flat[0]) : int(flat[-1]) + 1]
        return engine.combined(self._params, len(flat), (self._base, flat.astype(np.int32), 1))

    def array(self) -> Base:
        """Returns the words in their shape as one DeviceArray or ShardedArray."""
        return self.contiguous().reshape(self.shape)

    def copy(self) -> DeviceWords:
        return combine(self._params, self.shape[:-1], (self, 1))

    def to_host(self) -> Words:
        words: Words = self.contiguous().to_host().reshape(self.shape)
        return words

    def to_device(self, device: str) -> DeviceWords:
        if cuda_ordinals(device) == cuda_ordinals(self.device):
            return self
        ordinals = cuda_ordinals(device)
        held = None if len(ordinals) > 1 else self.contiguous()
        if held is None or isinstance(held, ShardedArray):
            return DeviceWords.upload(self._params, self.to_host(), device)
        return DeviceWords(self._params, held.to_device(ordinals[0]), self.shape[:-1])

    def all_below(self, bound: int) -> bool:
        return all(part.all_below(bound) for part in self._parts)


# --- arithmetic modulo Q, as phase_arithmetic.py ---------------------------------------------------------------------------------------


def combine(
    params: ParameterSet,
    shape: Sequence[int],
    *terms: tuple[DeviceWords, Factors],
    constants: NDArray[np.uint64] | None = None,
) -> DeviceWords:
    """Returns the sum of one or two words-times-factor, broadcast to `shape`, with constants (of that shape) on the bodies."""
    count = math.prod(shape)
    bases = [words._base for words, _ in terms]
    if any(base.device != bases[0].device for base in bases):
        raise DeviceError(
            f"ciphertexts: expected both on one device, got {bases[0].device} and {bases[1].device}; move one with to_device"
        )
    spread = [(words.broadcast_to((*shape, words.shape[-1])), factor) for words, factor in terms]
    x, *others = [_Term(words._base, _row_numbers(words), _factors(factor, shape)) for words, factor in spread]
    y = others[0] if others else None
    flat = None if constants is None else np.ascontiguousarray(np.broadcast_to(constants, shape)).reshape(-1)
    if isinstance(x.base, ShardedArray):
        return DeviceWords(params, _combine_parts(params, x.base, x, y, flat), shape)
    second = engine.NOTHING if y is None else y.on_one()
    return DeviceWords(params, engine.combined(params, count, x.on_one(), second, flat), shape)


@dataclass(frozen=True, eq=False)
class _Term:
    """The words, which rows of them (None: in order), and their factors."""

    base: Base
    rows: NDArray[np.int32] | None
    factors: Factors

    def on_one(self) -> engine.Term:
        assert not isinstance(self.base, ShardedArray)
        return self.base, self.rows, self.factors

    def part(self, number: int, share: slice) -> engine.Term:
        """Returns the part on device `number` of several, where rows are in order."""
        assert isinstance(self.base, ShardedArray)
        factors = self.factors if isinstance(self.factors, int) else self.factors[share].copy()
        return self.base.parts[number], None, factors


def _combine_parts(
    params: ParameterSet, base: ShardedArray, x: _Term, y: _Term | None, constants: NDArray[np.uint64] | None
) -> ShardedArray:
    sizes = [part.shape[0] for part in base.parts]
    if y is not None and (not isinstance(y.base, ShardedArray) or [part.shape[0] for part in y.base.parts] != sizes):
        raise ShapeError("ciphertexts: expected both spread alike over their devices; gather them with to_host() first")
    parts, start = [], 0
    for number, size in enumerate(sizes):
        share = slice(start, start + size)
        added = None if constants is None else constants[share].copy()
        second = engine.NOTHING if y is None else y.part(number, share)
        parts.append(engine.combined(params, size, x.part(number, share), second, added))
        start += size
    return ShardedArray(parts)


def _row_numbers(words: DeviceWords) -> NDArray[np.int32] | None:
    return None if words._rows is None else np.ascontiguousarray(words._rows.reshape(-1), dtype=np.int32)


def _factors(factors: Factors, shape: Sequence[int]) -> Factors:
    if isinstance(factors, int):
        return factors
    if factors.size == 1:
        return int(factors.reshape(()))
    return np.ascontiguousarray(np.broadcast_to(factors, tuple(shape)), dtype=np.int64).reshape(-1)


def concatenate(params: ParameterSet, parts: Sequence[DeviceWords], axis: int) -> DeviceWords:
    shapes = [part.shape for part in parts]
    rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(rest) != 1:
        raise ValueError("shapes that do not fit")
    held = [part.contiguous() for part in parts if part.device == parts[0].device]
    arrays = [array for array in held if not isinstance(array, ShardedArray)]
    if len(arrays) < len(parts):
        raise DeviceError(
            "concatenate: expected all parts on one device, got "
            + ", ".join(sorted({part.device for part in parts}))
            + "; move them with to_device or to_host"
        )
    total = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
    outer = max(math.prod(shapes[0][:axis]), 1)
    return DeviceWords.of(params, engine.concatenated(arrays, outer, total))


def on_host(words: Words | DeviceWords | DeviceArray) -> Words:
    """Returns numpy words, downloaded when they are on a device."""
    return words if isinstance(words, np.ndarray) else words.to_host()


def broadcast_shape(
    shapes: Sequence[tuple[int, ...]], refuse: Callable[[tuple[int, ...], tuple[int, ...]], Exception]
) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise refuse(shapes[0], shapes[-1]) from None


def expand_seeded(params: ParameterSet, kind: str, seed: bytes, bodies: Words, device: str) -> Base:
    """Expands seeded ciphertexts on a device: only seed and bodies travel."""
    ordinals = cuda_ordinals(device)
    count = len(bodies)
    bounds = [count * i // len(ordinals) for i in range(len(ordinals) + 1)]
    parts = [
        engine.expanded(params, kind, seed, bodies[start:stop], ordinal, start)
        for ordinal, start, stop in zip(ordinals, bounds, bounds[1:], strict=False)
    ]
    return parts[0] if len(parts) == 1 else ShardedArray(parts)


def external(words: object) -> Base | None:
    """Returns words on devices: ours as they are, those of torch or CuPy as an array of ours; None for host memory."""
    if isinstance(words, ShardedArray) or engine.is_device_array(words):
        return words
    return engine.borrowed(words)
