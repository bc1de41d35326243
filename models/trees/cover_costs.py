"""The look-ups that cover a tree at least cost: dynamic programming over all nodes of many trees at once.

What a subtree costs depends on three things: the *base* that its leaves already have (every base that no leaf below has is as good as another:
NONE); how many conditions lead to it, from the root or from the nearest *flag* above, a look-up that says whether a sample has come that far;
and so on which of its ancestors has that flag. A subtree is covered in one of four ways: its sides for themselves; by a look-up for the splits
at its top, which gives every end a value of its own; with a flag of its own; or not at all, where all of its leaves have the base.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices
from cloakwork.models.trees.ensemble import Edges
from cloakwork.models.trees.flat_trees import NOWHERE, FlatTrees, nearest_of_same
from cloakwork.models.trees.index_weights import FlagWeights, IndexWeights, index_weights, most_fails
from cloakwork.models.trees.tops import (
    LABEL_NUMBER,
    LABELS,
    LEAF_TOP,
    MOST_ENDS,
    PLACES,
    TOPS,
    Pattern,
    TopClass,
    class_numbers,
    top_class,
)

NONE: Final = -(1 << 40)  # a base that no leaf has
_PAD: Final = NONE - 1  # no base
IMPOSSIBLE: Final = 1 << 24
LOOKUP: Final = 16  # what a look-up costs; a flag a little more, because what reads it has to wait for it
_FLAG_COST: Final = LOOKUP + 1
SIDES, FLAG = -1, -2  # how a subtree is covered, beside the numbers of TOPS
_MOST_BASES: Final = 8  # of a node, NONE included
_UNKNOWN: Final = -2

Costs = NDArray[np.int32]


@dataclass(frozen=True)
class Budget:
    """The budget of look-ups: M slots, and flags where their noise allows any."""

    slots: int
    flag: FlagWeights | None


def most_contexts(budget: Budget) -> int:
    """Returns how far above a node its flag may be: conditions on the same features count once, so that this is a little more than what a look-up
    counts."""
    return 3 * budget.slots // 2


class TopWeights:
    """Index weights by class of top and labels of its ends, each looked for once."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._number: dict[int, int] = {}
        self._classes: list[int] = []
        self._most = np.full((64, 2, len(LABELS)), _UNKNOWN, dtype=np.int16)

    def numbers(self, classes: Indices) -> Indices:
        """Returns dense numbers of classes."""
        distinct, index = np.unique(classes, return_inverse=True)
        for key in distinct.tolist():
            if key not in self._number:
                self._number[key] = len(self._classes)
                self._classes.append(key)
        while len(self._classes) > len(self._most):
            self._most = np.concatenate([self._most, np.full_like(self._most, _UNKNOWN)])
        return np.array([self._number[key] for key in distinct.tolist()], dtype=np.int64)[index.reshape(-1)]

    def most_fails(self, numbers: Indices, flagged: NDArray[np.bool_], labels: Indices) -> NDArray[np.int16]:
        """Returns how many conditions of the path may fail, at most; -1 where the top cannot be served at all."""
        flags = flagged.astype(np.int64)
        most = self._most[numbers, flags, labels]
        if (most == _UNKNOWN).any():
            open_ = np.unique(np.stack([numbers, flags, labels])[:, most == _UNKNOWN], axis=1)
            for number, flag, label in open_.T.tolist():
                kind = top_class(self._classes[number])
                self._most[number, flag, label] = self._most_fails(kind, LABELS[label], bool(flag))
            most = self._most[numbers, flags, labels]
        return most

    def weights(self, kind: TopClass, labels: Pattern, fails: int, flagged: bool) -> IndexWeights:
        """Finds index weights.

        Args:
            labels: of the ends.
            fails: conditions that may fail.
        """
        chosen = tuple(labels[end] for end in kind.ends)
        return index_weights(chosen, kind.patterns, fails, self._budget.slots, self._flag(flagged))

    def leaf_most(self, flagged: bool) -> int:
        """Returns conditions of a look-up without splits: one value where none fails."""
        return self._most_fails(TopClass(LEAF_TOP, ()), (1,), flagged)

    def _most_fails(self, kind: TopClass, labels: Pattern, flagged: bool) -> int:
        if flagged and self._budget.flag is None:
            return -1
        chosen = tuple(labels[end] for end in kind.ends)
        return most_fails(chosen, kind.patterns, self._budget.slots, self._flag(flagged))

    def _flag(self, flagged: bool) -> FlagWeights | None:
        return self._budget.flag if flagged else None


