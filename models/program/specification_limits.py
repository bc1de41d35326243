"""Limits on the size of strangers' client specifications and of the tables that their steps make: known from shapes, before there are samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cloakwork.models.client_steps import Append, Polynomials, Project, Splines, Texts
from cloakwork.models.client_steps.nested import applied
from cloakwork.models.errors import ShapeError

MOST_TEXT_BYTES: Final = 16 << 20
_MOST_CONTAINERS: Final = 1 << 18  # lists and objects, which take a hundred bytes each
_MOST_STEPS: Final = 1000  # steps within steps included
_MOST_SAMPLE_NUMBERS: Final = 1 << 22  # in a table, of one sample
_MOST_NUMBERS: Final = 1 << 24  # in a table of all samples, or
_TIMES_THE_SAMPLES: Final = 16  # as many for each number that the user gives
_MOST_WORK: Final = 1 << 27  # numbers that all steps together make of all samples, or
_WORK_OF_A_NUMBER: Final = 256  # as many for each number that the user gives
_MOST_PIECES: Final = 1 << 24  # characters of all pieces of all texts, or
_PIECES_OF_A_CHARACTER: Final = 64  # as many for each character that the user gives


def check_text(text: str) -> None:
    """Raises ValueError for a JSON text that would take much more memory than a specification does."""
    if len(text) > MOST_TEXT_BYTES:
        raise ValueError(f"expected at most {MOST_TEXT_BYTES} characters")
    if text.count("[") + text.count("{") > _MOST_CONTAINERS:
        raise ValueError(f"expected at most {_MOST_CONTAINERS} lists and objects")


def check_step_count(fields: Any) -> None:
    """Raises ValueError for input steps in JSON of which there are too many, within each other too."""
    count, waiting = 0, [fields]
    while waiting:
        steps = waiting.pop()
        for step in steps if isinstance(steps, list) else ():
            count += isinstance(step, Mapping)
            if isinstance(step, list):
                waiting.append(step)
            elif isinstance(step, Mapping):
                waiting.append(step.get("steps"))
        if count > _MOST_STEPS:
            raise ValueError(f"expected at most {_MOST_STEPS} steps, those within steps included")


@dataclass
class TableSizes:
    """Sizes of the tables that input steps make of one sample.

    Attributes:
        widest: numbers of the largest table, with what making it takes.
        work: numbers of all tables, each as often as it is gone through.
        piece_characters: of all pieces of a text, for each of its characters; 0 where there are no texts.
    """

    widest: int = 0
    work: int = 0
    piece_characters: int = 0

    def add(self, step: Any, before: Any, after: Any) -> None:
        """Adds a step that makes one table of another. ValueError: too wide a one."""
        numbers_after = _numbers(after)
        width = _numbers(before) + 2 * numbers_after
        if width > _MOST_SAMPLE_NUMBERS:
            raise ValueError(f"expected tables of at most {_MOST_SAMPLE_NUMBERS} numbers a sample")
        self.widest = max(self.widest, width)
        self.work += numbers_after * _rounds(step)

    def check(self, x: Any) -> None:
        """Raises ShapeError for samples of which the steps would make too much."""
        count, numbers = _extent(x)
        if count * self.widest > max(_MOST_NUMBERS, _TIMES_THE_SAMPLES * numbers):
            raise ShapeError(
                f"input: the steps of this model make tables of {self.widest} numbers of each sample, too much for {count} samples at once; "
                f"score at most {max(1, _MOST_NUMBERS // self.widest)} together"
            )
        if count * self.work > max(_MOST_WORK, _WORK_OF_A_NUMBER * numbers):
            raise ShapeError(
                f"input: the steps of this model compute {self.work} numbers of each sample, too much for {count} samples at once; "
                f"score at most {max(1, _MOST_WORK // self.work)} together"
            )
        if self.piece_characters:
            self._check_texts(x)

    def _check_texts(self, x: Any) -> None:
        characters = sum(len(text) for text in np.asarray(x, dtype=object).reshape(-1) if isinstance(text, str))
        if characters * self.piece_characters > max(_MOST_PIECES, _PIECES_OF_A_CHARACTER * characters):
            raise ShapeError(
                f"input: this model takes {self.piece_characters} characters of pieces for each one of a text, too much for texts of "
                f"{characters} characters at once; score fewer or shorter ones together"
            )


def run_on_no_samples(steps: Sequence[Any], x: Any, sizes: TableSizes) -> Any:
    """Runs the steps on no samples x, and says how much it would be of one. ValueError or what steps raise: they do not fit each other."""
    for step in steps:
        before = x
        if isinstance(step, Append):
            part = run_on_no_samples(step.steps, x[:, step.columns], sizes)
            sizes.add(step, x, part)
        if isinstance(step, Texts):
            sizes.piece_characters = sum(range(step.shortest, step.longest + 1))
        x = applied(step, x)
        sizes.add(step, before, x)
    return x


def _numbers(x: Any) -> int:
    """Returns the numbers of one sample."""
    if isinstance(x, Mapping):
        return sum(map(_numbers, x.values()))
    return math.prod(np.shape(x)[1:])


def _rounds(step: Any) -> int:
    """Returns how often the numbers of a table are gone through to make it."""
    if isinstance(step, Polynomials):
        return 1 + int(step.powers.max(axis=0).sum())
    if isinstance(step, Splines):
        return 2 + step.degree
    if isinstance(step, Project):
        return 1 + len(step.offset) // 16
    return 1


def _extent(x: Any) -> tuple[int, int]:
    """Returns samples, and the numbers of all of them, of what `Client.score` takes."""
    if isinstance(x, Mapping):
        x = tuple(x.values())
    if isinstance(x, tuple) and x and not np.isscalar(x[0]):
        extents = [_extent(each) for each in x]
        return max(count for count, _ in extents), sum(numbers for _, numbers in extents)
    shape = x.shape if hasattr(x, "shape") else np.shape(x)
    return (shape[0], math.prod(shape)) if shape else (1, 1)
