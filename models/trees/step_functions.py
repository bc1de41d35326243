"""A function of one feature's bins as a sum of its comparison bits."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from cloakwork.models.trees.edges import Edges
from cloakwork.models.trees.flat_trees import FlatTrees


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
