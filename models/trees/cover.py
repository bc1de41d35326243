"""Covers trees by as few look-ups as it can.

A look-up stands at a node: it is zero for samples that do not reach the node, and gives the samples that do what the splits just below say.
Where one of these splits ends in a subtree instead of a leaf, the look-up gives it a value of its own, its *base*, which costs nothing, and the
leaves that differ from it are covered by look-ups further down. Where paths are longer than look-ups can count, or where that is cheaper, a look-up
says whether a sample has come as far as a node (a *flag*), and what is below counts from there. At the root no look-up is needed for splits of one
feature: a function of one feature's bins is a sum of its comparison bits. `cover_costs.py` says which is cheapest; here it is made.

Source: [FSB+23] tree ensembles by look-ups under TFHE. Ours: look-ups cover parts of trees with several leaves, on bits that the client encrypts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.trees.conditions import Condition, StepSum, path_conditions, step_function
from cloakwork.models.trees.cover_costs import (
    FLAG,
    IMPOSSIBLE,
    NONE,
    SIDES,
    Budget,
    CoverCosts,
    TopWeights,
    most_contexts,
)
from cloakwork.models.trees.ensemble import Edges
from cloakwork.models.trees.flat_trees import NOWHERE, FlatTrees
from cloakwork.models.trees.index_weights import IndexWeights
from cloakwork.models.trees.tops import LEAF_TOP, TOPS, TopClass, class_numbers, top_class

_STATES_AT_ONCE = 1 << 22  # costs in memory


@dataclass(frozen=True)
class TreeLookup:
    """offset + entries[(constant + sum weight * bit) mod 2M], the offset being added once and for all; entries i and i + M are opposite.

    Bits are those of edges, and, numbered after them, flags.
    """

    weights: tuple[tuple[int, int], ...]  # (bit, weight), by bit
    constant: int
    entries: tuple[float, ...]  # [2M]


@dataclass(frozen=True)
class Flag:
    """A flag that a sample reaches a node: 1 or 0, the result of a look-up and its offset."""

    lookup: TreeLookup
    offset: float
    level: int  # look-ups before it


@dataclass(frozen=True)
class Cover:
    """value of the tree = constant + sum of linear[edge] * bit + sum of look-ups."""

    lookups: tuple[TreeLookup, ...]
    linear: dict[int, int]
    constant: float
    lowest: int  # value of a leaf
    highest: int


@dataclass(frozen=True)
class Covers:
    """Covers of several trees, with the flags that their look-ups read: bit number `edges` + i is flag i."""

    trees: tuple[Cover, ...]
    flags: tuple[Flag, ...]
    edges: int
    flag_step: int = 1  # steps of an index in the phase of a flag that is up
    digit_sums: frozenset[int] = (
        frozenset()
    )  # edges that indices read as 0 or 1 where they fail, 2 or 3 where they hold (digit_sums.py)

    @property
    def lookups(self) -> Iterator[TreeLookup]:
        """All of them, before equal ones are found."""
        for flag in self.flags:
            yield flag.lookup
        for cover in self.trees:
            yield from cover.lookups


def cover_trees(trees: FlatTrees, edges: Edges, budget: Budget, free_linear: bool = True) -> Covers:
    """Covers trees by look-ups.

    Args:
            free_linear: whether output sums may read comparison bits themselves: they need hardly any noise.

    Raises:
            NoParameterSetError: a path has more conditions than one look-up counts, and there are no flags.
    """
    weights, flags = TopWeights(budget), _Flags(len(edges))
    covers: list[Cover] = []
    for part in _parts(trees, budget):
        covers += _Covering(CoverCosts(part, edges, weights, budget), edges, flags, free_linear).covers()
    step = 1 if budget.flag is None else budget.flag.step
    return Covers(tuple(covers), tuple(flags.flags), len(edges), step)


def _parts(trees: FlatTrees, budget: Budget) -> list[FlatTrees]:
    """Some trees at a time, so that their costs fit memory."""
    sizes = trees.tree_sizes()
    contexts = min(int(trees.depth.max()), most_contexts(budget)) + 2
    at_once = max(1, _STATES_AT_ONCE // (8 * contexts))
    number = np.cumsum(sizes) // at_once
    groups = [np.flatnonzero(number == i) for i in np.unique(number)]
    return [trees.part(group) for group in groups] if len(groups) > 1 else [trees]


@dataclass(eq=False)
class _Flags:
    """Flags of all trees; equal ones are one."""

    edges: int
    flags: list[Flag] = field(default_factory=list)
    _bit: dict[tuple[TreeLookup, float], int] = field(default_factory=dict)

    def bit(self, lookup: TreeLookup, offset: float) -> int:
        key = (lookup, offset)
        if key not in self._bit:
            behind = [self.flags[bit - self.edges].level for bit, _ in lookup.weights if bit >= self.edges]
            self._bit[key] = self.edges + len(self.flags)
            self.flags.append(Flag(lookup, offset, max(behind, default=-1) + 1))
        return self._bit[key]


@dataclass(frozen=True)
class _Place:
    """A subtree, the base that its leaves have, and where its conditions are counted from."""

    node: int
    context: int
    base: int
    flag: int | None  # bit; None: the root

    def below(self, node: int, deeper: int, base: int) -> _Place:
        return _Place(node, self.context + deeper, base, self.flag)


@dataclass(eq=False)
class _Sum:
    lookups: list[TreeLookup]
    constant: float


class _Covering:
    """Makes the look-ups that the costs speak of."""

    def __init__(self, costs: CoverCosts, edges: Edges, flags: _Flags, free_linear: bool) -> None:
        self._costs, self._trees, self._edges = costs, costs.trees, edges
        self._flags, self._free_linear = flags, free_linear

    def covers(self) -> list[Cover]:
        return [self._cover(root) for root in self._trees.root.tolist()]

    def _cover(self, root: int) -> Cover:
        """Returns one base for the whole tree, or a sum of bits over the splits of one feature at the top."""
        costs, trees = self._costs, self._trees
        least, largest = (int(ends[root]) for ends in trees.span)
        step = None
        if self._free_linear and trees.left[root] != NOWHERE:
            step = self._cheaper_step(root)
        if step is None and costs.best_cost[root, 0] >= IMPOSSIBLE:
            raise NoParameterSetError(
                f"tree: a path tests more features than look-ups of {costs.slots} entries count; use a set with more message bits, or a "
                "shallower tree"
            )
        if step is None:
            base = int(costs.best_value[root, 0])
            starts, tree_sum = [_Place(root, 0, base, None)], _Sum([], float(base))
        else:
            starts = [_Place(end, int(trees.depth[end]), value, None) for end, value in step.ends]
            tree_sum = _Sum([], float(step.constant))
        self._make(starts, tree_sum)
        linear = {} if step is None else step.linear
        return Cover(tuple(tree_sum.lookups), linear, tree_sum.constant, least, largest)

    def _cheaper_step(self, root: int) -> StepSum | None:
        """Returns a sum of the bits of the root's feature, where the parts that these separate cost no more than the whole."""
        costs, trees, feature = self._costs, self._trees, self._edges.feature
        ends: list[int] = []
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if trees.left[node] == NOWHERE or feature[trees.edge[node]] != feature[trees.edge[root]]:
                ends.append(node)
            else:
                waiting += [int(trees.left[node]), int(trees.right[node])]
        context = np.minimum(trees.depth[ends], costs.contexts)
        if int(costs.best_cost[ends, context].sum()) > min(costs.best_cost[root, 0], IMPOSSIBLE - 1):
            return None
        values = costs.best_value[ends, context].tolist()
        return step_function(root, list(zip(ends, values, strict=True)), trees, self._edges)

    def _make(self, waiting: list[_Place], tree_sum: _Sum) -> None:
        costs, trees = self._costs, self._trees
        while waiting:
            place = waiting.pop()
            node, context = place.node, min(place.context, costs.contexts)
            number = costs.base_number(node, place.base)
            if costs.cost[node, context, number] == 0:
                continue
            choice = int(costs.choice[node, context, number])
            if trees.left[node] == NOWHERE:
                tree_sum.lookups.append(self._leaf(place, int(trees.value[node]) - place.base, tree_sum))
            elif choice == SIDES:
                waiting += [place.below(int(child[node]), 1, place.base) for child in (trees.left, trees.right)]
            elif choice == FLAG:
                waiting.append(_Place(node, 0, place.base, self._flag(place)))
            else:
                waiting += self._top(place, choice, tree_sum)

    def _leaf(self, place: _Place, gain: float, tree_sum: _Sum) -> TreeLookup:
        lookup, offset = self._lookup(place, TopClass(LEAF_TOP, ()), (1,), (gain,), [])
        tree_sum.constant += offset
        return lookup

    def _flag(self, place: _Place) -> int:
        return self._flags.bit(*self._lookup(place, TopClass(LEAF_TOP, ()), (1,), (1.0,), []))

    def _top(self, place: _Place, number: int, tree_sum: _Sum) -> list[_Place]:
        """Returns a look-up for a top; the subtrees where it ends."""
        costs, top = self._costs, TOPS[number]
        at = self._at(place.node)
        # Subtrees of many values know some of them as bases; costs, and the weights that serve, are then those of none.
        counted = place.base if costs.base_number(place.node, place.base) else NONE
        below, values = [], []
        for i in top.ends:
            deeper = i.bit_length() - 1
            context = min(place.context + deeper, costs.contexts)
            stays = costs.stays(at[i], context, counted)
            values.append(NONE if stays else int(costs.best_value[at[i], context]))
            below.append(place.below(at[i], deeper, place.base if stays else values[-1]))
        label: dict[int, int] = {NONE: 0}
        labels = tuple(label.setdefault(value, len(label)) for value in values)
        gains = tuple(0.0 if value == NONE else float(value - place.base) for value in values)
        split_edges = [int(self._trees.edge[at[i]]) for i in top.splits]
        if len({int(self._edges.feature[edge]) for edge in split_edges}) < len(split_edges):
            number = int(class_numbers(number, np.array([split_edges]), self._edges)[0])
        kind = top_class(number)  # that of splits on different features
        lookup, offset = self._lookup(place, kind, labels, gains, split_edges)
        tree_sum.lookups.append(lookup)
        tree_sum.constant += offset
        return below

    def _at(self, node: int) -> dict[int, int]:
        """Returns nodes by their places below one."""
        at, waiting = {}, [(1, node)]
        while waiting:
            place, descendant = waiting.pop()
            at[place] = descendant
            if self._trees.left[descendant] != NOWHERE and place < 16:
                waiting += [
                    (2 * place, int(self._trees.left[descendant])),
                    (2 * place + 1, int(self._trees.right[descendant])),
                ]
        return at

    def _lookup(
        self,
        place: _Place,
        kind: TopClass,
        labels: tuple[int, ...],
        gains: tuple[float, ...],
        split_edges: list[int],
    ) -> tuple[TreeLookup, float]:
        """Returns one look-up that gives each end its gain, and what is to be added to it."""
        conditions = self._conditions(place)
        fails = sum(condition.most for condition in conditions)
        index_weights = self._costs.weights.weights(kind, labels, fails, place.flag is not None)
        weights: dict[int, int] = {}
        for split, bit in enumerate(kind.bit_of_split):
            weights[split_edges[split]] = index_weights.weights[bit]
        constant = index_weights.constant
        for condition in conditions:
            constant += index_weights.fail_weight * condition.constant
            for edge, weight in condition.weights:
                weights[edge] = weights.get(edge, 0) + index_weights.fail_weight * weight
        if place.flag is not None:
            constant += index_weights.flag_weight
            weights[place.flag] = -index_weights.flag_weight
        shifts = _failing_shifts(index_weights, fails, place.flag is not None)
        two = {*gains, 0.0} if shifts else set(gains)
        centre = sum(two) / 2 if index_weights.circle else 0.0
        entries = _entries(index_weights, kind, gains, shifts, centre, self._costs.slots)
        used = tuple(sorted((edge, weight) for edge, weight in weights.items() if weight))
        return TreeLookup(used, constant % (2 * self._costs.slots), entries), centre

    def _conditions(self, place: _Place) -> tuple[Condition, ...]:
        """Of the path from where the place's conditions are counted."""
        trees, path, node = self._trees, [], place.node
        for _ in range(place.context):
            above = int(trees.parent[node])
            path.append((int(trees.edge[above]), int(trees.left[above]) == node))
            node = above
        return path_conditions(tuple(reversed(path)), self._edges)


