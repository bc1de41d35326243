"""The edges of an ensemble: every comparison that it makes, once, and the bins of each feature between them.

Bin b of a feature lies between its thresholds number b - 1 and b, ascending; edge e holds for the bins 0 .. rank[e], and for NaN where `missing[e]`
is 1. Comparisons by edges are exact by construction: the client makes them, on the numbers that the ensemble itself compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.trees.ensemble import LEAF, Tree, TreeEnsemble


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges, sorted by feature, then threshold."""

    feature: Indices  # [edges]
    threshold: Reals
    missing: Indices  # 0 or 1: whether the comparison counts as holding for NaN
    rank: Indices  # [edges], of the threshold among those of the feature
    takes_missing: bool

    def __len__(self) -> int:
        return len(self.feature)

    @cached_property
    def mixed(self) -> NDArray[np.bool_]:
        """[edges]: whether edges of the feature disagree on missing values."""
        _, number = np.unique(self.feature, return_inverse=True)
        count = np.bincount(number.reshape(-1))
        holding = np.bincount(number.reshape(-1), weights=self.missing)
        agree = (holding == 0) | (holding == count)
        result: NDArray[np.bool_] = self.takes_missing & ~agree[number.reshape(-1)]
        return result


def edges_of(ensemble: TreeEnsemble) -> tuple[Edges, list[Indices]]:
    """Returns every comparison of the ensemble once, and the edge of every node of every tree (-1 in leaves)."""
    nodes = [_node_edges(ensemble, tree) for tree in ensemble.trees]  # rows (feature, threshold, missing)
    rows = np.concatenate(nodes)
    if not len(rows):  # leaves alone: an edge that nothing reads, since a program has an input
        return _edges(np.zeros((1, 3)), ensemble.takes_missing), [np.full(len(t.left), LEAF) for t in ensemble.trees]
    distinct, index = np.unique(rows, axis=0, return_inverse=True)
    index = index.reshape(-1)
    edges = _edges(distinct, ensemble.takes_missing)
    numbers, start = [], 0
    for tree, tree_rows in zip(ensemble.trees, nodes, strict=True):
        number = np.full(len(tree.left), LEAF, dtype=np.int64)
        number[tree.inner] = index[start : start + len(tree_rows)]
        start += len(tree_rows)
        numbers.append(number)
    return edges, numbers


def _node_edges(ensemble: TreeEnsemble, tree: Tree) -> Reals:
    inner = tree.inner
    missing = np.zeros(len(inner)) if tree.missing_left is None else tree.missing_left[inner].astype(np.float64)
    threshold = tree.threshold[inner]
    limits = np.finfo(np.float32 if ensemble.single else np.float64)
    threshold = np.clip(
        threshold, -float(limits.max), float(limits.max)
    )  # infinite ones are sides of all finite numbers
    if ensemble.single:
        threshold = between_singles(threshold, ensemble.strict)
    return np.stack([tree.feature[inner].astype(np.float64), threshold, missing], axis=1)


def between_singles(threshold: Reals, strict: bool) -> Reals:
    """Returns the float32 that gives the same comparisons with float32 numbers: the next one down for <=, up for <."""
    rounded = threshold.astype(np.float32)
    wrong = rounded < threshold if strict else rounded > threshold
    towards = np.float32(np.inf if strict else -np.inf)
    with np.errstate(over="ignore"):  # of the largest number, which is not wrong
        return np.where(wrong, np.nextafter(rounded, towards), rounded).astype(np.float64)


def _edges(distinct: Reals, takes_missing: bool) -> Edges:
    feature, threshold = distinct[:, 0].astype(np.int64), distinct[:, 1]
    following = np.zeros(len(distinct), dtype=np.int64)  # 1 where the threshold is another than the one before
    following[1:] = (threshold[1:] != threshold[:-1]) & (feature[1:] == feature[:-1])
    starts = np.flatnonzero(np.concatenate([[True], feature[1:] != feature[:-1]]))
    level = np.cumsum(following)
    rank = level - np.repeat(level[starts], np.diff(np.append(starts, len(distinct))))
    return Edges(feature, threshold, distinct[:, 2].astype(np.int64), rank, takes_missing)
