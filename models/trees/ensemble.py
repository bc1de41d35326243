"""Decision trees and sums of them in a neutral form: what the importers write and the tree compiler reads.

A node compares one feature: x <= threshold, or x < threshold in strict ensembles, goes left. A missing value (NaN) goes where the node says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps import Members, OutputStep, Squeeze, Transform
from cloakwork.models.client_steps.feature_tables import feature_labels, feature_table
from cloakwork.models.client_steps.running import ScoredModel
from cloakwork.models.client_steps.transforms import TRANSFORMS, label_array
from cloakwork.models.errors import CompileError

LEAF: Final = -1


@dataclass(frozen=True, eq=False)
class Tree:
    """Node 0 is the root; leaves have left = right = -1. Columns have one entry per node."""

    feature: Indices  # anything in leaves
    threshold: Reals
    left: Indices  # where the comparison holds
    right: Indices
    values: Reals  # [nodes, outputs], meaningful in leaves
    missing_left: NDArray[np.bool_] | None = None  # where a missing value goes; None: the tree takes none

    @classmethod
    def of_nodes(
        cls,
        feature: ArrayLike,
        threshold: ArrayLike,
        left: ArrayLike,
        right: ArrayLike,
        values: ArrayLike,
        missing_left: ArrayLike | None = None,
    ) -> Tree:
        """Builds a tree from any numbering with the root first: children are put after their parents, nodes that nothing reaches left out."""
        left, right = np.asarray(left, dtype=np.int64), np.asarray(right, dtype=np.int64)
        order = [0]
        for node in order:
            if left[node] != LEAF:
                if len(order) > len(left):
                    break  # a circle; the ensemble's check says so
                order += [int(left[node]), int(right[node])]
        kept = np.array(order[: len(left)])
        number = np.full(len(left) + 1, LEAF, dtype=np.int64)
        number[kept] = np.arange(len(kept))
        number[-1] = LEAF
        return cls(
            np.asarray(feature, dtype=np.int64)[kept],
            np.asarray(threshold, dtype=np.float64)[kept],
            number[left[kept]],
            number[right[kept]],
            np.asarray(values, dtype=np.float64)[kept],
            None if missing_left is None else np.asarray(missing_left, dtype=np.bool_)[kept],
        )

    @property
    def leaves(self) -> Indices:
        """Numbers of the nodes without children."""
        return np.flatnonzero(self.left == LEAF)

    @property
    def inner(self) -> Indices:
        """Numbers of the nodes that compare."""
        return np.flatnonzero(self.left != LEAF)

    @property
    def depth(self) -> int:
        """Comparisons on the longest way to a leaf."""
        depth = np.zeros(len(self.left), dtype=np.int64)
        for node in self.inner:  # children come after their parents
            depth[[self.left[node], self.right[node]]] = depth[node] + 1
        return int(depth.max())

    def leaf_of(self, goes_left: NDArray[np.bool_]) -> Indices:
        """Returns the leaf that each sample reaches, for the outcome of every node's comparison [samples, nodes]."""
        node = np.zeros(len(goes_left), dtype=np.int64)
        rows = np.arange(len(goes_left))
        while True:
            moving = self.left[node] != LEAF
            if not moving.any():
                return node
            child = np.where(goes_left[rows, node], self.left[node], self.right[node])
            node = np.where(moving, child, node)


