"""An ensemble on the public grid that clients know: its grid, its thresholds moved there, and how well it still agrees with itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals, some_rows
from cloakwork.models.client_steps import Thermometer, column_labels, run_input_steps, run_output_steps
from cloakwork.models.criteria.verdicts import GRID_BITS, Verdict
from cloakwork.models.errors import AccuracyError, AccuracyWarning, CompileError, some, warn_user
from cloakwork.models.original.agreement import Answers, least_of
from cloakwork.models.program.facts import GridFacts
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble, between_singles
from cloakwork.models.trees.grid_bits import grid_step
from cloakwork.models.trees.options import TreeOptions
from cloakwork.models.trees.public_grid import FeatureGrid, public_grid

# Points between samples, as new samples are: thresholds lie midway between samples, so that these say little of one that has moved.

_POINTS: Final = 2000
_FEW_TREES: Final = 10  # of which a threshold that moves changes an answer seldom, by much: more points show it
_MOST_NUMBERS: Final = 1 << 24  # of these more points
_SEED: Final = 20261128
_KNOWN: Final = ("integers", "categories")  # grids of features that have no values between those seen


def points_between(samples: Reals, grids: Sequence[FeatureGrid], ensemble: TreeEnsemble) -> Reals:
    """Returns [points, features]: samples whose features are drawn anew between the middles to the next lower and the next higher value.

    A value that repeats stays, as do features of whole numbers, steps and categories.

    Args:
        samples: [samples, features], NaN where values are missing.
        ensemble: features that it does not compare stay.
    """
    rng = np.random.default_rng(_SEED)
    more = min(_POINTS * (_FEW_TREES // len(ensemble.trees)), _MOST_NUMBERS // ensemble.features)
    drawn = max(_POINTS, more)
    points = np.resize(some_rows(samples, drawn), (drawn, samples.shape[1]))
    for feature in np.unique(np.concatenate([tree.feature[tree.inner] for tree in ensemble.trees])).tolist():
        column, values, grid = points[:, feature], samples[:, feature], grids[feature]
        distinct, count = np.unique(values[~np.isnan(values)], return_counts=True)
        if len(distinct) < 2 or grid.kind in _KNOWN:
            continue
        middles = np.concatenate([distinct[:1], distinct[:-1] / 2 + distinct[1:] / 2, distinct[-1:]])
        moving = np.flatnonzero(~np.isnan(column))
        place = np.searchsorted(distinct, column[moving])
        moving, place = moving[count[place] == 1], place[count[place] == 1]
        low, high = middles[place], middles[place + 1]
        share = rng.random(len(moving))
        column[moving] = (1 - share) * low + share * high
    return points


# Thresholds moved to points of a public grid: each to the point that separates the known values of its feature most as it did.


@dataclass(frozen=True, eq=False)
class Snapped:
    """The ensemble on the grid. moved: [features] for each, how many comparisons of calibration samples come out otherwise, summed over nodes."""

    ensemble: TreeEnsemble
    moved: Indices


def snapped(ensemble: TreeEnsemble, grids: Sequence[FeatureGrid], samples: Reals | None) -> Snapped:
    """Moves thresholds to grid points. Args: samples: [samples, features], what counts where not all values of a feature are known."""
    moved = np.zeros(ensemble.features, dtype=np.int64)
    inner = [tree.inner for tree in ensemble.trees]
    feature = np.concatenate(
        [tree.feature[inner_nodes] for tree, inner_nodes in zip(ensemble.trees, inner, strict=True)]
    )
    threshold = np.concatenate(
        [tree.threshold[inner_nodes] for tree, inner_nodes in zip(ensemble.trees, inner, strict=True)]
    )
    order = np.argsort(feature, kind="stable")
    for nodes in np.split(order, np.flatnonzero(np.diff(feature[order])) + 1):
        if len(nodes):
            number = int(feature[nodes[0]])
            column = np.zeros(0) if samples is None else samples[:, number]
            known = np.sort(column[~np.isnan(column)])
            threshold[nodes], moved[number] = _placed(threshold[nodes], grids[number], known, ensemble)
    ends = np.cumsum([len(inner_nodes) for inner_nodes in inner])[:-1]
    trees = [
        _with_thresholds(tree, inner_nodes, part)
        for tree, inner_nodes, part in zip(ensemble.trees, inner, np.split(threshold, ends), strict=True)
    ]
    return Snapped(replace(ensemble, trees=tuple(trees)), moved)


def _with_thresholds(tree: Tree, nodes: Indices, thresholds: Reals) -> Tree:
    every = np.asarray(tree.threshold, dtype=np.float64).copy()
    every[nodes] = thresholds
    return replace(tree, threshold=every)


def _placed(thresholds: Reals, grid: FeatureGrid, column: Reals, ensemble: TreeEnsemble) -> tuple[Reals, int]:
    """Returns the point of each threshold, and how many comparisons of the column change."""
    points = grid.points
    known = grid.values if len(grid.values) else column
    held_by_threshold, held_by_point = _holding(thresholds, known, ensemble), _holding(points, known, ensemble)
    first, after = (
        np.searchsorted(held_by_point, held_by_threshold, "left"),
        np.searchsorted(held_by_point, held_by_threshold, "right"),
    )
    nearest = _nearest(points, thresholds)
    inside = np.clip(nearest, first, np.maximum(after - 1, first))  # points that separate the values just so
    below, above = np.maximum(first - 1, 0), np.minimum(first, len(points) - 1)
    loss_below, loss_above = (
        np.abs(held_by_point[below] - held_by_threshold),
        np.abs(held_by_point[above] - held_by_threshold),
    )
    closer = np.abs(points[below] - thresholds) <= np.abs(points[above] - thresholds)
    beside = np.where((loss_below < loss_above) | ((loss_below == loss_above) & closer), below, above)
    chosen = points[np.where(after > first, inside, beside)]
    changed = np.abs(_holding(chosen, column, ensemble) - _holding(thresholds, column, ensemble))
    return chosen, int(changed.sum())


def _holding(thresholds: Reals, values: Reals, ensemble: TreeEnsemble) -> Indices:
    """Counts the values, ascending, that the comparison holds for."""
    limits = np.finfo(np.float32 if ensemble.single else np.float64)
    finite = np.clip(thresholds, -float(limits.max), float(limits.max))
    if ensemble.single:
        finite, values = between_singles(finite, ensemble.strict), values.astype(np.float32).astype(np.float64)
    return np.searchsorted(values, finite, side="left" if ensemble.strict else "right").astype(np.int64)


def _nearest(points: Reals, thresholds: Reals) -> Indices:
    after = np.clip(np.searchsorted(points, thresholds), 0, len(points) - 1)
    before = np.maximum(after - 1, 0)
    return np.where(thresholds - points[before] <= points[after] - thresholds, before, after).astype(np.int64)


ENOUGH_AGREEMENT: Final = 0.98  # with less there is a warning
_WANTED: Final = 0.99  # for which more bits are tried, where they cost next to nothing
_CHEAP_BITS: Final = 8
COMPARED: Final = 2000  # calibration samples
_MOST_NAMED: Final = 3


@dataclass(frozen=True, eq=False)
class OnGrid:
    ensemble: TreeEnsemble  # with thresholds on the grid
    grids: tuple[FeatureGrid, ...]
    step: Thermometer | None  # of thresholds="grid"; else it follows from the parameter set
    facts: GridFacts  # but for what is sent
    moved: Indices  # samples that change sides, by feature
    verdict: Verdict | None  # None: there are no samples


def on_grid(ensemble: TreeEnsemble, options: TreeOptions) -> OnGrid:
    """Moves an ensemble to the coarsest grid that keeps enough, where its bits were not asked for.

    Raises:
        CompileError: no samples and no ranges, or wishes that cannot be fulfilled.
        AccuracyError: the grid is too coarse, under the accuracy that was asked for.

    Warns:
        AccuracyWarning: the same, nearly.
    """
    first = options.first_steps(ensemble)
    samples = calibration_table(ensemble, options)
    names = column_labels(first, np.zeros((1, ensemble.features))) or ()
    bits = GRID_BITS if options.grid_bits is None else (options.grid_bits,)
    chosen = _with_bits(ensemble, options, samples, names, bits[0])
    for more in bits[1:]:
        if not _is_coarse(chosen.verdict, options.accuracy, more):
            break
        try:
            finer = _with_bits(ensemble, options, samples, names, more)
        except CompileError:  # more than a sample should have
            break
        assert chosen.verdict is not None and finer.verdict is not None
        chosen = finer if finer.verdict.worth > chosen.verdict.worth else chosen
    verdict, accuracy = chosen.verdict, options.accuracy
    if verdict is not None and (verdict.value < ENOUGH_AGREEMENT or not verdict.reaches(accuracy)):
        worst = [names[i] for i in np.argsort(-chosen.moved, kind="stable")[:_MOST_NAMED] if chosen.moved[i]]
        text = _text(verdict, chosen.facts.bits, worst)
        if not verdict.reaches(accuracy):
            raise AccuracyError(f"{text}; {100 * accuracy:g} % were asked for (accuracy=)")
        warn_user(text, AccuracyWarning)
    return chosen


def _with_bits(
    ensemble: TreeEnsemble, options: TreeOptions, samples: Reals | None, names: Sequence[str], bits: int
) -> OnGrid:
    grids = public_grid(samples, names, options.grid, options.ranges, bits)
    step = grid_step(ensemble, grids, bits) if options.thresholds == "grid" else None
    snap = snapped(ensemble, grids, samples)
    verdict = None
    if samples is not None:
        both = (some_rows(samples, COMPARED), points_between(samples, grids, ensemble))
        verdict = least_of(answers_of(ensemble, snap.ensemble, each) for each in both)
    compared = 0 if samples is None else min(COMPARED, len(samples))
    return OnGrid(snap.ensemble, grids, step, _facts(verdict, compared, grids, bits), snap.moved, verdict)


def _is_coarse(verdict: Verdict | None, accuracy: float, more: int) -> bool:
    """Whether more bits are worth it: up to 8 they cost next to nothing."""
    if verdict is None:
        return False
    return not verdict.reaches(accuracy) or (more <= _CHEAP_BITS and verdict.value < max(accuracy, _WANTED))


def calibration_table(ensemble: TreeEnsemble, options: TreeOptions) -> Reals | None:
    """Returns [samples, features] as the trees see them; None where there are none."""
    if options.samples is None:
        return None
    table = np.asarray(run_input_steps(options.first_steps(ensemble), options.samples), dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != ensemble.features or not len(table):
        raise CompileError(
            f"samples: expected samples of {ensemble.features} features, got an array of shape {list(table.shape)}; pass training samples"
        )
    strange = np.isinf(table) if ensemble.takes_missing else ~np.isfinite(table)
    if strange.any():
        raise CompileError(
            f"samples: expected finite features of the trees, got another in sample {int(np.argmax(strange.any(axis=1)))} after the steps "
            "before them; leave such samples out"
        )
    return table


def _facts(verdict: Verdict | None, samples: int, grids: tuple[FeatureGrid, ...], bits: int) -> GridFacts:
    kinds = dict(sorted(Counter(grid.kind for grid in grids).items()))
    points = sum(grid.count for grid in grids)
    if verdict is None:
        return GridFacts(bits, points, 0, kinds)
    return GridFacts(bits, points, 0, kinds, verdict.measure, verdict.value, samples, at_least=verdict.at_least)


def answers_of(ensemble: TreeEnsemble, other: TreeEnsemble, samples: Reals) -> Answers:
    clear, answers = (
        np.asarray(run_output_steps(each.output_steps, each.scores(samples))) for each in (ensemble, other)
    )
    return clear, answers


def _text(verdict: Verdict, bits: int, worst: list[str]) -> str:
    kept = "decide as before on" if verdict.measure == "agreement" else "keep their values to"
    where = f", most by the grid of {some(worst)}" if worst else ""
    at_least = f"{'of ' + verdict.where + ' at most' if verdict.where else 'at least'} {100 * verdict.at_least:.1f} %"
    return (
        f"public grid of {bits} bits: on samples, and points between them, the trees {kept} {100 * verdict.value:.1f} % "
        f"({at_least}){where}; more grid_bits help, and where few values lie far from the others grid='quantiles', which tells clients about the "
        "samples, or ranges="
    )
