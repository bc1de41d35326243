"""Covers a tree by as few look-ups as it can.

A look-up stands at a node: it is zero for samples that do not reach the node, and gives the samples that do what the splits just below say.
Where one of these splits ends in a subtree instead of a leaf, the look-up gives it a value of its own, its *base*, which costs nothing, and the
leaves that differ from it are covered by look-ups further down. At the root no look-up is needed for splits of one feature: a function of one
feature's bins is a sum of its comparison bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.tabular.binned_tree import BinnedNode
from cloakwork.models.tabular.conditions import Condition, bit_patterns, path_conditions
from cloakwork.models.tabular.edges import Edges
from cloakwork.models.tabular.index_weights import MOST_BITS, IndexWeights, Pattern, index_weights


@dataclass(frozen=True)
class TreeLookup:
    """offset + entries[(constant + sum weight * bit) mod 2M], the offset being added once and for all; entries i and i + M are opposite."""

    weights: tuple[tuple[int, int], ...]  # (edge, weight), by edge
    constant: int
    entries: tuple[float, ...]  # [2M]


@dataclass(frozen=True)
class Cover:
    """value of the tree = constant + sum of linear[edge] * bit + sum of look-ups."""

    lookups: tuple[TreeLookup, ...]
    linear: dict[int, int]
    constant: float
    lowest: int  # value of a leaf
    highest: int


@dataclass(frozen=True)
class _Plan:
    """What covers a subtree whose leaves already get `base`."""

    cost: float
    lookups: tuple[TreeLookup, ...] = ()
    constant: float = 0.0
    linear: dict[int, int] = field(default_factory=dict)

    def __add__(self, other: _Plan) -> _Plan:
        linear = dict(self.linear)
        for edge, weight in other.linear.items():
            linear[edge] = linear.get(edge, 0) + weight
        return _Plan(self.cost + other.cost, self.lookups + other.lookups, self.constant + other.constant, linear)


_NOTHING = _Plan(0.0)
_IMPOSSIBLE = _Plan(math.inf)
_Ends: TypeAlias = tuple[tuple[BinnedNode, int | None], ...]


@dataclass(frozen=True, eq=False)
class _Choice:
    """How a subtree is covered: by a look-up for some splits at its top, or, without ends, side by side."""

    cost: float
    splits: tuple[BinnedNode, ...] = ()
    ends: _Ends = ()  # nodes where the splits end and the value each gets; None: what surrounds the subtree


def cover_tree(root: BinnedNode, edges: Edges, slots: int, free_linear: bool = True) -> Cover:
    """Args:
        slots: M, entries of a look-up on half the torus.
        free_linear: whether output sums may read comparison bits themselves: they need hardly any noise.

    Raises:
        NoParameterSetError: a path has more conditions than one look-up counts.
    """
    plan = _Cover(edges, slots, free_linear).at_root(root)
    if math.isinf(plan.cost):
        raise NoParameterSetError(
            f"tree: a path tests more features than look-ups of {slots} entries count; use a set with more message bits, or a shallower tree"
        )
    return Cover(plan.lookups, plan.linear, plan.constant, min(root.values), max(root.values))


class _Cover:
    """Costs first, by node and base (every base that no leaf below has is as good as another: None), then the look-ups themselves."""

    def __init__(self, edges: Edges, slots: int, free_linear: bool) -> None:
        self._edges = edges
        self._slots = slots
        self._free_linear = free_linear
        self._choices: dict[tuple[BinnedNode, int | None], _Choice] = {}
        self._conditions: dict[BinnedNode, tuple[Condition, ...]] = {}

    def at_root(self, root: BinnedNode) -> _Plan:
        """The best plan for the whole tree: one base, or a sum of bits over the splits of one feature at the top."""
        base = min(sorted(root.values), key=lambda value: self._cost(root, value))
        plain = _Plan(0.0, constant=float(base)) + self._plan(root, base)
        if not self._free_linear or root.is_leaf:
            return plain
        return min(self._linear_top(root), plain, key=lambda plan: plan.cost)

    # --- costs ---

    def _cost(self, node: BinnedNode, base: int | None) -> float:
        return 0.0 if node.values == {base} else self._choice(node, base).cost

    def _choice(self, node: BinnedNode, base: int | None) -> _Choice:
        key = (node, base if base in node.values else None)
        if key not in self._choices:
            self._choices[key] = self._best(node, key[1])
        return self._choices[key]

    def _best(self, node: BinnedNode, base: int | None) -> _Choice:
        if node.is_leaf:
            return _Choice(
                1.0 if self._weights(node, (), ((node, node.value),), base) else math.inf, ends=((node, node.value),)
            )
        left, right = node.children
        best = _Choice(self._cost(left, base) + self._cost(right, base))
        for splits, frontier in _prunings(node, MOST_BITS):
            if best.cost <= 1:
                break
            ends = tuple((end, self._base_of(end, base)) for end in frontier)
            cost = 1 + sum(self._cost(end, base if value is None else value) for end, value in ends)
            if cost < best.cost and self._weights(node, splits, ends, base):
                best = _Choice(cost, splits, ends)
        return best

    def _base_of(self, node: BinnedNode, base: int | None) -> int | None:
        """The base under which a subtree is cheapest; the surrounding one, where that makes no difference."""
        if node.is_leaf:
            return None if node.value == base else node.value
        cheapest = min(sorted(node.values), key=lambda value: self._cost(node, value))
        return None if self._cost(node, base) <= self._cost(node, cheapest) else cheapest

    # --- look-ups ---

    def _plan(self, node: BinnedNode, base: int) -> _Plan:
        if node.values == {base}:
            return _NOTHING
        choice = self._choice(node, base)
        if math.isinf(choice.cost):
            return _IMPOSSIBLE
        if not choice.ends:
            left, right = node.children
            return self._plan(left, base) + self._plan(right, base)
        ends = [(end, base if value is None else value) for end, value in choice.ends]
        below = [self._plan(end, value) for end, value in ends]
        return sum(below, self._lookup(node, choice.splits, choice.ends, base))

    def _weights(
        self, node: BinnedNode, splits: tuple[BinnedNode, ...], ends: _Ends, base: int | None
    ) -> IndexWeights | None:
        bits, outcome = self._outcomes(node, splits, ends)
        label: dict[int | None, int] = {None: 0, base: 0}
        for value in outcome.values():
            label.setdefault(value, len(set(label.values())))
        return index_weights(
            tuple((pattern, label[value]) for pattern, value in outcome.items()),
            bit_patterns(bits, None, self._edges),
            self._fails(node),
            self._slots,
        )

    def _outcomes(
        self, node: BinnedNode, splits: tuple[BinnedNode, ...], ends: _Ends
    ) -> tuple[tuple[int, ...], dict[Pattern, int | None]]:
        """The different edges of the splits, and the value for every combination of their bits that the path leaves."""
        bits = tuple(dict.fromkeys(split.edge for split in splits))
        value = dict(ends)
        outcome = {}
        for pattern in bit_patterns(bits, node.masks, self._edges):
            bit, end = dict(zip(bits, pattern, strict=True)), node
            while end not in value:
                end = end.children[0] if bit[end.edge] else end.children[1]
            outcome[pattern] = value[end]
        return bits, outcome

    def _lookup(self, node: BinnedNode, splits: tuple[BinnedNode, ...], ends: _Ends, base: int) -> _Plan:
        """One look-up that gives each end its value less the base."""
        found = self._weights(node, splits, ends, base)
        assert found is not None
        bits, outcome = self._outcomes(node, splits, ends)
        gain = {pattern: 0 if value is None else value - base for pattern, value in outcome.items()}
        weights: dict[int, int] = dict(zip(bits, found.weights, strict=True))
        constant = -found.lowest
        for condition in self._conditions_of(node):
            constant += found.fail_weight * condition.constant
            for edge, weight in condition.weights:
                weights[edge] = weights.get(edge, 0) + found.fail_weight * weight
        fails = self._fails(node)
        two = set(gain.values()) | ({0} if fails else set())
        centre = sum(two) / 2 if found.circle else 0.0
        half = [0.0] * self._slots  # slots that nothing reaches may hold anything
        for pattern in bit_patterns(bits, None, self._edges):
            level = sum(w * b for w, b in zip(found.weights, pattern, strict=True)) - found.lowest
            for count in range(1, fails + 1):
                self._fill(half, level + count * found.fail_weight, -centre)
        for pattern, value in gain.items():
            level = sum(w * b for w, b in zip(found.weights, pattern, strict=True)) - found.lowest
            self._fill(half, level, value - centre)
        entries = tuple(half) + tuple(-entry for entry in half)
        used = tuple(sorted((edge, weight) for edge, weight in weights.items() if weight))
        return _Plan(1.0, (TreeLookup(used, constant % (2 * self._slots), entries),), centre)

    def _fill(self, half: list[float], level: int, entry: float) -> None:
        """On the circle: the second half has the opposite entries."""
        slot = level % (2 * self._slots)
        half[slot % self._slots] = entry if slot < self._slots else -entry

    # --- sums of bits ---

    def _linear_top(self, root: BinnedNode) -> _Plan:
        """Bases for the parts that the root's feature alone separates, as a sum of its bits."""
        feature = int(self._edges.feature[root.edge])
        ends: list[tuple[BinnedNode, int]] = []
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node.is_leaf or self._edges.feature[node.edge] != feature:
                ends.append((node, min(sorted(node.values), key=lambda value: self._cost(node, value))))
            else:
                waiting += node.children
        rest = sum((self._plan(end, value) for end, value in ends), _NOTHING)
        return rest + self._step_function(feature, ends)

    def _step_function(self, feature: int, ends: list[tuple[BinnedNode, int]]) -> _Plan:
        """constant + sum of differences of values at the edges; impossible where missing values disagree."""
        count = self._edges.bins[feature]
        value = {b: v for end, v in ends for b in range(count) if end.masks[feature] >> b & 1}
        linear: dict[int, int] = {}
        first_edge: dict[int, int] = {}  # number of bins that hold -> edge
        for end, _ in ends:
            for edge, _ in end.path:
                if self._edges.feature[edge] == feature:
                    first_edge.setdefault(_finite_bins(self._edges, edge), edge)
        constant = value[max(first_edge)]  # beyond the last edge
        for holding, edge in first_edge.items():
            difference = value[holding - 1] - value[holding]
            if difference:
                linear[edge] = difference
        for b in range(count):
            total = constant + sum(w for edge, w in linear.items() if self._edges.holds[edge] >> b & 1)
            if total != value[b]:
                return _IMPOSSIBLE
        return _Plan(0.0, (), float(constant), linear)

    def _conditions_of(self, node: BinnedNode) -> tuple[Condition, ...]:
        if node not in self._conditions:
            self._conditions[node] = path_conditions(node.path, self._edges)
        return self._conditions[node]

    def _fails(self, node: BinnedNode) -> int:
        """How many conditions on the way to a node can fail, at most."""
        return sum(condition.most for condition in self._conditions_of(node))


