"""Measures of agreement with the clear model for one output: by decisions, by values, or by the cosines of embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.program.facts import Measure

# Confidence intervals of a share.

ONE_SIDED: Final = 1.645  # standard deviations of the end of a one-sided interval of 95 %


def wilson(share: float, count: int, deviations: float) -> float:
    """Returns the end of Wilson's interval for a share, `deviations` standard deviations off. Source: [Wil27]."""
    square = deviations**2
    middle = share + square / (2 * count)
    spread = deviations * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, min(1.0, (middle + spread) / (1 + square / count)))


Task: TypeAlias = Literal["classification", "regression", "embedding"]
TASKS: Final = get_args(Task)
QUANTITIES: Final = 8  # numbers of a regression up to which each is a quantity of its own; more are one signal, of which parts hardly vary
_EXACT: Final = 1e-6  # of the spread: an error below it is none
_CONSTANT: Final = 1e-12  # of the largest variance of an output's numbers: one below it is a constant
_TENTHS: Final = 10
_IN_TENTH: Final = 4  # samples, at least
_ORDERED: Final = (
    0.99  # of the samples in which the numbers of an output are in order: they are the ends of an interval
)
_INTERVAL: Final = 0.4  # an error of an interval's end counts so much: 7.5 % of the width, which cost an interval of 80 % a point of coverage, as 3 %
_COSINES: Final = 0.3  # an error of cosines counts so much of their spread: a tenth of it, which costs little of an order of pairs, as 3 %
_SIGNAL: Final = 0.5  # an error of one of many numbers counts so much: who reads a signal reads many together
_CLASS: Final = 10  # decisions for a class, at least, to be judged by itself
_RARE_CLASS: Final = 5  # the same, for a more accurate program to be looked for
_DRAWS: Final = 64  # errors that each sample is tried with
_MOST_NUMBERS: Final = 1 << 23  # of all of these together
_FAR, _TIMES_FAR = (
    0.1,
    3,
)  # from what is asked for, of shares, and of errors in multiples of what is allowed: more samples would say the same
_LABEL = 0.5  # of a share
_TO_DIVIDE: Final = 200  # samples, at least, of which ranges and roundings do not see some
_UNSEEN, _MOST_UNSEEN, _HOLDING_SEED = 1 / 3, 500, 20261124