def _failing_shifts(index_weights: IndexWeights, fails: int, flagged: bool) -> list[int]:
    """Returns by how much an index moves where something fails."""
    counts = [(count, flag) for count in range(fails + 1) for flag in ((0, 1) if flagged else (0,))]
    return [
        count * index_weights.fail_weight + flag * index_weights.flag_weight for count, flag in counts if count or flag
    ]


def _entries(
    index_weights: IndexWeights, kind: TopClass, gains: tuple[float, ...], shifts: list[int], centre: float, slots: int
) -> tuple[float, ...]:
    """Returns [2M]; slots that nothing reaches may hold anything."""
    half = [0.0] * slots

    def fill(level: int, entry: float) -> None:
        """Fills the entries on the circle: the second half has the opposite entries."""
        slot = level % (2 * slots)
        half[slot % slots] = entry if slot < slots else -entry

    levels = [
        index_weights.constant + sum(w * b for w, b in zip(index_weights.weights, pattern, strict=True))
        for pattern in kind.patterns
    ]
    for level in levels:
        for shift in shifts:
            fill(level + shift, -centre)
    for level, end in zip(levels, kind.ends, strict=True):
        fill(level, gains[end] - centre)
    return tuple(half) + tuple(-entry for entry in half)


# Look-ups whose results are added up in one output: those on the same index become one whose table is the sum of theirs.
#
# A table may be turned and mirrored, so an index counts up to its constant and its sign. The sum has the noise of one look-up, where equal
# look-ups of equal trees would have had that of each times their number.

