"""The public side of levelled arithmetic: sums, products, rotations, divisions by primes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, ShapeError, require_kind
from cloakwork.fhe_core.levelled import noise
from cloakwork.fhe_core.levelled.backends import AnyPrepared, AnyWords, Words, backend_of
from cloakwork.fhe_core.levelled.ciphertexts import (
    SQUARE,
    ExpandedLevelledKeys,
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    require_levelled,
    require_same_key,
)
from cloakwork.fhe_core.levelled.parameters import LevelledParameters, centred, polynomials
from cloakwork.fhe_core.words import Progress, report

FAILURE_LOG2 = -128.0  # of a ciphertext
_POLYNOMIALS_AT_ONCE = 64  # of a table while it is made, as integers of 64 bits
_WORTH = 4.0  # a division is worth its primes while it takes the noise's deviation down to so many times what it brings


MOST_WEIGHT = 1 << 25  # absolute values of a combination's weights add up to less: sums of words are below 2^53


@dataclass(frozen=True, eq=False)
class PlainTable:
    """Plaintext polynomials that ciphertexts are multiplied by: [rows, terms, N], transformed at one level."""

    prepared: AnyPrepared
    norm1: float  # the largest of a row, of all its terms: sum of absolute coefficients
    norm2: float  # likewise, root of the sum of squares

    @property
    def level(self) -> int:
        """Counts the primes that it was prepared for."""
        level: int = self.prepared.shape[2]
        return level

    @property
    def nbytes(self) -> int:
        """In memory."""
        size: int = self.prepared.nbytes
        return size


@dataclass(frozen=True, eq=False)
class PlainSummands:
    """Plaintext polynomials that are added to ciphertexts of one level and scale."""

    words: AnyWords  # [batch, level, N]
    scale: int


class LevelledEvaluator:
    """Computes on ciphertexts without their key. Results are new; operands stay.

    Polynomials of plaintexts are integers [N], or [batch, N] one for each ciphertext; they count modulo t. Other shapes and dtypes are a ShapeError,
    ciphertexts of another key a KeyMismatchError, results that would decrypt wrongly too often a ParameterError, in all methods.

    Args:
        parameters: the set and the plaintext modulus t of all operands.
        keys: of the client, for products and automorphisms; None for sums and products with plaintexts alone.
        device: "cpu", "cuda" or "cuda:N". Ciphertexts of the host are moved there, results are there (`to_host`).
        threads: of the CPU.
        p_fail_log2: results that would decrypt wrongly with a larger probability are refused.
    """

    def __init__(
        self,
        parameters: LevelledParameters,
        keys: LevelledEvaluationKeys | ExpandedLevelledKeys | None = None,
        *,
        device: str = "cpu",
        threads: int = 1,
        p_fail_log2: float = FAILURE_LOG2,
    ) -> None:
        if keys is not None:
            advice = "an evaluator has no secret: pass LevelledClientKey.evaluation_keys(..), or LevelledEvaluationKeys.from_bytes(..)"
            require_kind(keys, (LevelledEvaluationKeys, ExpandedLevelledKeys), "keys", advice)
        if keys is not None and keys.parameters != parameters:
            raise KeyMismatchError(f"keys: expected some of {parameters.label}, got some of {keys.parameters.label}")
        self._parameters, self._limit = parameters, p_fail_log2
        self._backend = backend_of(parameters.engine, device, threads)
        if isinstance(keys, LevelledEvaluationKeys):
            keys = ExpandedLevelledKeys.of(keys, device, threads)
        if keys is not None and keys.device != device:
            raise KeyMismatchError(f"keys: expected some expanded for device '{device}', got '{keys.device}'")
        self._key_id = None if keys is None else keys.key_id
        self._keys = {} if keys is None else keys.prepared

    @property
    def parameters(self) -> LevelledParameters:
        """Returns the parameters of the keys."""
        return self._parameters

    # --- sums ---

    def add(self, a: LevelledCiphertexts, b: LevelledCiphertexts, *, subtract: bool = False) -> LevelledCiphertexts:
        """a + b or a - b, item by item, at the lower of their levels."""
        a, b = self._alike(a, b)
        words = self._backend.add(self._words(a), self._words(b), subtract)
        return self._checked(replace(a, words=words, noise=a.noise.plus(b.noise)))

    def subtract(self, a: LevelledCiphertexts, b: LevelledCiphertexts) -> LevelledCiphertexts:
        """a - b, slot by slot."""
        return self.add(a, b, subtract=True)

    def add_plain(self, a: LevelledCiphertexts, messages: ArrayLike) -> LevelledCiphertexts:
        """a and polynomials of integers, [batch, N] or [N] for all."""
        values = self._polynomials(messages)
        if len(values) not in (1, len(a)):
            raise ShapeError(f"messages: expected 1 or {len(a)} polynomials, got {len(values)}")
        return self.add_summands(a, self.summands(np.broadcast_to(values, (len(a), values.shape[1])), a.level, a.scale))

    def summands(self, messages: ArrayLike, level: int, scale: int = 1) -> PlainSummands:
        """Prepares polynomials of integers [batch, N] once for many sums with ciphertexts of a level and a scale."""
        values = self._polynomials(messages) * scale % self._parameters.plaintext_modulus
        small = centred(values, self._parameters.plaintext_modulus)
        return PlainSummands(self._backend.transform(self._residues(small, level)), scale)

    def add_summands(self, a: LevelledCiphertexts, summands: PlainSummands) -> LevelledCiphertexts:
        """Adds to a what `summands` prepared, item by item."""
        expected, actual = (len(a), a.level), (summands.words.shape[0], summands.words.shape[1])
        if actual != expected or summands.scale != a.scale:
            raise ShapeError(
                f"summands: expected {expected[0]} of level {expected[1]} and scale {a.scale}, got {actual[0]} of level {actual[1]} and scale "
                f"{summands.scale}"
            )
        body, mask = (self._backend.part(self._words(a), number) for number in range(2))
        words = self._backend.from_parts([self._backend.add(body, summands.words, False), mask])
        return self._checked(replace(a, words=words, noise=a.noise.plus(noise.message(self._parameters))))

    def scale(self, a: LevelledCiphertexts, factor: int) -> LevelledCiphertexts:
        """a times an integer, which counts modulo t."""
        require_levelled(a, "scale")
        if not isinstance(factor, int | np.integer):
            raise ShapeError(f"factor: expected an integer, got {type(factor).__name__}; round it first")
        t = self._parameters.plaintext_modulus
        small = int(factor) % t
        small -= t if small > t // 2 else 0
        words = self._backend.scale(self._words(a), small)
        return self._checked(replace(a, words=words, noise=a.noise.scaled(small)))

    # --- products ---

    def table(self, polynomials: ArrayLike, level: int, progress: Progress = None) -> PlainTable:
        """Prepares plaintexts once for many products.

        Args:
            polynomials: integers [rows, terms, N].
            level: of the ciphertexts that they will be multiplied by.
            progress: called with polynomials done and in all.
        """
        values = np.asarray(polynomials)
        if values.ndim != 3 or values.dtype.kind not in "iu" or values.shape[2] != self._parameters.polynomial_size:
            raise ShapeError(
                f"polynomials: expected integers of shape [rows, terms, {self._parameters.polynomial_size}], got {values.dtype} of shape "
                f"{list(values.shape)}"
            )
        rows, terms, size = values.shape
        norm1, norm2 = np.zeros(rows), np.zeros(rows)
        rows_at_once, terms_at_once = max(1, _POLYNOMIALS_AT_ONCE // terms), min(terms, _POLYNOMIALS_AT_ONCE)

        def chunks() -> Iterator[Words]:
            for row in range(0, rows, rows_at_once):
                for term in range(0, terms, terms_at_once):
                    part = values[row : row + rows_at_once, term : term + terms_at_once]
                    small = centred(np.ascontiguousarray(part), self._parameters.plaintext_modulus)
                    absolute = np.abs(small).reshape(len(part), -1).astype(np.float64)
                    norm1[row : row + len(part)] += absolute.sum(axis=1)
                    norm2[row : row + len(part)] += np.einsum("ij,ij->i", absolute, absolute)
                    yield self._residues(small.reshape(-1, size), level)
                    report(progress, row * terms + len(part) * (term + part.shape[1]), rows * terms)

        prepared = self._backend.table(chunks(), (rows, terms, level, size))
        return PlainTable(prepared, float(norm1.max()), math.sqrt(float(norm2.max())))

    def multiply_table(
        self, a: LevelledCiphertexts, table: PlainTable, *, independent: bool = False, progress: Progress = None
    ) -> LevelledCiphertexts:
        """sum over the terms k of a[k] times the plaintext [row, k], for every row of a table.

        Args:
            a: a ciphertext for every term; or several, those of a term together: results are then of the first row, those of the second, ..
            independent: whether the ciphertexts' noises are: of fresh ones.
        """
        self._same_level(a, table)
        terms = table.prepared.shape[1]
        together = len(a) // terms
        if together * terms != len(a):
            raise ShapeError(f"a: expected a multiple of {terms} ciphertexts, as the table has terms, got {len(a)}")
        words = self._backend.reshape(self._words(a), (terms, 2 * together))
        words = self._backend.products(words, table.prepared, progress)
        words = self._backend.reshape(words, (table.prepared.shape[0] * together, 2))
        summed = a.noise.times_plain(table.norm1, math.sqrt(1 if independent else terms) * table.norm2)
        return self._checked(replace(a, words=words, noise=summed))

    def multiply_plain(self, a: LevelledCiphertexts, messages: ArrayLike) -> LevelledCiphertexts:
        """Multiplies every ciphertext by one polynomial of integers [N]."""
        values = self._polynomials(messages)
        if len(values) != 1:
            raise ShapeError(f"messages: expected one polynomial, got {len(values)}")
        return self.multiply_each(a, self.table(values[None], a.level))

    def multiply_each(self, a: LevelledCiphertexts, table: PlainTable) -> LevelledCiphertexts:
        """Multiplies every ciphertext by the one polynomial of a table [1, 1, N]."""
        if table.prepared.shape[:2] != (1, 1):
            raise ShapeError(f"table: expected one polynomial, got {list(table.prepared.shape[:2])}")
        self._same_level(a, table)
        # One term, whose parts are those of all ciphertexts.
        rows = self._backend.reshape(self._words(a), (1, 2 * len(a)))
        words = self._backend.reshape(self._backend.products(rows, table.prepared), (len(a), 2))
        return self._checked(replace(a, words=words, noise=a.noise.times_plain(table.norm1, table.norm2)))

    def multiply(self, a: LevelledCiphertexts, b: LevelledCiphertexts) -> LevelledCiphertexts:
        """a times b, item by item. Raises: KeyMismatchError: without a key for products."""
        require_levelled(a, "a")
        require_levelled(b, "b")
        require_same_key(a.key_id, b.key_id)
        level = min(a.level, b.level)
        a, b = self.modulus_switch(a, level), self.modulus_switch(b, level)
        if len(a) != len(b):
            raise ShapeError(f"b: expected {len(a)} ciphertexts, got {len(b)}")
        key = self._key(SQUARE, a)
        product = self._backend.multiply(self._words(a), self._words(b))
        body, mask, square = (self._backend.part(product, number) for number in range(3))
        words = self._backend.add(self._backend.from_parts([body, mask]), self._backend.keyswitch(square, key), False)
        size, t = self._parameters.polynomial_size, self._parameters.plaintext_modulus
        after = noise.after_keyswitch(a.noise.times(b.noise, size), self._parameters, level)
        return self._checked(replace(a, words=words, scale=a.scale * b.scale % t, noise=after))

    def combine(self, a: LevelledCiphertexts, weights: ArrayLike, *, independent: bool = False) -> LevelledCiphertexts:
        """sum over k of weights[row, k] a[k], for every row: the same as `scale` and `add`, all of them at once.

        Args:
            weights: integers [rows, ciphertexts]; absolute values of a row add up to less than 2^25.
            independent: whether the ciphertexts' noises are: of fresh ones.
        """
        values = np.asarray(weights)
        if values.ndim != 2 or values.dtype.kind not in "iu" or values.shape[1] != len(a) or not len(values):
            raise ShapeError(
                f"weights: expected integers of shape [rows, {len(a)}], got {values.dtype} of shape {list(values.shape)}"
            )
        norm1, norm2 = combination_norms(values)
        words = self._backend.combine(self._words(a), values.astype(np.int64))
        summed = a.noise.times_plain(norm1, math.sqrt(1 if independent else len(a)) * norm2)
        return self._checked(replace(a, words=words, noise=summed))

    def multiply_sum(self, a: LevelledCiphertexts, b: LevelledCiphertexts, *, rounded: int = 0) -> LevelledCiphertexts:
        """sum over the terms k of a[k] times b[k]: one keyswitch for each sum.

        Args:
            a: a ciphertext for every term; or several, those of a term together: as many results, in their order.
            b: a ciphertext for every term, of the same level.
            rounded: how many primes every ciphertext of `a` was just divided by, by itself: these roundings count as independent.

        Raises:
            KeyMismatchError: without a key for products.
            ShapeError: other numbers of ciphertexts, or levels.
        """
        require_same_key(a.key_id, b.key_id)
        terms = len(b)
        results = len(a) // terms
        if results * terms != len(a) or results == 0 or a.level != b.level:
            raise ShapeError(
                f"a: expected a multiple of {terms} ciphertexts of level {b.level}, as b, got {len(a)} of level {a.level}"
            )
        key, backend = self._key(SQUARE, a), self._backend
        right = backend.concatenate([backend.part(self._words(b), number) for number in range(2)])
        left = backend.reshape(self._words(a), (terms, 2 * results))
        # [part of b, result, part of a]
        products = backend.reshape(backend.products(left, backend.prepare(right, 2)), (2 * results, 2))
        by_body, by_mask = (backend.part(products, number) for number in range(2))
        body, square = backend.take(by_body, 0, results), backend.take(by_mask, results, 2 * results)
        mask = backend.add(backend.take(by_body, results, 2 * results), backend.take(by_mask, 0, results), False)
        words = backend.add(backend.from_parts([body, mask]), backend.keyswitch(square, key), False)
        scale = a.scale * b.scale % self._parameters.plaintext_modulus
        summed = noise.sum_of_products(a.noise, b.noise, self._parameters, terms, rounded)
        after = noise.after_keyswitch(summed, self._parameters, a.level)
        return self._checked(replace(a, words=words, scale=scale, noise=after))

    # --- rotations ---

    def automorphism(self, a: LevelledCiphertexts, g: int) -> LevelledCiphertexts:
        """X -> X^g. Raises: KeyMismatchError: without the key for it."""
        key = self._key(g, a)
        moved = self._backend.automorphism(self._words(a), g)
        switched = self._backend.keyswitch(self._backend.part(moved, 1), key)
        body, mask = (self._backend.part(switched, number) for number in range(2))
        words = self._backend.from_parts([self._backend.add(self._backend.part(moved, 0), body, False), mask])
        return self._checked(replace(a, words=words, noise=noise.after_keyswitch(a.noise, self._parameters, a.level)))

    # --- batches ---

    def take(self, a: LevelledCiphertexts, which: slice) -> LevelledCiphertexts:
        """Takes a range of the ciphertexts. ShapeError for an empty one, or one with steps."""
        first, last, step = which.indices(len(a))
        if step != 1 or first >= last:
            raise ShapeError(f"which: expected a range of some of {len(a)} ciphertexts, got {which}")
        return replace(a, words=self._backend.take(self._words(a), first, last))

    def deal(self, a: LevelledCiphertexts, hands: int) -> list[LevelledCiphertexts]:
        """Ciphertexts number i, i + hands, i + 2 hands, .. for each i below `hands`."""
        if hands < 1 or len(a) % hands:
            raise ShapeError(f"hands: expected a divisor of {len(a)}, as there are ciphertexts, got {hands}")
        words = self._backend.reshape(self._words(a), (len(a) // hands, 2 * hands))
        return [
            replace(a, words=self._backend.from_parts([self._backend.part(words, 2 * i + k) for k in range(2)]))
            for i in range(hands)
        ]

    def concatenate(self, parts: Sequence[LevelledCiphertexts]) -> LevelledCiphertexts:
        """Joins ciphertexts of one level and scale. The noise of all counts as that of the noisiest."""
        first = parts[0]
        for part in parts[1:]:
            require_same_key(first.key_id, part.key_id)
            if (part.level, part.scale) != (first.level, first.scale):
                raise ShapeError("parts: expected ciphertexts of one level and scale")
        noises = [part.noise for part in parts]
        by_degree = zip_longest(*(each.variances for each in noises), fillvalue=0.0)
        most = noise.Noise(max(each.bound for each in noises), tuple(max(each) for each in by_degree))
        return self._checked(
            replace(first, words=self._backend.concatenate([self._words(part) for part in parts]), noise=most)
        )

    # --- levels ---

    def modulus_switch(self, a: LevelledCiphertexts, level: int) -> LevelledCiphertexts:
        """Divided by the primes above `level`, and the noise with them, down to what rounding brings."""
        if level == a.level:
            return a
        if not 1 <= level < a.level:
            raise ParameterError(f"level: expected 1 to {a.level}, got {level}")
        words = self._backend.modulus_switch(self._words(a), level)
        divisor = math.prod(self._parameters.set.primes[level : a.level])
        t = self._parameters.plaintext_modulus
        after = noise.after_division(a.noise, self._parameters, divisor, a.level - level)
        return self._checked(replace(a, words=words, scale=a.scale * pow(divisor, -1, t) % t, noise=after))

    def rescale(self, a: LevelledCiphertexts) -> LevelledCiphertexts:
        """Rescales to the least level that keeps the noise well above what rounding brings: before a product, which noises grow with."""
        level = rescaled_level(self._parameters, a.level, a.noise, self._limit)
        return self.modulus_switch(a, level)

    # --- inside ---

    def _same_level(self, a: LevelledCiphertexts, table: PlainTable) -> None:
        if table.level != a.level:
            raise ShapeError(
                f"table: expected one of level {a.level}, as the ciphertexts, got one of level {table.level}"
            )

    def _key(self, g: int, a: LevelledCiphertexts) -> AnyPrepared:
        name = "products" if g == SQUARE else f"the automorphism {g}"
        if g not in self._keys:
            raise KeyMismatchError(f"no key for {name} is here: ask the client for evaluation_keys with it")
        assert self._key_id is not None
        require_same_key(self._key_id, a.key_id)
        return self._keys[g]

    def _alike(self, a: LevelledCiphertexts, b: LevelledCiphertexts) -> tuple[LevelledCiphertexts, LevelledCiphertexts]:
        """At one level and one scale."""
        require_levelled(a, "a")
        require_levelled(b, "b")
        require_same_key(a.key_id, b.key_id)
        if len(a) != len(b):
            raise ShapeError(f"b: expected {len(a)} ciphertexts, got {len(b)}")
        level, t = min(a.level, b.level), self._parameters.plaintext_modulus
        a, b = self.modulus_switch(a, level), self.modulus_switch(b, level)
        if a.scale != b.scale:
            b = replace(self.scale(b, a.scale * pow(b.scale, -1, t)), scale=a.scale)
        return a, b

    def _words(self, a: LevelledCiphertexts) -> AnyWords:
        """[batch, 2, level, N], where this runs."""
        require_levelled(a, "ciphertexts")
        return self._backend.here(a.words)

    def _polynomials(self, messages: ArrayLike) -> NDArray[np.int64]:
        return polynomials(messages, self._parameters.polynomial_size, self._parameters.plaintext_modulus)

    def _residues(self, values: NDArray[np.signedinteger], level: int) -> Words:
        """Centred integers [polynomials, N] as residues [polynomials, level, N]."""
        primes = np.array(self._parameters.set.primes[:level], dtype=np.int32)[:, None]
        small = values.astype(np.int32)[:, None, :]  # within half of t, so of every prime
        words: Words = np.ascontiguousarray(np.where(small < 0, small + primes, small)).view(np.uint32)
        return words

    def _checked(self, a: LevelledCiphertexts) -> LevelledCiphertexts:
        if a.parameters != self._parameters:
            raise KeyMismatchError(
                f"expected ciphertexts of {self._parameters.label}, got some of {a.parameters.label}"
            )
        if (failure_log2 := a.failure_log2) > self._limit:
            raise ParameterError(
                f"the result would decrypt wrongly with probability 2^{failure_log2:.0f}, more than 2^{self._limit:.0f}: take a set of more levels "
                f"than '{self._parameters.set.name}', a smaller plaintext modulus or fewer products; or divide before (rescale)"
            )
        return replace(a, dropped_bits=0) if a.dropped_bits else a


def combination_norms(weights: NDArray[Any]) -> tuple[float, float]:
    """Returns the largest of a row: sum of absolute values, root of the sum of squares. Raises: ParameterError: 2^25 or more."""
    absolute = np.abs(weights.astype(np.float64))
    norm1, norm2 = float(absolute.sum(axis=1).max()), float(np.sqrt(np.square(absolute).sum(axis=1)).max())
    if norm1 >= MOST_WEIGHT:
        raise ParameterError(f"weights: expected rows of absolute sum below 2^25, got {norm1:.0f}")
    return norm1, norm2


def rescaled_level(parameters: LevelledParameters, level: int, left: noise.Noise, limit: float) -> int:
    """Returns the level that `LevelledEvaluator.rescale` goes to. Args: limit: log2 of the largest probability of a failure."""
    while level > 1:
        prime = parameters.set.primes[level - 1]
        after = noise.after_division(left, parameters, prime, 1)
        floor = noise.rounding(parameters, 1).deviation
        if left.deviation / prime < floor / _WORTH and left.deviation < _WORTH * floor:
            break
        if noise.failure_log2(after, parameters, level - 1) > limit:
            break
        level, left = level - 1, after
    return level