def _finite_bins(edges: Edges, edge: int) -> int:
    """Bins at most the edge's threshold, which are the lowest."""
    mask = edges.holds[edge]
    return (~mask & (mask + 1)).bit_length() - 1


def _prunings(node: BinnedNode, bits: int) -> Iterator[tuple[tuple[BinnedNode, ...], tuple[BinnedNode, ...]]]:
    """Splits at the top of a subtree, and the nodes where they end; large ones first."""
    yield from sorted(_tops(node, bits), key=lambda top: -len(top[0]))


def _tops(node: BinnedNode, splits: int) -> Iterator[tuple[tuple[BinnedNode, ...], tuple[BinnedNode, ...]]]:
    """All ways to cut a subtree after at most so many splits, the node's own included."""
    left, right = node.children
    sides = []
    for child in (left, right):
        ways: list[tuple[tuple[BinnedNode, ...], tuple[BinnedNode, ...]]] = [((), (child,))]
        if not child.is_leaf and splits > 1:
            ways += _tops(child, splits - 1)
        sides.append(ways)
    for left_splits, left_ends in sides[0]:
        for right_splits, right_ends in sides[1]:
            if 1 + len(left_splits) + len(right_splits) <= splits:
                yield (node, *left_splits, *right_splits), left_ends + right_ends
