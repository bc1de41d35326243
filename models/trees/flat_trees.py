"""Trees of one integer output each on edges, all of them side by side, without comparisons that a path has decided and without splits that change
nothing. Whatever can be is done for all nodes of a depth, or of a height, at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.trees.ensemble import LEAF, Edges, Tree

NOWHERE = -1  # no such node


@dataclass(frozen=True, eq=False)
class FlatTrees:
    """Nodes of all trees, parents before children; a split goes left where its edge holds."""

    root: Indices  # [trees]
    left: Indices  # [nodes], NOWHERE in leaves
    right: Indices
    parent: Indices  # NOWHERE in roots
    depth: Indices
    edge: Indices  # LEAF in leaves
    value: Indices  # of leaves

    def __len__(self) -> int:
        return len(self.left)

    @cached_property
    def heights(self) -> list[Indices]:
        """Nodes by their height, leaves first."""
        height = np.zeros(len(self), dtype=np.int64)
        for nodes in reversed(self.depths[1:]):
            np.maximum.at(height, self.parent[nodes], height[nodes] + 1)
        return _grouped(height)

    @cached_property
    def depths(self) -> list[Indices]:
        """Nodes by their depth, roots first."""
        return _grouped(self.depth)

    @cached_property
    def span(self) -> tuple[Indices, Indices]:
        """[nodes]: the least and the largest value of the leaves below."""
        return _span(self.value, self.left, self.right, self.heights)

    @cached_property
    def tree(self) -> Indices:
        """[nodes]: the number of the tree."""
        tree = np.zeros(len(self), dtype=np.int64)
        tree[self.root] = np.arange(len(self.root))
        for nodes in self.depths[1:]:
            tree[nodes] = tree[self.parent[nodes]]
        return tree

    def part(self, trees: Indices) -> FlatTrees:
        """Returns some trees alone."""
        is_chosen = np.zeros(len(self.root), dtype=bool)
        is_chosen[trees] = True
        kept = np.flatnonzero(is_chosen[self.tree])
        number = np.full(len(self) + 1, NOWHERE, dtype=np.int64)  # the last entry is that of NOWHERE
        number[kept] = np.arange(len(kept))
        columns = (self.left, self.right, self.parent)
        left, right, parent = (number[column[kept]] for column in columns)
        return FlatTrees(
            number[self.root[trees]], left, right, parent, self.depth[kept], self.edge[kept], self.value[kept]
        )

    def tree_sizes(self) -> Indices:
        """Returns [trees] nodes."""
        return np.bincount(self.tree, minlength=len(self.root))


class Skeleton:
    """The reachable nodes of an ensemble's trees, whatever the values of their leaves; `trees` gives them values."""

    def __init__(self, trees: Sequence[Tree], node_edges: Sequence[Indices], edges: Edges) -> None:
        """Args: node_edges: for each tree, the edge that every node compares with (LEAF in leaves)."""
        sizes = np.array([len(tree.left) for tree in trees])
        self._first = np.concatenate([[0], np.cumsum(sizes)])
        offset = np.repeat(self._first[:-1], sizes)
        left = np.concatenate([tree.left for tree in trees])
        right = np.concatenate([tree.right for tree in trees])
        self._left = np.where(left == LEAF, NOWHERE, left + offset)
        self._right = np.where(left == LEAF, NOWHERE, right + offset)
        self._edge = np.concatenate(list(node_edges)).astype(np.int64)
        self._parent = parents(self._left, self._right)
        self._target = _decided(self._left, self._right, self._parent, self._edge, edges)

    def trees(self, chosen: Sequence[tuple[int, Indices]]) -> FlatTrees:
        """Makes trees of leaf values. Args: chosen: numbers of trees and the values [nodes] of their leaves; a tree may come several times, with
        other values."""
        parts = [np.arange(self._first[tree], self._first[tree + 1]) for tree, _ in chosen]
        sizes = np.array([len(part) for part in parts])
        start = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        old = np.concatenate(parts)
        shift = np.repeat(start - np.array([part[0] for part in parts]), sizes)
        target = self._target[old] + shift
        inner = self._left[old] != NOWHERE
        left = np.where(inner, target[np.where(inner, self._left[old] + shift, 0)], NOWHERE)
        right = np.where(inner, target[np.where(inner, self._right[old] + shift, 0)], NOWHERE)
        value = np.concatenate([np.asarray(values, dtype=np.int64) for _, values in chosen])
        return _compact(target[start], left, right, self._edge[old], value)


def parents(left: Indices, right: Indices) -> Indices:
    parent = np.full(len(left), NOWHERE, dtype=np.int64)
    inner = np.flatnonzero(left != NOWHERE)
    parent[left[inner]] = inner
    parent[right[inner]] = inner
    return parent


