"""Thresholds moved to points of a public grid: each to the point that separates the known values of its feature most as it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.trees.edges import between_singles
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from cloakwork.models.trees.public_grid import FeatureGrid


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
