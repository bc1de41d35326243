"""Back ends of levelled arithmetic: words of the host, or of a CUDA device. The same residues either way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.arrays.device_words import cuda_ordinals, device_ordinals
from cloakwork.fhe_core.errors import DeviceError
from cloakwork.fhe_core.words import Progress, report

Words: TypeAlias = NDArray[np.uint32]
AnyWords: TypeAlias = Any  # Words, or _engine.CudaLevelledWords
AnyPrepared: TypeAlias = Any  # _engine.LevelledPrepared, or _engine.CudaLevelledWords


_NUMBERS_AT_ONCE: Final = 1 << 20  # of a combination on the host, as doubles
_WORDS_AT_ONCE: Final = 1 << 26  # of constant polynomials on a device


class LevelledBackend(Protocol):
    """Operations on [.., level, N]. Shapes as of `_engine.Levelled`; `words` of any leading dimensions where nothing is said."""

    def here(self, words: AnyWords) -> AnyWords:
        """Words of this back end."""

    def keys(self, expanded: dict[int, _engine.LevelledPrepared]) -> dict[int, AnyPrepared]: ...
    def transform(self, words: Words) -> AnyWords: ...
    def coefficients(self, words: AnyWords) -> Words:
        """Computes the inverse, on the host."""

    def table(self, chunks: Iterable[Words], shape: tuple[int, int, int, int]) -> AnyPrepared:
        """Prepares coefficients: chunks [.., level, N], in order, of a table [rows, terms, level, N]."""

    def prepare(self, words: AnyWords, rows: int) -> AnyPrepared:
        """Transformed words [rows * terms, level, N] as a table [rows, terms, level, N]."""

    def add(self, a: AnyWords, b: AnyWords, negative: bool) -> AnyWords: ...
    def scale(self, words: AnyWords, factor: int) -> AnyWords: ...
    def products(self, words: AnyWords, prepared: AnyPrepared, progress: Progress = None) -> AnyWords: ...
    def combine(self, words: AnyWords, weights: NDArray[np.int64]) -> AnyWords:
        """Multiplies [terms, parts, level, N] by integers [rows, terms], each row's absolute values below 2^25 together."""

    def multiply(self, a: AnyWords, b: AnyWords) -> AnyWords: ...
    def automorphism(self, words: AnyWords, g: int) -> AnyWords: ...
    def keyswitch(self, words: AnyWords, key: AnyPrepared) -> AnyWords: ...
    def modulus_switch(self, words: AnyWords, keep: int) -> AnyWords: ...
    def part(self, words: AnyWords, number: int) -> AnyWords:
        """Splits [batch, parts, level, N] -> [batch, level, N]."""

    def from_parts(self, parts: Sequence[AnyWords]) -> AnyWords:
        """Joins the parts."""

    def concatenate(self, words: Sequence[AnyWords]) -> AnyWords: ...
    def take(self, words: AnyWords, first: int, last: int) -> AnyWords: ...
    def reshape(self, words: AnyWords, before: Sequence[int]) -> AnyWords:
        """Other leading dimensions."""

    def synchronize(self, words: AnyWords) -> None:
        """Waits until they are computed."""


