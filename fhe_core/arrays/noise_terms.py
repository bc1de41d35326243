"""Terms of the noise of ciphertexts: per ciphertext a sum of integer multiples of sources.

Evaluation is deterministic: a look-up done twice gives the same words, whose noise adds up as m sigma and not as sqrt(m) sigma. So two
sources are one when their words are: a source is known by a fingerprint of the first words of its mask, up to sign, which a constant on the
body does not change. Masks are uniform modulo Q, so that four words tell ciphertexts apart; a ciphertext without a mask has no noise.

A *fresh* source (an encryption, the output of a look-up) has noise of one unit, independent of every other one. An *opaque* source is a sum
whose parts are not known, such as one read from a file; it may share noise with anything. The noise of a ciphertext is at most

    sqrt(sum of squared multiples of fresh sources) + sum of |multiples of opaque sources| * their norms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.device_words import DeviceWords, on_host
from cloakwork.fhe_core.words import Words, without_repeats

Reals: TypeAlias = NDArray[np.float64]
Rearrangement: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]

MASK_WORDS = 4
_MOST_LATE = 8
_FRESH = 1.0
_EXACT, _ENDLESS = 2.0**53, 2.0**100
_TERM_BYTES = 16
_SORTED_ENTRIES = 1 << 22  # merged at a time
_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93], dtype=np.uint64
)  # odd, with no pattern; a fingerprint is the words' sum of products modulo 2^64


@dataclass(frozen=True)
class Terms:
    """Arrays [.., T]: fingerprint, multiple and norm of each term; views that repeat nothing in memory where an axis is broadcast."""

    sources: NDArray[np.uint64]
    factors: Reals
    norms: Reals

    def rearranged(self, change: Rearrangement) -> Terms:
        return Terms(*(change(array) for array in (self.sources, self.factors, self.norms)))

    def broadcast_to(self, shape: tuple[int, ...]) -> Terms:
        return self.rearranged(lambda array: np.broadcast_to(array, (*shape, array.shape[-1])))

    def scaled(self, factors: Reals) -> Terms:
        """Multiplies by factors [..] that broadcast with the shape."""
        shape = np.broadcast_shapes(self.factors.shape[:-1], factors.shape)
        spread = self.broadcast_to(shape)
        return Terms(spread.sources, *_exact(spread.factors * factors[..., None], spread.norms))

    def weighted(self, matrix: Reals) -> Terms:
        """Multiplies [.., C, T] by weights [R, C]: [.., R, C T]."""
        (rows, columns), count = matrix.shape, self.sources.shape[-1]
        outer = self.sources.shape[:-2]

        def spread(array: NDArray[Any]) -> NDArray[Any]:
            flat = without_repeats(array, keep=2).reshape(
                *without_repeats(array, keep=2).shape[:-2], 1, columns * count
            )
            return np.broadcast_to(flat, (*outer, rows, columns * count))

        factors = without_repeats(self.factors, keep=2)
        weighted = (factors[..., None, :, :] * matrix[:, :, None]).reshape(*factors.shape[:-2], rows, columns * count)
        weighted, norms = _exact(np.broadcast_to(weighted, (*outer, rows, columns * count)), spread(self.norms))
        return Terms(spread(self.sources), weighted, norms)

    def merged(self) -> Terms:
        """Returns every source once in each ciphertext; itself when it is so."""
        sources = without_repeats(self.sources)
        count = sources.shape[-1]
        if count < 2 or sources.size == 0 or (count == 2 and not (sources[..., 0] == sources[..., 1]).any()):
            return self
        order = np.argsort(sources, axis=-1)
        ordered = np.take_along_axis(sources, order, axis=-1)
        first = np.concatenate(
            [np.ones((*ordered.shape[:-1], 1), bool), ordered[..., 1:] != ordered[..., :-1]], axis=-1
        )
        if first.all():
            return self
        group = np.cumsum(first, axis=-1) - 1
        return self._gathered(order, ordered, group)

    def _gathered(self, order: NDArray[np.int64], ordered: NDArray[np.uint64], group: NDArray[np.int64]) -> Terms:
        shape, count = self.sources.shape[:-1], self.sources.shape[-1]
        groups = int(group.max()) + 1
        rows = int(np.prod(shape, dtype=np.int64))
        index = [np.broadcast_to(array, (*shape, count)) for array in (order, ordered, group, self.factors, self.norms)]
        result = Terms(np.zeros((rows, groups), np.uint64), np.zeros((rows, groups)), np.zeros((rows, groups)))
        step = max(_SORTED_ENTRIES // max(count, 1), 1)
        for start in range(0, rows, step):
            part = slice(start, min(start + step, rows))
            places, names, slots, factors, norms = (_rows_of(array, part) for array in index)
            flat = (slots + groups * np.arange(len(slots))[:, None]).reshape(-1)
            sums = np.bincount(flat, np.take_along_axis(factors, places, axis=1).reshape(-1), len(slots) * groups)
            result.factors[part] = sums.reshape(-1, groups)
            result.sources[part].reshape(-1)[flat] = names.reshape(-1)
            np.maximum.at(result.norms[part].reshape(-1), flat, np.take_along_axis(norms, places, axis=1).reshape(-1))
        return result.rearranged(lambda array: array.reshape(*shape, groups))

    def bounds(self) -> Reals:
        """Returns [..], some axes of length 1 where all along them is equal: the noise of each ciphertext in units of a fresh source, at most."""
        merged = self.merged()
        factors, norms = without_repeats(merged.factors), without_repeats(merged.norms)
        if bool((norms == _FRESH).all()):
            norm: Reals = np.sqrt(np.einsum("...t,...t->...", factors, factors))
            return norm
        fresh = np.where(norms == _FRESH, factors, 0.0)
        opaque = np.where(norms == _FRESH, 0.0, np.abs(factors) * norms)
        total: Reals = np.sqrt(np.square(fresh).sum(axis=-1)) + opaque.sum(axis=-1)
        return total


def _exact(factors: Reals, norms: Reals) -> tuple[Reals, Reals]:
    """Multiples too large to be added up exactly count as noise without end, which nothing cancels."""
    compact = without_repeats(factors, keep=0)
    if compact.size == 0 or float(np.abs(compact).max()) < _EXACT:
        return factors, norms
    giant = np.abs(factors) >= _EXACT
    return np.where(giant, _EXACT, factors), np.where(giant, _ENDLESS, norms)


def added(x: Terms, y: Terms) -> Terms:
    """Returns the terms of both, not merged; shapes are broadcast."""
    shape = np.broadcast_shapes(x.sources.shape[:-1], y.sources.shape[:-1])
    x, y = x.broadcast_to(shape), y.broadcast_to(shape)
    return joined([x, y], axis=-1)


def joined(parts: list[Terms], axis: int) -> Terms:
    return Terms(
        np.concatenate([part.sources for part in parts], axis=axis),
        np.concatenate([part.factors for part in parts], axis=axis),
        _joined_norms([part.norms for part in parts], axis),
    )


def _joined_norms(parts: list[Reals], axis: int) -> Reals:
    """Returns one number for all where it is the same in all parts."""
    numbers = [without_repeats(part, keep=0) for part in parts]
    first = numbers[0].reshape(-1)[:1]
    if all(number.size == 1 and number.item() == first for number in numbers):
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return np.broadcast_to(first, shape)
    return np.concatenate(parts, axis=axis)


def concatenated(parts: list[Terms], axis: int) -> Terms:
    """Concatenates along an axis of the ciphertexts' shape; those of fewer terms are filled up with multiples 0."""
    count = max(part.sources.shape[-1] for part in parts)

    def filled(array: NDArray[Any]) -> NDArray[Any]:
        missing = count - array.shape[-1]
        return array if missing == 0 else np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])

    return joined([part.rearranged(filled) for part in parts], axis)