@dataclass(frozen=True)
class Verdict:
    """The verdict on one output.

    Args:
        measure: "agreement", the share of samples with the same decision; "closeness", 1 - root mean square error / spread of the clear model's
            values, the least of any number, or of all together and half if they are many; "cosine", 1 - root mean square error of the cosines between
            pairs of samples.
        at_least: the lower end of the value's one-sided confidence interval of 95 %. It also covers each class, tenth of the values and interval.
        doubled: the value under an error twice as large: calibration samples are mostly those of training, which a model decides more surely
            than new ones.
        rarest: the least agreement of any class by itself, if samples had the errors of others.
        unseen: how many of the samples ranges and roundings have not seen.
        differs: the sample that differs most, or first; None: none does.
        where: what the lower end is of, if not of all samples.
        otherwise: by another measure, if the model does not say what its output is for.
        unshown: how many of the output's numbers are the same for all samples, though they need not be, so that nothing is said of them.
    """

    measure: Measure
    value: float
    at_least: float
    doubled: float
    samples: int
    rarest: float = 1.0
    unseen: int = 0
    differs: int | None = None
    where: str = ""
    otherwise: Verdict | None = None
    unshown: int = 0

    @property
    def worth(self) -> tuple[float, float, float]:
        """Returns the worth by which programs are compared: of two the one with more of it is the more accurate."""
        return self.at_least, self.value, self.doubled

    def holds(self, accuracy: float) -> bool:
        """Whether the samples show it. No number of samples shows that all decisions are kept."""
        return self.value >= 1 if accuracy >= 1 else self.at_least >= accuracy

    def reaches(self, accuracy: float) -> bool:
        """Whether it holds, or looks so on samples that are too few to show it."""
        return self.holds(accuracy) or (self.value >= accuracy and self.samples < self.samples_for(accuracy))

    def samples_for(self, accuracy: float) -> int:
        """Estimates about how many samples would show it: of decisions, if a third of the allowed loss was found, else if the same error was."""
        if self.measure == "agreement":
            return samples_for(accuracy)
        loss, most, allowed = (1 - each for each in (self.value, self.at_least, accuracy))
        if not loss < allowed < most:
            return self.samples
        return math.ceil(self.samples * ((most**2 - loss**2) / (allowed**2 - loss**2)) ** 2)

    def leaves_no_doubt(self, accuracy: float) -> bool:
        """Whether decisions lose a third of what is allowed, for certain, and under twice the error as well; two thirds for each class by itself."""
        if self.measure != "agreement":
            return self.holds(accuracy)
        most = (1 - accuracy) / 3
        sure = wilson(self.value, self.samples, -1.0) >= 1 - most and self.doubled >= 1 - most
        return sure and self.reaches(accuracy) and self.rarest >= 1 - 2 * most

    def is_far_from(self, accuracy: float) -> bool:
        if self.measure == "agreement":
            return self.value < accuracy - _FAR
        return self.value < 1 - _TIMES_FAR * max(1 - accuracy, 0.01)

    def beside(self, other: Verdict) -> Verdict:
        """Joins the verdict of a program that loses what either says: the worse of labels, independent errors of values."""
        worse = min(self, other, key=lambda each: each.worth)
        if self.measure == "agreement":
            return worse
        at_least, value, doubled = (
            max(0.0, 1 - math.hypot(1 - one, 1 - two)) for one, two in zip(self.worth, other.worth, strict=True)
        )
        return replace(worse, value=value, at_least=at_least, doubled=doubled)

    @property
    def text(self) -> str:
        """Says what it would do, and on how many samples."""
        of_part = f" for {self.where}" if self.where else ""
        samples = f"{self.samples} samples"
        if self.measure == "agreement":
            end = f"at {'most' if self.where else 'least'} {100 * self.at_least:.1f} %{of_part}"
            return f"would decide as the clear one on {100 * self.value:.1f} % of {samples} ({end})"
        of = "of the spread of its values" if self.measure == "closeness" else "in cosines between pairs"
        error, most = 100 * (1 - self.value), 100 * (1 - self.at_least)
        return f"would be off by {error:.1f} % {of} on {samples} (at most {most:.1f} %{of_part})"


def held_out(count: int) -> NDArray[np.bool_]:
    """Chooses samples [count] that ranges and roundings do not see: some, if there are enough, and always the same."""
    unseen = np.zeros(count, dtype=bool)
    if count >= _TO_DIVIDE:
        order = np.random.default_rng(_HOLDING_SEED).permutation(count)
        unseen[order[: min(_MOST_UNSEEN, int(_UNSEEN * count))]] = True
    return unseen


def judged(verdict: Verdict, unseen: Verdict) -> Verdict:
    """Judges on all samples, of which ranges and roundings have not seen some: the lower end is that of all, unless the unseen ones do worse for
    certain.

    "For certain" is a standard deviation here.
    """
    most = unseen.value + (unseen.value - unseen.at_least) / ONE_SIDED
    at_least = min(verdict.value, most, verdict.at_least)
    return replace(verdict, at_least=at_least, unseen=unseen.samples, rarest=min(verdict.rarest, unseen.rarest))


def samples_for(accuracy: float) -> int:
    """Counts the samples that show an accuracy of a program that loses a third of what is allowed; 0 for one that none do."""
    if accuracy >= 1:
        return 0
    kept = 1 - (1 - accuracy) / 3
    few, enough = 1, 2
    while wilson(kept, enough, -ONE_SIDED) < accuracy:
        few, enough = enough, 2 * enough
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (middle, enough) if wilson(kept, middle, -ONE_SIDED) < accuracy else (few, middle)
    return enough


Decide: TypeAlias = Callable[
    [Reals], NDArray[np.int64]
]  # of outputs [samples, numbers]: decisions [samples, decisions]


def agreement(outputs: Reals, clear: Reals, decide: Decide) -> Verdict:
    """Judges decisions; several of a sample, labels that hold together, are judged each and by the worst."""
    decisions, doubled, clear_decisions = (decide(each).T for each in (outputs, 2 * outputs - clear, clear))
    others = _with_errors_of_others(outputs, clear, decide)
    verdicts = [_agreement(*each) for each in zip(decisions, doubled, clear_decisions, others, strict=True)]
    return min(verdicts, key=lambda each: each.worth)