class CpuBackend:
    def __init__(self, engine: _engine.Levelled, threads: int) -> None:
        self._engine, self._threads = engine, threads

    def here(self, words: AnyWords) -> Words:
        return on_host(words)

    def keys(self, expanded: dict[int, _engine.LevelledPrepared]) -> dict[int, AnyPrepared]:
        return dict(expanded)

    def transform(self, words: Words) -> Words:
        return self._engine.transform(_rows(words), False, self._threads).reshape(words.shape)

    def coefficients(self, words: Words) -> Words:
        return self._engine.transform(_rows(words), True, self._threads).reshape(words.shape)

    def table(self, chunks: Iterable[Words], shape: tuple[int, int, int, int]) -> _engine.LevelledPrepared:
        words, filled = np.empty((shape[0] * shape[1], *shape[2:]), dtype=np.uint32), 0
        for chunk in chunks:
            words[filled : filled + len(chunk)] = self.transform(chunk)
            filled += len(chunk)
        return self.prepare(words, shape[0])

    def prepare(self, words: Words, rows: int) -> _engine.LevelledPrepared:
        return self._engine.prepare(words.reshape(rows, -1, *words.shape[1:]), self._threads)

    def add(self, a: Words, b: Words, negative: bool) -> Words:
        return self._engine.add(_rows(a), _rows(b), negative, self._threads).reshape(a.shape)

    def scale(self, words: Words, factor: int) -> Words:
        return self._engine.scale(_rows(words), factor, self._threads).reshape(words.shape)

    def products(self, words: Words, prepared: _engine.LevelledPrepared, progress: Progress = None) -> Words:
        return self._engine.products(words, prepared, self._threads, progress)

    def combine(self, words: Words, weights: NDArray[np.int64]) -> Words:
        """Combines by NumPy's matrix product, in whose threads: sums of words below 2^28 with such weights are exact in doubles."""
        terms, parts, level, size = words.shape
        factors, combined = weights.astype(np.float64), np.empty((len(weights), parts, level, size), dtype=np.uint32)
        columns = max(1, _NUMBERS_AT_ONCE // max(terms, len(weights)))
        for i, prime in enumerate(self._engine.primes[:level]):
            for part in range(parts):
                for first in range(0, size, columns):
                    at = slice(first, first + columns)
                    sums = factors @ words[:, part, i, at].astype(np.float64)
                    sums -= np.floor(sums / prime) * prime
                    sums[sums < 0] += prime  # of a quotient that was rounded up
                    combined[:, part, i, at] = sums
        return combined

    def multiply(self, a: Words, b: Words) -> Words:
        return self._engine.multiply(a, b, self._threads)

    def automorphism(self, words: Words, g: int) -> Words:
        return self._engine.automorphism(_rows(words), g, self._threads).reshape(words.shape)

    def keyswitch(self, words: Words, key: _engine.LevelledPrepared) -> Words:
        return self._engine.keyswitch(words, key, self._threads)

    def modulus_switch(self, words: Words, keep: int) -> Words:
        switched = self._engine.modulus_switch(_rows(words), keep, self._threads)
        return switched.reshape(*words.shape[:-2], keep, words.shape[-1])

    def part(self, words: Words, number: int) -> Words:
        return np.ascontiguousarray(words[:, number])

    def from_parts(self, parts: Sequence[Words]) -> Words:
        return np.stack(parts, axis=1)

    def concatenate(self, words: Sequence[Words]) -> Words:
        return np.concatenate(words)

    def take(self, words: Words, first: int, last: int) -> Words:
        return np.ascontiguousarray(words[first:last])

    def reshape(self, words: Words, before: Sequence[int]) -> Words:
        return words.reshape(*before, *words.shape[-2:])

    def synchronize(self, words: Words) -> None:
        pass


class CudaBackend:
    def __init__(self, engine: _engine.Levelled, ordinal: int) -> None:
        self._engine, self._primes = _device_engine(engine, ordinal), engine.primes

    def here(self, words: AnyWords) -> _engine.CudaLevelledWords:
        if isinstance(words, np.ndarray):
            return self._engine.upload(words)
        return words if words.device == self._engine.device else self._engine.upload(words.to_host())

    def keys(self, expanded: dict[int, _engine.LevelledPrepared]) -> dict[int, AnyPrepared]:
        return {g: self._engine.upload_prepared(key) for g, key in expanded.items()}

    def transform(self, words: Words) -> _engine.CudaLevelledWords:
        return self._engine.transform(self._engine.upload(words), False)

    def coefficients(self, words: _engine.CudaLevelledWords) -> Words:
        return self._engine.transform(words, True).to_host()

    def table(self, chunks: Iterable[Words], shape: tuple[int, int, int, int]) -> _engine.CudaLevelledWords:
        prepared = [self._engine.prepare(self.transform(chunk).reshape((len(chunk), 1))) for chunk in chunks]
        return self._engine.joined(prepared, False).reshape(shape[:2])

    def prepare(self, words: _engine.CudaLevelledWords, rows: int) -> _engine.CudaLevelledWords:
        count = words.shape[0]
        return self._engine.prepare(words.reshape((count, 1))).reshape((rows, count // rows))

    def add(
        self, a: _engine.CudaLevelledWords, b: _engine.CudaLevelledWords, negative: bool
    ) -> _engine.CudaLevelledWords:
        return self._engine.add(a, b, negative)

    def scale(self, words: _engine.CudaLevelledWords, factor: int) -> _engine.CudaLevelledWords:
        return self._engine.scale(words, factor)

    def products(
        self, words: _engine.CudaLevelledWords, prepared: _engine.CudaLevelledWords, progress: Progress = None
    ) -> _engine.CudaLevelledWords:
        products = self._engine.products(words, prepared)
        if progress is not None:
            products.synchronize()
            report(progress, 1, 1)
        return products

    def combine(self, words: _engine.CudaLevelledWords, weights: NDArray[np.int64]) -> _engine.CudaLevelledWords:
        """Combines as products with constant polynomials, some rows of them at a time."""
        terms, parts, level, size = words.shape
        flat, combined = words.reshape((terms, parts)), []
        rows_at_once = max(1, _WORDS_AT_ONCE // (terms * level * size))
        for first in range(0, len(weights), rows_at_once):
            some = weights[first : first + rows_at_once]
            constants = np.zeros((some.size, level, size), dtype=np.uint32)
            constants[:, :, 0] = some.reshape(-1, 1) % np.array(self._primes[:level])
            combined.append(self.products(flat, self.table([constants], (*some.shape, level, size))))
        return self._engine.joined(combined, False).reshape((len(weights), parts))

    def multiply(self, a: _engine.CudaLevelledWords, b: _engine.CudaLevelledWords) -> _engine.CudaLevelledWords:
        return self._engine.multiply(a, b)

    def automorphism(self, words: _engine.CudaLevelledWords, g: int) -> _engine.CudaLevelledWords:
        return self._engine.automorphism(words, g)

    def keyswitch(self, words: _engine.CudaLevelledWords, key: _engine.CudaLevelledWords) -> _engine.CudaLevelledWords:
        return self._engine.keyswitch(words, key)

    def modulus_switch(self, words: _engine.CudaLevelledWords, keep: int) -> _engine.CudaLevelledWords:
        before = words.shape[:-2]
        rows = words.reshape((int(np.prod(before)),))
        return self._engine.modulus_switch(rows, keep).reshape(before)

    def part(self, words: _engine.CudaLevelledWords, number: int) -> _engine.CudaLevelledWords:
        return self._engine.part(words, number)

    def from_parts(self, parts: Sequence[_engine.CudaLevelledWords]) -> _engine.CudaLevelledWords:
        return self._engine.joined(parts, True)

    def concatenate(self, words: Sequence[_engine.CudaLevelledWords]) -> _engine.CudaLevelledWords:
        return self._engine.joined(words, False)

    def take(self, words: _engine.CudaLevelledWords, first: int, last: int) -> _engine.CudaLevelledWords:
        return words.take(first, last)

    def reshape(self, words: _engine.CudaLevelledWords, before: Sequence[int]) -> _engine.CudaLevelledWords:
        return words.reshape(before)

    def synchronize(self, words: _engine.CudaLevelledWords) -> None:
        words.synchronize()


def backend_of(engine: _engine.Levelled, device: str, threads: int) -> LevelledBackend:
    """Raises: DeviceError: more devices than one, or one that is not there."""
    if device == "cpu":
        return CpuBackend(engine, threads)
    ordinals = cuda_ordinals(device) if device_ordinals(device) or device == "cuda" else []
    if len(ordinals) != 1:
        raise DeviceError(f"device: expected one device, got '{device}'")
    return CudaBackend(engine, ordinals[0])


def on_host(words: AnyWords) -> Words:
    host_words: Words = words if isinstance(words, np.ndarray) else words.to_host()
    return host_words


@lru_cache(maxsize=16)
def _device_engine(engine: _engine.Levelled, ordinal: int) -> _engine.CudaLevelled:
    """The same for the same engine: words go from one evaluator to another."""
    return _engine.CudaLevelled(engine, ordinal)


def _rows(words: Words) -> Words:
    return words.reshape(-1, *words.shape[-2:])
