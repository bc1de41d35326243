"""The conditions of a path as integer sums of comparison bits: how many of them fail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from cloakwork.models.tabular.edges import Edges


@dataclass(frozen=True)
class Condition:
    """fails = constant + sum over edges of weight * bit: 0 in the bins that the path leaves of one feature, at least 1 in others."""

    weights: tuple[tuple[int, int], ...]  # (edge, weight)
    constant: int
    most: int  # fails at most


@lru_cache(maxsize=1 << 16)
def path_conditions(path: tuple[tuple[int, bool], ...], edges: Edges) -> tuple[Condition, ...]:
    """One condition for each feature of the path: an interval is two bits, whatever the number of comparisons."""
    by_feature: dict[int, list[tuple[int, bool]]] = {}
    for edge, side in path:
        by_feature.setdefault(int(edges.feature[edge]), []).append((edge, side))
    return tuple(_condition(feature, own, edges) for feature, own in by_feature.items())


def _condition(feature: int, comparisons: list[tuple[int, bool]], edges: Edges) -> Condition:
    """The tightest comparison of either side decides; where missing values disagree with it, all comparisons are counted."""
    tightest: dict[bool, int] = {side: edge for edge, side in comparisons}  # the last one of a side
    holding, failing = tightest.get(True), tightest.get(False)
    if holding is None or failing is None:
        edge = holding if holding is not None else failing
        assert edge is not None
        interval = {edge: -1 if holding is not None else 1}, int(holding is not None)
    else:
        interval = {holding: -1, failing: 1}, 1  # 1 - (bit of the upper end - bit of the lower end)
    every: dict[int, int] = {}
    for edge, side in comparisons:
        every[edge] = every.get(edge, 0) + (-1 if side else 1)
    mask = edges.all_bins(feature)
    for edge, side in comparisons:
        mask &= edges.holds[edge] if side else ~edges.holds[edge]
    for weights, constant in (interval, (every, sum(side for _, side in comparisons))):
        fails = [_at_bin(weights, constant, b, edges) for b in range(edges.bins[feature])]
        if all((count == 0) == bool(mask >> b & 1) and count >= 0 for b, count in enumerate(fails)):
            return Condition(tuple(weights.items()), constant, max(fails))
    raise AssertionError("a comparison is 0 or 1, so their count is right")


def _at_bin(weights: dict[int, int], constant: int, b: int, edges: Edges) -> int:
    return constant + sum(weight * (edges.holds[edge] >> b & 1) for edge, weight in weights.items())


def bit_patterns(chosen: Iterable[int], masks: dict[int, int] | None, edges: Edges) -> tuple[tuple[int, ...], ...]:
    """Every combination of the chosen edges' bits that some sample has, in the bins that `masks` leave. Bits in the order of `chosen`."""
    order = tuple(chosen)
    features = dict.fromkeys(int(edges.feature[edge]) for edge in order)
    left = [edges.all_bins(f) if masks is None else masks.get(f, edges.all_bins(f)) for f in features]
    return _bit_patterns(order, tuple(zip(features, left, strict=True)), edges)


@lru_cache(maxsize=1 << 16)
def _bit_patterns(
    order: tuple[int, ...], masks: tuple[tuple[int, int], ...], edges: Edges
) -> tuple[tuple[int, ...], ...]:
    """Args: masks: (feature, bins) of every feature that the edges compare."""
    patterns: list[dict[int, int]] = [{}]
    for feature, mask in masks:
        own = [edge for edge in order if edges.feature[edge] == feature]
        seen = {tuple(edges.holds[edge] >> b & 1 for edge in own) for b in range(edges.bins[feature]) if mask >> b & 1}
        patterns = [{**pattern, **dict(zip(own, bits, strict=True))} for pattern in patterns for bits in sorted(seen)]
    return tuple(sorted(tuple(pattern[edge] for edge in order) for pattern in patterns))