def nearest_of_same(group: Indices, parent: Indices) -> tuple[Indices, Indices]:
    """Returns [nodes]: the nearest proper ancestor of the same group, and its child on the way; NOWHERE where there is none, and for groups below
    0."""
    ancestor, via = np.full(len(parent), NOWHERE, dtype=np.int64), np.full(len(parent), NOWHERE, dtype=np.int64)
    nodes = np.flatnonzero((group >= 0) & (parent != NOWHERE))
    current, child = parent[nodes], nodes
    while len(nodes):
        same = group[current] == group[nodes]
        ancestor[nodes[same]], via[nodes[same]] = current[same], child[same]
        left_over = ~same & (parent[current] != NOWHERE)
        nodes, child, current = nodes[left_over], current[left_over], parent[current[left_over]]
    return ancestor, via


def _decided(left: Indices, right: Indices, parent: Indices, edge: Indices, edges: Edges) -> Indices:
    """Returns the node that stands for each one: itself, or where its path has decided the comparison the node below."""
    count = len(left)
    feature = np.where(edge >= 0, edges.feature[edge], -1)
    rank = np.where(edge >= 0, edges.rank[edge], 0)
    missing = np.where(edge >= 0, edges.missing[edge], 0).astype(bool)
    same, via = nearest_of_same(feature, parent)
    # Bins low .. high - 1 of its own feature, and NaN, that reach a node.
    low = np.zeros(count, dtype=np.int64)
    high = np.full(count, np.iinfo(np.int64).max, dtype=np.int64)
    nan = np.full(count, edges.takes_missing)
    depth = depths(parent)
    for nodes in _grouped(depth):
        known = nodes[same[nodes] != NOWHERE]
        above = same[known]
        went_left = left[above] == via[known]
        low[known] = np.where(went_left, low[above], np.maximum(low[above], rank[above] + 1))
        high[known] = np.where(went_left, np.minimum(high[above], rank[above] + 1), high[above])
        nan[known] = nan[above] & (missing[above] == went_left)
    inner = left != NOWHERE
    holds_somewhere = (np.minimum(high, rank + 1) > low) | (nan & missing)
    fails_somewhere = (high > np.maximum(low, rank + 1)) | (nan & ~missing)
    only_left, only_right = inner & ~fails_somewhere, inner & fails_somewhere & ~holds_somewhere
    target = np.arange(count)
    for nodes in reversed(_grouped(depth)):
        chosen = nodes[only_left[nodes]]
        target[chosen] = target[left[chosen]]
        chosen = nodes[only_right[nodes]]
        target[chosen] = target[right[chosen]]
    return target


def depths(parent: Indices) -> Indices:
    """Returns [nodes], for parents before children or in any order."""
    depth = np.zeros(len(parent), dtype=np.int64)
    current = parent.copy()
    moving = np.flatnonzero(current != NOWHERE)
    while len(moving):
        depth[moving] += 1
        current[moving] = parent[current[moving]]
        moving = moving[current[moving] != NOWHERE]
    return depth


def _grouped(key: Indices) -> list[Indices]:
    """Returns positions by a key 0, 1, .."""
    order = np.argsort(key, kind="stable")
    return np.split(order, np.cumsum(np.bincount(key))[:-1])


def _span(value: Indices, left: Indices, right: Indices, heights: Sequence[Indices]) -> tuple[Indices, Indices]:
    least, largest = value.copy(), value.copy()
    for nodes in heights[1:]:
        least[nodes] = np.minimum(least[left[nodes]], least[right[nodes]])
        largest[nodes] = np.maximum(largest[left[nodes]], largest[right[nodes]])
    return least, largest


def _compact(root: Indices, left: Indices, right: Indices, edge: Indices, value: Indices) -> FlatTrees:
    """Returns the nodes that the roots reach, subtrees of one value as leaves."""
    levels, current = [], root
    while len(current):
        levels.append(current)
        inner = current[left[current] != NOWHERE]
        current = np.concatenate([left[inner], right[inner]])
    least, largest = value.copy(), value.copy()
    for nodes in reversed(levels):
        inner = nodes[left[nodes] != NOWHERE]
        least[inner] = np.minimum(least[left[inner]], least[right[inner]])
        largest[inner] = np.maximum(largest[left[inner]], largest[right[inner]])
    leaf = (left == NOWHERE) | (least == largest)
    kept, current = [], root
    while len(current):
        kept.append(current)
        inner = current[~leaf[current]]
        current = np.concatenate([left[inner], right[inner]])
    old = np.concatenate(kept)
    number = np.full(len(left), NOWHERE, dtype=np.int64)
    number[old] = np.arange(len(old))
    is_leaf = leaf[old]
    new_left = np.where(is_leaf, NOWHERE, number[np.where(is_leaf, 0, left[old])])
    new_right = np.where(is_leaf, NOWHERE, number[np.where(is_leaf, 0, right[old])])
    depth = np.repeat(np.arange(len(kept)), [len(nodes) for nodes in kept])
    return FlatTrees(
        number[root],
        new_left,
        new_right,
        parents(new_left, new_right),
        depth,
        np.where(is_leaf, LEAF, edge[old]),
        least[old],
    )