class NoiseTerms:
    """The terms of an array of ciphertexts, found when they are first asked for.

    Until then it holds the words (or what they were computed from), which are dropped afterwards.
    """

    def __init__(self, find: Callable[[], Terms], norm: float | None = None, *, is_source: bool = False) -> None:
        self._find: Callable[[], Terms] | None = find
        self._terms: Terms | None = None
        self._norm = norm
        self._own = is_source  # each ciphertext is a source of its own, of norm `norm`
        self._begin: Callable[[], Callable[[], Terms]] | None = (
            None  # of words on a device: enqueues what finding waits for
        )
        self._late = 0  # how many steps that were put off, of words on a device, lie behind it

    @classmethod
    def of_words(cls, params: ParameterSet, words: Words | DeviceWords, norm: float) -> NoiseTerms:
        """Makes every ciphertext a source: fresh ones when the norm is 1, opaque ones otherwise."""
        terms = cls(lambda: _sources(leading_words(words), words, params, np.asarray(norm)), norm, is_source=True)
        if isinstance(words, DeviceWords):

            def begin() -> Callable[[], Terms]:
                heads = words.leading(MASK_WORDS)
                return lambda: _sources(heads().astype(np.uint64), words, params, np.asarray(norm))

            terms._begin = begin
        return terms

    @classmethod
    def of_packed(cls, params: ParameterSet, words: Words, shape: tuple[int, ...], norm: float) -> NoiseTerms:
        """Returns the terms of the values that GLWE words [G, k + r, N] hold, as their extraction gives them."""

        def find() -> Terms:
            heads = packed_leading_words(params, words)[: int(np.prod(shape, dtype=np.int64))]
            return _sources(heads.reshape(*shape, MASK_WORDS), None, params, np.asarray(norm))

        return cls(find, norm)

    @classmethod
    def of_terms(cls, terms: Terms) -> NoiseTerms:
        return cls(lambda: terms)

    @property
    def terms(self) -> Terms:
        find = self._find
        if find is not None:  # two threads may both find them
            self._terms = find()
            self._own = False
            self._find = self._begin = None
        assert self._terms is not None
        return self._terms

    @property
    def norm(self) -> float:
        """Returns the norm of the noisiest ciphertext, in units of a fresh source, at most."""
        if self._norm is None:
            self._norm = float(self.terms.bounds().max(initial=0.0))
        return self._norm

    def moved(self, params: ParameterSet, words: Words | DeviceWords) -> NoiseTerms:
        """Returns the terms of other words with the same masks up to sign, such as a copy, or a sum with constants."""
        if self._own and self._norm is not None:
            return NoiseTerms.of_words(params, words, self._norm)
        return self

    def negated(self, params: ParameterSet, words: Words | DeviceWords) -> NoiseTerms:
        """Returns the terms of the negated words, whose fingerprints are the same and their signs the others."""
        return self.moved(params, words) if self._own else self.scaled(np.array(-1.0))

    @classmethod
    def of_concatenation(
        cls, parts: Sequence[NoiseTerms], params: ParameterSet, words: Words | DeviceWords, axis: int
    ) -> NoiseTerms:
        norms = {part._norm for part in parts}
        if all(part._own for part in parts) and len(norms) == 1:
            return cls.of_words(params, words, norms.pop() or 0.0)
        return cls.of_terms(concatenated([part.terms for part in parts], axis))

    def rearranged(self, params: ParameterSet, words: Words | DeviceWords, change: Rearrangement) -> NoiseTerms:
        """Returns the terms of a part or another order of the ciphertexts, whose words are `words`."""
        if self._own and self._norm is not None:
            return NoiseTerms.of_words(params, words, self._norm)
        return NoiseTerms.of_terms(self.terms.rearranged(change))

    def plus(self, other: NoiseTerms, params: ParameterSet, words: Words | DeviceWords) -> NoiseTerms:
        """Returns the terms of a sum, whose words are `words`. That of two arrays on a device is put off until the norm is asked for."""

        def find() -> Terms:
            return _limited(added(self.terms, other.terms), params, words)

        return self._put_off(find) if self._on_its_way() and other._on_its_way() else NoiseTerms.of_terms(find())

    def scaled(self, factors: Reals) -> NoiseTerms:
        if 0 < self._late < _MOST_LATE and self._find is not None:
            return self._put_off(lambda: self.terms.scaled(factors))
        return NoiseTerms.of_terms(self.terms.scaled(factors))

    def _on_its_way(self) -> bool:
        """Whether its words lie on a device and have not been looked at yet; a copy of what is needed is enqueued then."""
        begin = self._begin
        if begin is not None:
            self._find, self._begin, self._late = begin(), None, 1
        return self._late == 1 and self._own

    def _put_off(self, find: Callable[[], Terms]) -> NoiseTerms:
        terms = NoiseTerms(find)
        terms._late = self._late + 1
        return terms

    def weighted(self, matrix: NDArray[Any], params: ParameterSet, words: Words | DeviceWords) -> NoiseTerms:
        """Returns the terms of a linear layer [R, C] on ciphertexts [.., C], whose result is `words`."""
        return NoiseTerms(lambda: _limited(self.terms.weighted(matrix.astype(np.float64)), params, words))