Index: TypeAlias = tuple[tuple[int, int], ...]  # (edge, weight) by edge, the first weight positive


@dataclass(frozen=True, eq=False)
class SummedCovers:
    """sum of covers = constant + sum of linear[edge] * bit + sum of look-ups."""

    lookups: tuple[TreeLookup, ...]
    linear: dict[int, int]
    constant: float


def index_of(lookup: TreeLookup) -> Index:
    """Returns the index without its constant, with a sign that makes it canonical."""
    sign = _sign(lookup)
    return tuple((edge, sign * weight) for edge, weight in lookup.weights)


def sum_covers(covers: Iterable[Cover]) -> SummedCovers:
    """Adds up covers: one look-up for each index; none where the tables cancel."""
    tables: dict[Index, Reals] = {}
    linear: dict[int, int] = {}
    constant = 0.0
    for cover in covers:
        constant += cover.constant
        for edge, weight in cover.linear.items():
            linear[edge] = linear.get(edge, 0) + weight
        for lookup in cover.lookups:
            index = index_of(lookup)
            tables[index] = tables.get(index, 0.0) + canonical_table(lookup)
    if () in tables:  # an index that no bit moves
        constant += float(tables.pop(())[0])
    lookups = tuple(TreeLookup(index, 0, tuple(table.tolist())) for index, table in tables.items() if table.any())
    return SummedCovers(lookups, {edge: weight for edge, weight in linear.items() if weight}, constant)


def _sign(lookup: TreeLookup) -> int:
    return -1 if lookup.weights and lookup.weights[0][1] < 0 else 1


def canonical_table(lookup: TreeLookup) -> Reals:
    """Returns the table [2M] of the canonical index, which is `sign` * (index - constant)."""
    places = np.arange(len(lookup.entries))
    return np.array(lookup.entries)[(lookup.constant + _sign(lookup) * places) % len(places)]
