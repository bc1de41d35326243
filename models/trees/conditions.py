"""The conditions of a path as integer sums of comparison bits: how many of them fail."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from cloakwork.models.trees.ensemble import Edges
from cloakwork.models.trees.flat_trees import FlatTrees

Path: TypeAlias = tuple[tuple[int, bool], ...]  # (edge, whether it holds), from above


@dataclass(frozen=True)
class Condition:
    """fails = constant + sum over edges of weight * bit: 0 in the bins that the path leaves of one feature, at least 1 in others."""

    weights: tuple[tuple[int, int], ...]  # (edge, weight)
    constant: int
    most: int  # fails at most


def path_conditions(path: Path, edges: Edges) -> tuple[Condition, ...]:
    """Returns one condition for each feature of the path: an interval is two bits, whatever the number of comparisons."""
    by_feature: dict[int, list[tuple[int, bool]]] = {}
    for edge, side in path:
        by_feature.setdefault(int(edges.feature[edge]), []).append((edge, side))
    return tuple(_condition(tuple(comparisons), edges) for comparisons in by_feature.values())


@lru_cache(maxsize=1 << 16)
def _condition(comparisons: Path, edges: Edges) -> Condition:
    """Takes the tightest comparison of either side; counts all comparisons where missing values disagree with it."""
    tightest: dict[bool, int] = {side: edge for edge, side in comparisons}  # the last one of a side
    holding, failing = tightest.get(True), tightest.get(False)
    if holding is None or failing is None:
        edge = holding if holding is not None else failing
        assert edge is not None
        interval = {edge: -1 if holding is not None else 1}, int(holding is not None)
    else:
        interval = {holding: -1, failing: 1}, 1  # 1 - (bit of the upper end - bit of the lower end)
    if not edges.mixed[comparisons[0][0]]:
        return Condition(tuple(interval[0].items()), interval[1], 1)
    every: dict[int, int] = {}
    for edge, side in comparisons:
        every[edge] = every.get(edge, 0) + (-1 if side else 1)
    for weights, constant in (interval, (every, sum(side for _, side in comparisons))):
        most = _most(weights, constant, comparisons, edges)
        if most is not None:
            return Condition(tuple(weights.items()), constant, most)
    raise AssertionError("a comparison is 0 or 1, so their count is right")


def _most(weights: dict[int, int], constant: int, comparisons: Path, edges: Edges) -> int | None:
    """Returns how many fail at most; None where the sum does not tell the bins of the path from others."""
    ranks = [int(edges.rank[edge]) for edge, _ in comparisons]
    most = 0
    for bin_ in {0, *(rank + 1 for rank in ranks), *([None] if edges.takes_missing else [])}:
        inside = all(_holds(edge, bin_, edges) == side for edge, side in comparisons)
        count = constant + sum(weight * _holds(edge, bin_, edges) for edge, weight in weights.items())
        if count < 0 or (count == 0) != inside:
            return None
        most = max(most, count)
    return most


def _holds(edge: int, bin_: int | None, edges: Edges) -> bool:
    """Args: bin_: None: NaN."""
    return bool(edges.missing[edge]) if bin_ is None else bin_ <= int(edges.rank[edge])


# A function of one feature's bins as a sum of its comparison bits.


@dataclass(frozen=True)
class StepSum:
    """value = constant + sum of linear[edge] * bit, for samples that reach the node `end` its value."""

    ends: list[tuple[int, int]]  # (node, value)
    constant: int
    linear: dict[int, int]


def step_function(root: int, ends: list[tuple[int, int]], trees: FlatTrees, edges: Edges) -> StepSum | None:
    """Returns the differences of values at the thresholds, or None where missing values disagree with them.

    Args:
        ends: nodes below splits of the root's feature alone, and their values; they share out all bins.
    """
    by_bin: list[tuple[int, int]] = []  # the first bin of an end that finite numbers reach, and its value
    edge_of: dict[int, int] = {}  # rank -> edge
    of_nan: int | None = None
    for end, value in ends:
        low, nan, node, above = 0, edges.takes_missing, end, end
        high: int | None = None
        while node != root:
            above = int(trees.parent[node])
            edge, holds = int(trees.edge[above]), int(trees.left[above]) == node
            rank = int(edges.rank[edge])
            edge_of.setdefault(rank, edge)
            if holds:
                high = rank if high is None else min(high, rank)
            else:
                low = max(low, rank + 1)
            nan = nan and bool(edges.missing[edge]) == holds
            node = above
        if high is None or low <= high:
            by_bin.append((low, value))
        if nan:
            of_nan = value
    by_bin.sort()
    constant = by_bin[-1][1]
    linear = {}
    for (_, value), (low, following) in itertools.pairwise(by_bin):
        if value != following:
            linear[edge_of[low - 1]] = value - following
    if of_nan is not None and constant + sum(w * int(edges.missing[edge]) for edge, w in linear.items()) != of_nan:
        return None
    return StepSum(ends, constant, linear)