def joint_norm(parts: Sequence[NoiseTerms]) -> float:
    """Returns the norm of the sum of all, without its words."""
    total = parts[0].terms
    for part in parts[1:]:
        total = added(total, part.terms)
    return float(total.bounds().max(initial=0.0))


def _limited(terms: Terms, params: ParameterSet, words: Words | DeviceWords) -> Terms:
    """Itself, or the sums `words` as opaque sources when their terms would take more memory than they."""
    limit = max(words.shape[-1] * words.dtype.itemsize // _TERM_BYTES, 1)
    if terms.sources.shape[-1] > limit:
        terms = terms.merged()
    if terms.sources.shape[-1] <= limit:
        return terms
    bounds = np.broadcast_to(terms.bounds(), terms.sources.shape[:-1])
    return _sources(leading_words(words), words, params, bounds, opaque=True)


# --- fingerprints ------------------------------------------------------------------------------------------------------------------


def leading_words(words: Words | DeviceWords) -> NDArray[np.uint64]:
    """Takes the first words of the masks of [.., kN + r]: [.., 4]."""
    if isinstance(words, DeviceWords):
        return words.leading(MASK_WORDS)().astype(np.uint64)
    return words[..., :MASK_WORDS].astype(np.uint64)


def packed_leading_words(params: ParameterSet, words: Words) -> NDArray[np.uint64]:
    """Takes leading words of [G, k + r, N] to [G N, 4]: word i of the mask of coefficient j is coefficient j - i of the first mask, negated below
    0."""
    size = params.polynomial_size
    mask = words[:, 0, :].astype(np.uint64)
    negated = (np.uint64(params.modulus) - mask[:, size - MASK_WORDS + 1 :]) % np.uint64(params.modulus)
    extended = np.concatenate([negated, mask], axis=1)
    heads = [extended[:, MASK_WORDS - 1 - i : MASK_WORDS - 1 - i + size] for i in range(MASK_WORDS)]
    return np.stack(heads, axis=-1).reshape(-1, MASK_WORDS)


def _sources(
    heads: NDArray[np.uint64],
    words: Words | DeviceWords | None,
    params: ParameterSet,
    norms: Reals,
    opaque: bool = False,
) -> Terms:
    """Returns one term for each ciphertext: the fingerprint of its words up to sign, times that sign (0 for those without a mask)."""
    lead = heads[..., 0]
    if not lead.all():
        for i in range(1, MASK_WORDS):
            lead = np.where(lead == 0, heads[..., i], lead)
        if words is not None and not lead.all():
            heads, lead = _sparse_heads(heads, lead, words, params.large_dimension)
    modulus = np.uint64(params.modulus)
    negative = lead > modulus // np.uint64(2)
    with np.errstate(over="ignore"):  # single numbers warn where arrays wrap around
        upright = sum(heads[..., i] * _MULTIPLIERS[i] for i in range(MASK_WORDS))
        counted = _MULTIPLIERS.sum() if heads.all() else (heads != 0) @ _MULTIPLIERS
        turned = modulus * counted - upright  # of Q - w for every word but 0
        names = np.where(negative, turned, upright)
    signs = np.where(negative, -1.0, 1.0)
    if not lead.all():
        signs = np.where(lead == 0, 0.0, signs)
    if opaque:
        norms = np.where(norms == _FRESH, np.nextafter(_FRESH, 2), norms)
    return Terms(names[..., None], signs[..., None], np.broadcast_to(norms[..., None], (*lead.shape, 1)))


def _sparse_heads(
    heads: NDArray[np.uint64], lead: NDArray[np.uint64], words: Words | DeviceWords, mask_words: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """For masks that begin with zeros: the first words that are not, where there are any (only masks made by hand are so)."""
    heads, lead = heads.copy(), np.array(lead)
    empty = np.asarray(lead == 0)
    words = on_host(words)
    empty[empty] = words[empty][..., :mask_words].any(axis=-1)
    for position in map(tuple, np.argwhere(empty).tolist()):
        mask = words[position][:mask_words]
        places = np.flatnonzero(mask)[:MASK_WORDS]
        heads[position][: len(places)] = mask[places]
        lead[position] = heads[position][0]
    return heads, lead


# --- helpers -----------------------------------------------------------------------------------------------------------------------


def _rows_of(array: NDArray[Any], rows: slice) -> NDArray[Any]:
    """Returns rows of [.., T] in C order as a copy [rows, T]."""
    numbers = np.arange(rows.start, rows.stop)
    return np.asarray(array[np.unravel_index(numbers, array.shape[:-1])]) if array.ndim > 1 else array[None]
