"""The conditions of a path as integer sums of comparison bits: how many of them fail."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from cloakwork.models.trees.edges import Edges

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
