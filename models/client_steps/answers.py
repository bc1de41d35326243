"""Steps after decryption: from decrypted numbers to scores, probabilities and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import Stage, as_wide, check_labels, demand
from cloakwork.models.client_steps.transforms import LARGEST, TRANSFORMS, best_class, class_threshold
from cloakwork.models.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Integers:
    """Rounding to the nearest integer, which removes the noise."""

    stage: ClassVar[Stage] = "scores"

    def __call__(self, x: Reals) -> Reals:
        return np.rint(x)


@dataclass(frozen=True, eq=False)
class Wrap:
    """Rounding to the nearest integer, and that modulo `modulus` into [lowest[j], lowest[j] + modulus): a torus has no absolute integers."""

    lowest: Indices
    modulus: int
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        demand(self.lowest.ndim == 1 and self.modulus > 0, "a lowest value for each output and a positive modulus")

    def __call__(self, x: Reals) -> Reals:
        as_wide(x, len(self.lowest))
        result: Reals = np.remainder(np.rint(x) - self.lowest, self.modulus) + self.lowest
        return result


@dataclass(frozen=True, eq=False)
class Digits:
    """Output j, an integer, as digits in the mixed radix of its row of `radix` (ones at the end are skipped), the lowest first."""

    radix: Indices  # [outputs, most digits]
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        demand(self.radix.ndim == 2 and bool((self.radix > 0).all()), "positive radices [outputs, most digits]")

    def __call__(self, x: Reals) -> Reals:
        columns = []
        for j, row in enumerate(self.radix):
            rest = x[:, j]
            for base in row[row > 1]:
                columns.append(rest % base)
                rest = rest // base
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Combine:
    """Groups added up: x matrix + offset; matrix [numbers, outputs]. In the order of the numbers, so that a tie has one answer on every machine."""

    matrix: Reals
    offset: Reals
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        demand(
            self.matrix.ndim == 2 and self.offset.shape == self.matrix.shape[1:],
            "a matrix and an offset for each output",
        )

    def __call__(self, x: Reals) -> Reals:
        demand(x.shape[1] == len(self.matrix), "as many numbers as the matrix has rows")
        result = np.zeros((len(x), len(self.offset)))
        for numbers, row in zip(x.T, self.matrix, strict=True):
            result += numbers[:, None] * row
        return result + self.offset


@dataclass(frozen=True, eq=False)
class Members:
    """Columns in groups of `sizes`, one for each member of an ensemble: its probabilities by its transform, or its vote, side by side.

    A vote is 1 for the class that the member tells and 0 for the others. One column of classes gives two.
    """

    sizes: Indices
    transforms: tuple[str, ...]  # of models/client_steps/transforms.py
    parameters: Reals
    classes: bool
    votes: bool = False
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        count = (len(self.transforms),)
        demand(self.sizes.shape == self.parameters.shape == count, "a size and a parameter for each member")
        demand(count > (0,) and bool((self.sizes > 0).all()), "members with columns")
        demand(all(name in TRANSFORMS for name in self.transforms) and bool(self.parameters.all()), "known transforms")

    def __call__(self, x: Reals) -> Reals:
        demand(x.shape[1] == int(self.sizes.sum()), "as many columns as the members have")
        groups = np.split(x, np.cumsum(self.sizes)[:-1], axis=1)
        return np.concatenate([self._one(i, group) for i, group in enumerate(groups)], axis=1)

    def _one(self, member: int, scores: Reals) -> Reals:
        name = self.transforms[member]
        if not self.votes:
            return TRANSFORMS[name](scores, float(self.parameters[member]), self.classes)
        best = best_class(scores, class_threshold(name))
        votes: Reals = (best[:, None] == np.arange(max(2, scores.shape[1]))).astype(np.float64)
        return votes


@dataclass(frozen=True, eq=False)
class Curves:
    """Column j by straight lines between the points x, y of [start[j], start[j + 1]), the ends beyond them: isotonic calibration."""

    start: Indices  # [columns + 1]
    x: Reals
    y: Reals
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        demand(
            self.start.ndim == 1 and len(self.start) > 1 and self.x.shape == self.y.shape == (self.x.size,),
            "points of columns",
        )
        demand(int(self.start[0]) == 0 and int(self.start[-1]) == len(self.x), "points that all belong to a column")
        demand(bool((np.diff(self.start) > 0).all()), "a point for each column")
        parts = np.split(self.x, self.start[1:-1])
        demand(all(bool((np.diff(part) >= 0).all()) for part in parts), "points in ascending order")

    def __call__(self, x: Reals) -> Reals:
        demand(x.shape[1] == len(self.start) - 1, "as many columns as there are curves")
        places = zip(self.start[:-1].tolist(), self.start[1:].tolist(), strict=True)
        columns = [np.interp(x[:, j], self.x[a:b], self.y[a:b]) for j, (a, b) in enumerate(places)]
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Transform:
    """A transform of models/client_steps/transforms.py: sigmoid, softmax, exp, .."""

    name: str
    parameter: float = 1.0
    classes: bool = False
    stage: ClassVar[Stage] = "probabilities"

    def __post_init__(self) -> None:
        demand(self.name in TRANSFORMS and self.parameter != 0, "a known transform with a parameter other than 0")

    def __call__(self, x: Reals) -> Reals:
        return TRANSFORMS[self.name](x, self.parameter, self.classes)


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of the largest score, the first of equal ones; of one column the second label above the threshold."""

    labels: NDArray[Any]
    threshold: float = 0.0
    stage: ClassVar[Stage] = "labels"

    def __post_init__(self) -> None:
        check_labels(self.labels)

    def __call__(self, x: Reals) -> NDArray[Any]:
        if len(self.labels) != max(2, x.shape[1]):
            raise ShapeError(f"output: expected scores for {len(self.labels)} labels, got {x.shape[1]} columns")
        return self.labels[best_class(x, self.threshold)]