class CoverCosts:
    """Costs [nodes, contexts + 1, bases] of all subtrees.

    Context j of a node counts conditions from its ancestor j levels up, which has a flag unless it is the root. The last context stands for all
    that are further away than look-ups can count.
    """

    def __init__(self, trees: FlatTrees, edges: Edges, weights: TopWeights, budget: Budget) -> None:
        self.trees, self._edges, self.weights, self._budget = trees, edges, weights, budget
        self._leaf_most = [weights.leaf_most(flagged) for flagged in (False, True)]
        self.fails, self.flagged = self._contexts()
        self.contexts = self.fails.shape[1] - 1
        self.bases: Indices = np.full((len(trees), 2), _PAD)
        self.bases[:, 0] = NONE
        self.cost: Costs = np.zeros((0, 0, 0), dtype=np.int32)
        self._fill()

    @property
    def slots(self) -> int:
        return self._budget.slots

    def base_number(self, node: int, base: int) -> int:
        """Returns the number of a base among the node's: that of NONE where no leaf below has it."""
        bases = self._base_lists[node]
        return bases.index(base) if base in bases else 0

    @cached_property
    def _base_lists(self) -> list[list[int]]:
        lists: list[list[int]] = self.bases.tolist()
        return lists

    def stays(self, node: int, context: int, base: int) -> bool:
        """Whether a subtree at the end of a top is left with what surrounds it."""
        return bool(self.cost[node, context, self.base_number(node, base)] <= self.best_cost[node, context])

    # --- conditions ---

    def _contexts(self) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Returns [nodes, contexts + 1]: conditions from the ancestor, and whether that has a flag."""
        trees, edges = self.trees, self._edges
        split = trees.edge >= 0
        feature = np.where(split, edges.feature[trees.edge], -1)
        feature = np.where(split & edges.mixed[trees.edge], -1, feature)  # each comparison counts
        above, _ = nearest_of_same(feature, trees.parent)
        before = np.where(above != NOWHERE, trees.depth[above], -1)  # depth of the nearest ancestor on the same feature
        most = max(self._leaf_most)
        deepest = int(trees.depth.max())
        width = deepest if self._budget.flag is None else min(deepest, most_contexts(self._budget))
        fails = np.full((len(trees), width + 2), IMPOSSIBLE, dtype=np.int32)
        fails[:, 0] = 0
        steps = np.arange(1, width + 1)
        for nodes in trees.depths[1:]:
            parent = trees.parent[nodes]
            new = trees.depth[parent][:, None] - (steps - 1)[None] > before[parent][:, None]
            fails[nodes, 1 : width + 1] = np.minimum(fails[parent, :width] + new, IMPOSSIBLE)
        used = np.flatnonzero((fails <= most).any(axis=0))
        fails = np.concatenate([fails[:, : used[-1] + 1], np.full((len(trees), 1), IMPOSSIBLE, dtype=np.int32)], axis=1)
        flagged = np.arange(fails.shape[1])[None] < trees.depth[:, None]
        if self._budget.flag is None:
            fails[flagged] = IMPOSSIBLE
        return fails, flagged

    # --- costs ---

    def _fill(self) -> None:
        trees, shape = self.trees, self.fails.shape
        most = np.where(self.flagged, self._leaf_most[1], self._leaf_most[0])
        self.cost = np.zeros((*shape, 2), dtype=np.int32)
        self.choice: NDArray[np.int8] = np.zeros((*shape, 2), dtype=np.int8)
        self.best_cost = np.zeros(shape, dtype=np.int32)
        self.best_value: Indices = np.repeat(trees.value[:, None], shape[1], axis=1)
        leaves = trees.heights[0]
        self.bases[leaves, 1] = trees.value[leaves]
        self.cost[leaves, :, 0] = np.where(self.fails[leaves] <= most[leaves], LOOKUP, IMPOSSIBLE)
        for nodes in trees.heights[1:]:
            for part in np.array_split(nodes, -(-len(nodes) // 4096)):
                self._fill_inner(part, most[part])

    def _fill_inner(self, nodes: Indices, most: Indices) -> None:
        """Subtrees whose parts are done."""
        place = self._places(nodes)
        self._widen(self._choose_bases(nodes, place[2], place[3]))
        bases = self.bases[nodes]
        sides = [self._at_end(place[i], i, bases) for i in (2, 3)]
        cost = np.minimum(sides[0][0] + sides[1][0], IMPOSSIBLE)
        choice = np.full(cost.shape, SIDES, dtype=np.int8)
        for number, top in enumerate(TOPS):
            there = np.all([place[i] != NOWHERE for i in (*top.splits, *top.ends)], axis=0)
            there &= np.all([self.trees.left[place[i]] != NOWHERE for i in top.splits], axis=0)
            if there.any():
                self._try_top(number, np.flatnonzero(there), nodes, place, bases, cost, choice)
        self._try_flag(nodes, most, cost, choice)
        self.cost[nodes], self.choice[nodes] = cost, choice
        allowed = np.where(bases[:, None, 1:] == _PAD, IMPOSSIBLE, cost[:, :, 1:])
        best = allowed.argmin(axis=2)
        self.best_cost[nodes] = np.take_along_axis(allowed, best[:, :, None], axis=2)[:, :, 0]
        self.best_value[nodes] = np.take_along_axis(bases, best + 1, axis=1)

    def _places(self, nodes: Indices) -> dict[int, Indices]:
        """Returns the node at each place below some nodes, NOWHERE where there is none."""
        place = {1: nodes}
        for i in PLACES[1:]:
            above = place[i // 2]
            child = (self.trees.left if i % 2 == 0 else self.trees.right)[above]
            place[i] = np.where(above == NOWHERE, NOWHERE, child)
        return place

    def _choose_bases(self, nodes: Indices, left: Indices, right: Indices) -> int:
        """Values of the leaves below, the cheapest where they are many; the number of columns needed."""
        values = np.concatenate([self.bases[left, 1:], self.bases[right, 1:]], axis=1)
        values.sort(axis=1)
        values[:, 1:][values[:, 1:] == values[:, :-1]] = _PAD
        with_none = np.concatenate([np.full((len(nodes), 1), NONE), values], axis=1)
        cost = (
            self._at_end(left, 2, with_none, context=1)[0][:, 0] + self._at_end(right, 3, with_none, context=1)[0][:, 0]
        )
        order = np.argsort(np.where(values == _PAD, 4 * IMPOSSIBLE, cost[:, 1:]), axis=1, kind="stable")
        chosen = np.take_along_axis(values, order, axis=1)[:, : _MOST_BASES - 1]
        needed = 1 + int((chosen != _PAD).sum(axis=1).max())
        if needed > self.bases.shape[1]:
            more = np.full((len(self.bases), needed - self.bases.shape[1]), _PAD)
            self.bases = np.concatenate([self.bases, more], axis=1)
        self.bases[nodes, 1:needed] = chosen[:, : needed - 1]
        return needed

    def _widen(self, needed: int) -> None:
        more = needed - self.cost.shape[2]
        if more > 0:
            shape = (*self.cost.shape[:2], more)
            self.cost = np.concatenate([self.cost, np.full(shape, IMPOSSIBLE, dtype=np.int32)], axis=2)
            self.choice = np.concatenate([self.choice, np.zeros(shape, dtype=np.int8)], axis=2)

    def _at_end(self, ends: Indices, place: int, bases: Indices, context: int | None = None) -> tuple[Costs, Indices]:
        """Returns costs [nodes, contexts + 1, bases] of subtrees at a place below nodes with these bases, and contexts there."""
        deeper = place.bit_length() - 1
        here = np.arange(self.contexts + 1) if context is None else np.array([context - deeper])
        there = np.minimum(here + deeper, self.contexts)
        end_bases = self.bases[ends]
        equal = bases[:, :, None] == end_bases[:, None, :]
        number = np.where(equal.any(axis=2), equal.argmax(axis=2), 0)
        return self.cost[ends[:, None, None], there[None, :, None], number[:, None, :]], there

    def _try_top(
        self,
        number: int,
        rows: Indices,
        nodes: Indices,
        place: dict[int, Indices],
        bases: Indices,
        cost: Costs,
        choice: NDArray[np.int8],
    ) -> None:
        """Takes a look-up for a top wherever that is cheaper. Args: rows: of `nodes`, where the top is."""
        top = TOPS[number]
        contexts = np.arange(self.contexts + 1)
        least = np.full((len(rows), self.contexts + 1), LOOKUP, dtype=np.int32)  # with the best bases
        for i in top.ends:
            there = np.minimum(contexts + i.bit_length() - 1, self.contexts)
            least += self.best_cost[place[i][rows][:, None], there]
        rows = rows[(least[:, :, None] < cost[rows]).any(axis=(1, 2))]
        row_bases = bases[rows]
        total = np.full((len(rows), *cost.shape[1:]), LOOKUP, dtype=np.int32)
        given = []  # values of the ends; NONE for what surrounds the subtree
        for i in top.ends:
            ends = place[i][rows]
            staying, there = self._at_end(ends, i, row_bases)
            best = self.best_cost[ends][:, there, None]
            total += np.minimum(staying, best)
            given.append(np.where(staying <= best, NONE, self.best_value[ends][:, there, None]))
        better = (
            (total < cost[rows]) & (row_bases != _PAD)[:, None, :] & (self.fails[nodes[rows]] < IMPOSSIBLE)[:, :, None]
        )
        row, context, base = np.nonzero(better)
        if not len(row):
            return
        labels = _label_numbers([np.broadcast_to(value, total.shape)[row, context, base] for value in given])
        split_edges = np.stack([self.trees.edge[place[i][rows]] for i in top.splits], axis=1)
        classes = self.weights.numbers(class_numbers(number, split_edges, self._edges))
        top_nodes = nodes[rows[row]]
        most = self.weights.most_fails(classes[row], self.flagged[top_nodes, context], labels)
        serves = self.fails[top_nodes, context] <= most
        row, context, base = row[serves], context[serves], base[serves]
        cost[rows[row], context, base] = total[row, context, base]
        choice[rows[row], context, base] = number

    def _try_flag(self, nodes: Indices, most: Indices, cost: Costs, choice: NDArray[np.int8]) -> None:
        """A flag of the subtree's own."""
        if self._budget.flag is None:
            return
        flagged = _FLAG_COST + cost[:, :1] + np.where(self.fails[nodes] <= most, 0, IMPOSSIBLE)[:, :, None]
        flagged[:, 0] = IMPOSSIBLE
        better = flagged < cost
        np.copyto(cost, flagged.astype(np.int32), where=better)
        choice[better] = FLAG


def _label_numbers(given: list[Indices]) -> Indices:
    """Returns the numbers in LABELS of what some tops give their ends."""
    code, highest = np.zeros(len(given[0]), dtype=np.int64), np.zeros(len(given[0]), dtype=np.int64)
    labels: list[Indices] = []
    for i, value in enumerate(given):
        label = highest + 1
        for earlier, other in zip(labels, given, strict=False):
            label = np.where(other == value, earlier, label)
        label = np.where(value == NONE, 0, label)
        highest = np.maximum(highest, label)
        labels.append(label)
        code += label * (MOST_ENDS + 1) ** i
    return LABEL_NUMBER[code]
