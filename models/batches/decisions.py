"""Decisions of clients beyond the steps of linear models: votes of pairs of classes, radial kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.models import fields as typed
from cloakwork.models.arrays import Reals

_MOST_CLASSES = 1 << 10


@dataclass(frozen=True, eq=False)
class Votes:
    """Scores of pairs of classes (0, 1), (0, 2), .., (1, 2), ..: positive ones vote for the first. As scikit-learn's SVC decides.

    Attributes:
        labels: of three classes or more.
        break_ties: labels are those of the largest decision values, in which sums of scores break ties; else the first class of most votes.
        pairs: decision values are the scores of pairs; else votes and sums of scores, one for each class.
    """

    labels: NDArray[Any]
    break_ties: bool = False
    pairs: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.labels.ndim != 1 or not 3 <= len(self.labels) <= _MOST_CLASSES:
            raise ValueError(f"expected labels of 3 to {_MOST_CLASSES} classes")

    @property
    def scores(self) -> int:
        return math.comb(len(self.labels), 2)

    def decisions(self, scores: Reals) -> Reals:
        """Returns [samples, pairs or classes]."""
        if self.pairs:
            return scores
        votes, sums = self._votes(scores)
        decisions: Reals = votes + sums / (3 * (np.abs(sums) + 1))
        return decisions

    def decide(self, scores: Reals) -> NDArray[Any]:
        """Returns labels [samples]."""
        best = self.decisions(scores) if self.break_ties and not self.pairs else self._votes(scores)[0]
        labels: NDArray[Any] = self.labels[best.argmax(axis=1)]
        return labels

    def _votes(self, scores: Reals) -> tuple[Reals, Reals]:
        """Returns votes and sums of scores, [samples, classes] each."""
        first, second = np.triu_indices(len(self.labels), 1)
        of_first, of_second = np.zeros((2, scores.shape[1], len(self.labels)))
        pairs = np.arange(scores.shape[1])
        of_first[pairs, first], of_second[pairs, second] = 1, 1
        positive = (scores > 0).astype(np.float64)
        return positive @ of_first + (1 - positive) @ of_second, scores @ (of_first - of_second)

    def to_fields(self) -> dict[str, Any]:
        return {"labels": self.labels.tolist(), "break_ties": self.break_ties, "pairs": self.pairs}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Votes:
        """Parses what `fields` gave. Raises: KeyError, TypeError, ValueError."""
        return cls(typed.labels(fields["labels"]), typed.flag(fields["break_ties"]), typed.flag(fields["pairs"]))


@dataclass(frozen=True, eq=False)
class Radial:
    """Scores of radial kernels: dual exp(-gamma |x - v|^2) + intercept, of inner products <x, v> with vectors v about the client's centre.

    The client computes them, and is told what is here.

    Attributes:
        squares: [vectors], |v|^2.
        dual: [outputs, vectors].
        intercept: [outputs].
    """

    gamma: float
    squares: Reals
    dual: Reals
    intercept: Reals

    def __post_init__(self) -> None:
        """Raises ValueError."""
        shape = (len(self.intercept), len(self.squares)) if self.intercept.ndim == self.squares.ndim == 1 else ()
        if not shape or min(shape) < 1 or self.dual.shape != shape or not self.gamma > 0:
            raise ValueError("expected a radial kernel's width, vectors and weights of shapes that fit")

    def scores(self, products: Reals, squares: Reals) -> Reals:
        """Returns [samples, outputs].

        Args:
            products: [samples, vectors].
            squares: |x|^2, [samples].
        """
        distances = np.maximum(squares[:, None] + self.squares - 2 * products, 0.0)
        kernels = np.exp(-self.gamma * distances)
        scores: Reals = (
            np.einsum("sv,ov->so", kernels, self.dual) + self.intercept
        )  # of a sample the same beside any others
        return scores

    def to_fields(self) -> dict[str, Any]:
        return {
            "gamma": self.gamma,
            "squares": self.squares.tolist(),
            "dual": self.dual.tolist(),
            "intercept": self.intercept.tolist(),
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Radial:
        """Parses what `fields` gave. Raises: KeyError, TypeError, ValueError."""
        reals = (typed.reals(fields[name]) for name in ("squares", "dual", "intercept"))
        return cls(typed.real(fields["gamma"]), *reals)