@dataclass(frozen=True, eq=False)
class LabelGroups:
    """One label for each of several outputs: that of the largest score in the output's group of `sizes[j]` columns."""

    labels: NDArray[Any]  # of all groups, one after the other
    sizes: Indices
    stage: ClassVar[Stage] = "labels"

    def __post_init__(self) -> None:
        check_labels(self.labels)
        demand(self.sizes.ndim == 1 and len(self.sizes) > 0 and bool((self.sizes > 0).all()), "groups of labels")
        demand(int(self.sizes.sum()) == len(self.labels), "a group for each label")

    def __call__(self, x: Reals) -> NDArray[Any]:
        demand(x.shape[1] == len(self.labels), "a score for each label")
        ends = np.cumsum(self.sizes)
        best = [LARGEST(part) for part in np.split(x, ends[:-1], axis=1)]
        return np.stack([self.labels[first + b] for first, b in zip(ends - self.sizes, best, strict=True)], axis=1)


@dataclass(frozen=True, eq=False)
class Indicators:
    """Several labels that may hold together: 1 for those whose score is above the threshold, else 0: [samples, labels]."""

    threshold: float = 0.0
    stage: ClassVar[Stage] = "labels"

    def __call__(self, x: Reals) -> NDArray[np.int64]:
        return (x > self.threshold).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Outliers:
    """Outlier labels: -1 for samples whose score is below the offset, 1 for the others."""

    offset: float
    stage: ClassVar[Stage] = "labels"

    def __call__(self, x: Reals) -> NDArray[np.int64]:
        return np.where(x[:, 0] - self.offset < 0, -1, 1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Pick:
    """The label whose number the only output is: the arg-max was taken before decryption."""

    labels: NDArray[Any]
    stage: ClassVar[Stage] = "labels"

    def __post_init__(self) -> None:
        check_labels(self.labels)

    def __call__(self, x: Reals) -> NDArray[Any]:
        number = np.rint(x[:, 0]).astype(np.int64)
        if ((number < 0) | (number >= len(self.labels))).any():
            raise ShapeError("output: expected the numbers of labels; the result is of another model or was damaged")
        return self.labels[number]


@dataclass(frozen=True, eq=False)
class Squeeze:
    """One output: [samples] instead of [samples, 1]."""

    stage: ClassVar[Stage] = "labels"

    def __call__(self, x: Reals) -> Reals:
        return x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x
