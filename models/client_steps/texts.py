"""Texts as counts of their words or pieces: the first step of models of text.

The rules are those of scikit-learn's CountVectorizer, TfidfVectorizer (its weights are steps of their own) and HashingVectorizer. Words are found
by patterns of TOKENS alone, never by one of the client specification: a stranger's pattern could take for ever on an innocent text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps.checks import MOST_COLUMNS, demand
from cloakwork.models.client_steps.unfit import REFUSED, Refusing, Unfit
from cloakwork.models.errors import ShapeError

# Each finds all tokens in time proportional to the text.
TOKENS: Final[dict[str, re.Pattern[str]]] = {
    pattern: re.compile(pattern)
    for pattern in (
        r"(?u)\b\w\w+\b",
        r"(?u)\b\w+\b",
        r"\b\w\w+\b",
        r"\b\w+\b",
        r"(?u)\w+",
        r"\w+",
        r"\S+",
        r"[a-z]+",
        r"[a-zA-Z]+",
        r"[a-z0-9]+",
        r"[a-zA-Z0-9]+",
        r"(?u)\b[a-zA-Z]\w+\b",
    )
}
_SPACES: Final = re.compile(r"\s\s+")
_LONGEST: Final = 64  # words or characters of a piece


@dataclass(frozen=True, eq=False)
class Texts(Refusing):
    """Texts [samples] or [samples, 1] to counts [samples, features].

    A feature is a word or piece of `vocabulary`, others are not counted; or, when `hashed` > 0, one of that many, chosen by the piece's hash.
    """

    vocabulary: tuple[str, ...]
    hashed: int = 0
    signed: bool = False  # of hashed ones: the hash also says a sign
    analyzer: str = "word"  # char, char_wb: characters, of words alone
    pattern: str = r"(?u)\b\w\w+\b"
    lowercase: bool = True
    accents: str = ""  # or how they are taken away: ascii, unicode
    stop: tuple[str, ...] = ()  # words that are left out
    shortest: int = 1  # words or characters of a piece
    longest: int = 1
    binary: bool = False  # 1 for any count

    def __post_init__(self) -> None:
        demand((len(self.vocabulary) > 0) != (self.hashed > 0), "a vocabulary, or a number of features")
        demand(
            0 <= self.hashed <= MOST_COLUMNS and len(self.vocabulary) <= MOST_COLUMNS,
            f"at most {MOST_COLUMNS} features",
        )
        demand(all(isinstance(word, str) for word in (*self.vocabulary, *self.stop)), "words that are texts")
        demand(self.analyzer in ("word", "char", "char_wb"), "an analyzer: word, char or char_wb")
        demand(self.pattern in TOKENS, "one of the known patterns of words")
        demand(self.accents in ("", "ascii", "unicode"), "a rule for accents: ascii, unicode or none")
        demand(1 <= self.shortest <= self.longest <= _LONGEST, f"pieces of 1 to {_LONGEST} words or characters")

    @property
    def count(self) -> int:
        """Features."""
        return self.hashed or len(self.vocabulary)

    def __call__(self, x: Any, unfit: Unfit = REFUSED) -> Reals:
        array = np.asarray(x, dtype=object)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        reason = f"input: expected texts, an array of shape ['samples'], got shape {list(array.shape)} or other values; pass a list of texts"
        if array.ndim != 1:
            raise ShapeError(reason)
        strange = np.array([not isinstance(text, str) for text in array], dtype=np.bool_)
        array = unfit.taken(array, strange, "", reason)
        result = np.zeros((len(array), self.count))
        for row, text in zip(result, array, strict=True):
            for piece in self._pieces(_plain_text(text, self.lowercase, self.accents)):
                column, amount = self._feature(piece)
                if column >= 0:
                    row[column] = 1.0 if self.binary else row[column] + amount
        return result

    @cached_property
    def _place(self) -> dict[str, int]:
        return {word: column for column, word in enumerate(self.vocabulary)}

    @cached_property
    def _left_out(self) -> frozenset[str]:
        return frozenset(self.stop)

    def _feature(self, piece: str) -> tuple[int, float]:
        """Returns column and amount; -1 for what is not counted."""
        if not self.hashed:
            return self._place.get(piece, -1), 1.0
        number = murmur_hash(piece.encode("utf-8", "replace"))
        return abs(number) % self.hashed, -1.0 if self.signed and number < 0 else 1.0

    def _pieces(self, text: str) -> Iterator[str]:
        if self.analyzer == "word":
            words = [word for word in TOKENS[self.pattern].findall(text) if word not in self._left_out]
            yield from _runs(words, self.shortest, self.longest, " ".join)
        elif self.analyzer == "char":
            yield from _runs(_SPACES.sub(" ", text), self.shortest, self.longest, str)
        else:
            for word in text.split():
                padded = f" {word} "
                shortest, longest = (min(length, len(padded)) for length in (self.shortest, self.longest))
                yield from _runs(padded, shortest, longest, str)  # a word that is shorter than a piece counts once


def _runs(parts: Any, shortest: int, longest: int, joined: Callable[[Any], str]) -> Iterator[str]:
    for length in range(shortest, min(longest, len(parts)) + 1):
        for start in range(len(parts) - length + 1):
            yield joined(parts[start : start + length])


def _plain_text(text: str, lowercase: bool, accents: str) -> str:
    if lowercase:
        text = text.lower()
    if not accents:
        return text
    taken_apart = unicodedata.normalize("NFKD", text)
    if accents == "ascii":
        return taken_apart.encode("ASCII", "ignore").decode("ASCII")
    return "".join(character for character in taken_apart if not unicodedata.combining(character))


def murmur_hash(data: bytes) -> int:
    """Computes MurmurHash3 of 32 bits with seed 0, as a signed number. Source: [App11]."""
    mask, value = 0xFFFFFFFF, 0
    full = len(data) // 4 * 4
    for start in range(0, full, 4):
        value ^= _scrambled(int.from_bytes(data[start : start + 4], "little"))
        value = (value << 13 | value >> 19) & mask
        value = (value * 5 + 0xE6546B64) & mask
    if full < len(data):
        value ^= _scrambled(int.from_bytes(data[full:], "little"))
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & mask
    value = (value ^ value >> 13) * 0xC2B2AE35 & mask
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _scrambled(block: int) -> int:
    block = block * 0xCC9E2D51 & 0xFFFFFFFF
    block = (block << 15 | block >> 17) & 0xFFFFFFFF
    return block * 0x1B873593 & 0xFFFFFFFF