def _with_errors_of_others(outputs: Reals, clear: Reals, decide: Decide) -> NDArray[np.int64]:
    """Returns [decisions, samples, draws]: as there would be if samples had the errors of others; few of a rare class say more of it then."""
    draws = max(1, min(_DRAWS, len(clear), _MOST_NUMBERS // clear.size))
    errors = (outputs - clear)[np.linspace(0, len(clear) - 1, draws).astype(np.int64)]
    mixed = (clear[:, None] + errors[None]).reshape(-1, clear.shape[1])
    return np.moveaxis(decide(mixed).reshape(len(clear), draws, -1), -1, 0)


def labels_kept(program_labels: NDArray[Any], clear_labels: NDArray[Any]) -> Verdict:
    """Judges labels [samples] without the scores behind them."""
    return _agreement(program_labels, program_labels, clear_labels, program_labels[:, None])


def _agreement(
    decisions: NDArray[Any], doubled: NDArray[Any], clear_decisions: NDArray[Any], others: NDArray[Any]
) -> Verdict:
    kept = decisions == clear_decisions
    value, count = float(kept.mean()), len(kept)
    ends = {"": wilson(value, count, -ONE_SIDED)}
    of_classes = _of_classes(decisions[:, None], clear_decisions, _CLASS)
    ends |= {f"class {label}": wilson(*each, ONE_SIDED) for label, each in of_classes.items()}
    where = min(ends, key=lambda name: ends[name])
    rarest = min((share for share, _ in _of_classes(others, clear_decisions, _RARE_CLASS).values()), default=1.0)
    differs = None if kept.all() else int(kept.argmin())
    twice = float((doubled == clear_decisions).mean())
    return Verdict("agreement", value, ends[where], twice, count, rarest, differs=differs, where=where)


def _of_classes(decisions: NDArray[Any], clear_decisions: NDArray[Any], fewest: int) -> dict[Any, tuple[float, int]]:
    """Computes F1 of each class with enough decisions: of decisions [samples, draws] against the clear model's; and how many these are."""
    shares = {}
    for label in np.unique(clear_decisions).tolist():
        decided, right = (decisions == label).mean(axis=1), clear_decisions == label
        if (count := int(right.sum())) >= fewest:
            shares[label] = (min(1.0, 2 * float(decided[right].sum()) / (float(decided.sum()) + count)), count)
    return shares


def closeness(outputs: Reals, clear: Reals) -> Verdict:
    """Judges values [samples, numbers]."""
    error, variance = outputs - clear, clear.var(axis=0)
    varies = variance > max(_CONSTANT * float(variance.max(initial=0.0)), 1e-300)
    if not varies.any():
        return Verdict("closeness", 1.0, 1.0, 1.0, len(clear))
    lost = np.square(error[:, varies]) / (variance[varies] if len(variance) <= QUANTITIES else variance[varies].mean())
    differs = int(lost.max(axis=1).argmax())
    if len(variance) > QUANTITIES:
        lost = _SIGNAL**2 * lost.mean(axis=1, keepdims=True)
    errors = {"": root_mean_square(lost)}
    if len(variance) <= QUANTITIES:
        deviation = np.sqrt(variance[varies])
        errors["a tenth of its values"] = _tenths(error[:, varies] / deviation, clear[:, varies])
        errors["the interval between its outer numbers"] = _interval(error[:, varies], clear[:, varies])
    where = max(errors, key=lambda name: errors[name])
    worst, _ = errors[where]
    if worst < _EXACT:
        return Verdict("closeness", 1.0, 1.0, 1.0, len(clear))
    most = max(end for _, end in errors.values())
    return Verdict("closeness", 1 - worst, 1 - most, 1 - 2 * worst, len(clear), differs=differs, where=where)


def root_mean_square(lost: Reals) -> tuple[float, float]:
    """Returns the worst root mean square of squared errors [samples, numbers], and the upper end of its confidence interval."""
    mean = lost.mean(axis=0)
    upper = mean + ONE_SIDED * lost.std(axis=0) / math.sqrt(len(lost))
    return math.sqrt(float(mean.max())), math.sqrt(float(upper.max()))


def _tenths(error: Reals, clear: Reals) -> tuple[float, float]:
    """Measures how far the worst tenth of a number's values is off on average, for certain: the ends of ranges, say."""
    worst = 0.0
    for errors, values in zip(error.T, clear.T, strict=True):
        for tenth in np.array_split(np.argsort(values, kind="stable"), min(_TENTHS, len(values) // _IN_TENTH) or 1):
            inside = errors[tenth]
            worst = max(worst, abs(float(inside.mean())) - ONE_SIDED * float(inside.std()) / math.sqrt(len(inside)))
    return worst, worst


def _interval(error: Reals, clear: Reals) -> tuple[float, float]:
    """Numbers that keep an order, as quantiles do: the error of the outer two beside their distance."""
    order = np.argsort(clear.mean(axis=0), kind="stable")
    if len(order) < 2 or float((np.diff(clear[:, order], axis=1) >= 0).all(axis=1).mean()) < _ORDERED:
        return 0.0, 0.0
    ends = order[[0, -1]]
    width = float(np.square(clear[:, ends[1]] - clear[:, ends[0]]).mean())
    if width <= 0:
        return 0.0, 0.0
    return root_mean_square(_INTERVAL**2 * np.square(error[:, ends]) / width)


def cosine(outputs: Reals, clear: Reals) -> Verdict:
    """Judges embeddings [samples, numbers], by the cosines of their pairs."""
    count = len(clear)
    if count < 2:
        return Verdict("cosine", 1.0, 1.0, 1.0, count)
    pairs = ~np.eye(count, dtype=bool)
    clear_cosines = _cosines(clear)
    spread = float(clear_cosines[pairs].std())
    lost, doubled = (
        np.square(np.where(pairs, _cosines(clear + times * (outputs - clear)) - clear_cosines, 0.0)).sum(axis=1)
        / (count - 1)
        for times in (1, 2)
    )
    upper = lost.mean() + 2 * ONE_SIDED * lost.std() / math.sqrt(count)  # of a mean over pairs, which share samples
    counts = max(1.0, _COSINES / spread) if spread > _EXACT else 1.0
    worst, most, twice = (counts * math.sqrt(float(each)) for each in (lost.mean(), upper, doubled.mean()))
    if worst < _EXACT:
        return Verdict("cosine", 1.0, 1.0, 1.0, count)
    where = "cosines beside their spread" if counts > 1 else ""
    return Verdict("cosine", 1 - worst, 1 - most, 1 - twice, count, differs=int(lost.argmax()), where=where)


def _cosines(embeddings: Reals) -> Reals:
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / np.where(lengths > 0, lengths, 1.0)
    result: Reals = unit @ unit.T
    return result


def decisions(outputs: Reals, clear: Reals) -> NDArray[np.int64]:
    """Returns [samples, 1]: the largest number; of one number whether it is above 0, or 0.5 for probabilities."""
    if outputs.shape[1] > 1:
        return np.asarray(outputs.argmax(axis=1)[:, None])
    middle = 0.0 if float(clear.min()) < 0 else _LABEL
    return (outputs > middle).astype(np.int64)


def labels(shares: Reals, clear: Reals) -> NDArray[np.int64]:
    """Returns the labels of shares [samples, numbers] of a logistic function or a comparison: the largest if just one is above a half in most
    samples, else each."""
    if shares.shape[1] > 1 and float(((clear > _LABEL).sum(axis=1) == 1).mean()) > 1 - _FAR:
        return np.asarray(shares.argmax(axis=1, keepdims=True))
    return (shares > _LABEL).astype(np.int64)


# The place of trees' thresholds: "grid" and "server" keep them secret, "client" discloses them.

Comparisons: TypeAlias = Literal["grid", "client", "server"]

GridKind: TypeAlias = Literal["auto", "integers", "categories", "uniform", "quantiles"]
Grids: TypeAlias = GridKind | Mapping[str | int, GridKind | ArrayLike]
"""One kind for all features, or for some of them, by name or number, a kind or the points themselves."""

GRID_BITS: Final = (6, 8, 10, 12, 14, 16)  # that are tried where none are asked for