@dataclass(frozen=True, eq=False)
class TreeEnsemble(ScoredModel):
    """score = base + (sum or mean over trees of the leaf's values); then `transform`, then `labels[argmax]` for classifiers.

    One column with labels (two classes) means the score of the second class. Where transform and labels cannot say what follows the scores,
    `after` does, and takes their place; labels beside it are those of the largest score, which an encrypted arg-max tells.
    """

    trees: tuple[Tree, ...]
    features: int
    aggregation: Literal["sum", "mean"] = "sum"
    base: Reals | None = None  # [outputs]; None: zeros
    strict: bool = False  # x < threshold instead of x <= threshold
    single: bool = False  # features are rounded to float32 before they are compared
    transform: str = "none"  # one of transforms.TRANSFORMS
    transform_parameter: float = 1.0
    labels: NDArray[Any] | None = None  # of the classes; None for regression
    feature_names: tuple[str, ...] | None = None
    after: tuple[OutputStep, ...] | None = None

    def __post_init__(self) -> None:
        """Raises CompileError naming the first thing that is not so."""
        _demand(len(self.trees) > 0, "has at least one tree")
        _demand(self.features > 0, "has at least one feature")
        _demand(self.aggregation in ("sum", "mean"), "aggregates by 'sum' or 'mean'")
        _demand(self.transform in TRANSFORMS, f"has one of the transforms {', '.join(TRANSFORMS)}")
        names = self.feature_names
        _demand(names is None or len(names) == self.features, f"has {self.features} feature names")
        sizes = {tree.values.shape[1:] for tree in self.trees}
        _demand(len(sizes) == 1 and len(next(iter(sizes))) == 1, "has as many outputs in every tree")
        base = np.zeros(self.outputs) if self.base is None else np.asarray(self.base, dtype=np.float64)
        _demand(base.shape == (self.outputs,) and bool(np.isfinite(base).all()), f"has a finite base [{self.outputs}]")
        object.__setattr__(self, "base", base)
        if self.labels is not None:
            object.__setattr__(self, "labels", label_array(self.labels, self.outputs))
        for number, tree in enumerate(self.trees):
            _check_tree(tree, number, self.features)

    @property
    def outputs(self) -> int:
        """Counts the values of a leaf: classes, or 1."""
        return int(self.trees[0].values.shape[1])

    @property
    def values_follow_each_score(self) -> bool:
        """Whether the answer is a value for each score that depends on no other score: of regressions."""
        return self.labels is None and all(_takes_each_score(step) for step in self.output_steps)

    @cached_property
    def takes_missing(self) -> bool:
        """Whether NaN has a place to go in every tree."""
        return all(tree.missing_left is not None for tree in self.trees)

    @property
    def comparisons(self) -> int:
        """Inner nodes of all trees together."""
        return sum(len(tree.inner) for tree in self.trees)

    def scores(self, x: ArrayLike) -> Reals:
        """Returns [samples, outputs] in float64, for samples [samples, features]."""
        table = feature_table(x, self.features, self.feature_names, self.takes_missing)
        return self.aggregate(self.tree_values(table))

    def tree_values(self, table: Reals) -> Reals:
        """Returns [samples, trees, outputs] of a checked table."""
        columns = table.astype(np.float32).astype(np.float64) if self.single else table
        out = np.empty((len(table), len(self.trees), self.outputs))
        for number, tree in enumerate(self.trees):
            out[:, number] = tree.values[tree.leaf_of(self._goes_left(tree, columns))]
        return out

    def aggregate(self, values: Reals) -> Reals:
        """Aggregates [samples, trees, outputs] -> [samples, outputs]."""
        total = values.sum(axis=1) if self.aggregation == "sum" else values.mean(axis=1)
        result: Reals = total + self.base
        return result

    def label_of(self, feature: int) -> str:
        """Returns the name of a feature, or `feature NUMBER` where it has none."""
        return feature_labels(self.feature_names, self.features)[feature]

    def _goes_left(self, tree: Tree, columns: Reals) -> NDArray[np.bool_]:
        feature = np.where(tree.left == LEAF, 0, tree.feature)
        x = columns[:, feature]
        holds = x < tree.threshold if self.strict else x <= tree.threshold
        if tree.missing_left is not None:
            holds = np.where(np.isnan(x), tree.missing_left, holds)
        result: NDArray[np.bool_] = holds
        return result


def _takes_each_score(step: OutputStep) -> bool:
    if isinstance(step, Members):
        return not step.classes and "softmax" not in step.transforms
    return isinstance(step, Squeeze) or (isinstance(step, Transform) and step.name != "softmax")


def _check_tree(tree: Tree, number: int, features: int) -> None:
    nodes = len(tree.left)
    columns = (tree.feature, tree.threshold, tree.right, tree.values)
    _demand(nodes > 0 and all(len(column) == nodes for column in columns), "has columns of equal length", number)
    _demand(tree.missing_left is None or len(tree.missing_left) == nodes, "has a direction for each node", number)
    _demand(bool(((tree.left == LEAF) == (tree.right == LEAF)).all()), "has two children per node, or none", number)
    inner = tree.inner
    children = np.concatenate([tree.left[inner], tree.right[inner]])
    _demand(sorted(children.tolist()) == list(range(1, nodes)), "reaches every node once", number)
    parents = np.concatenate([inner, inner])
    _demand(bool((children > parents).all()), "lists children after their parents", number)
    feature = tree.feature[inner]
    _demand(bool(((feature >= 0) & (feature < features)).all()), f"compares features 0 .. {features - 1}", number)
    _demand(not np.isnan(tree.threshold[inner]).any(), "has thresholds that are numbers", number)
    _demand(bool(np.isfinite(tree.values[tree.leaves]).all()), "has finite leaf values", number)


def _demand(condition: bool, rule: str, number: int | None = None) -> None:
    if not condition:
        where = "tree ensemble" if number is None else f"tree ensemble, tree {number}"
        raise CompileError(f"{where}: expected that it {rule}; the model is damaged or was imported wrongly")


# The edges of an ensemble: every comparison that it makes, once, and the bins of each feature between them.
#
# Bin b of a feature lies between its thresholds number b - 1 and b, ascending; edge e holds for the bins 0 .. rank[e], and for NaN where `missing[e]`
# is 1. Comparisons by edges are exact by construction: the client makes them, on the numbers that the ensemble itself compares.


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
