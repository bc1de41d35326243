"""A tree of one integer output on edges, without comparisons that its path has decided and without splits that change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cloakwork.models.ir import Indices
from cloakwork.models.tabular.edges import Edges
from cloakwork.models.tabular.ensemble import LEAF, Tree


@dataclass(frozen=True, eq=False)
class BinnedNode:
    """A leaf has a value; another node goes left where its edge holds."""

    value: int  # of leaves
    edge: int  # -1 in leaves
    left: BinnedNode | None
    right: BinnedNode | None
    path: tuple[tuple[int, bool], ...]  # (edge, whether it holds) from the root
    masks: dict[int, int]  # bins that the path leaves, of every feature on it

    @property
    def is_leaf(self) -> bool:
        return self.left is None

    @property
    def children(self) -> tuple[BinnedNode, BinnedNode]:
        assert self.left is not None and self.right is not None
        return self.left, self.right

    @cached_property
    def values(self) -> frozenset[int]:
        """Of the leaves below."""
        if self.is_leaf:
            return frozenset([self.value])
        left, right = self.children
        return left.values | right.values


def binned_tree(tree: Tree, node_edges: Indices, values: Indices, edges: Edges) -> BinnedNode:
    """Args: values: [nodes], integers, meaningful in leaves."""

    def build(node: int, path: tuple[tuple[int, bool], ...], masks: dict[int, int]) -> BinnedNode:
        if tree.left[node] == LEAF:
            return BinnedNode(int(values[node]), LEAF, None, None, path, masks)
        edge = int(node_edges[node])
        feature = int(edges.feature[edge])
        possible = masks.get(feature, edges.all_bins(feature))
        holding, failing = possible & edges.holds[edge], possible & ~edges.holds[edge]
        if not failing:
            return build(int(tree.left[node]), path, masks)
        if not holding:
            return build(int(tree.right[node]), path, masks)
        left = build(int(tree.left[node]), (*path, (edge, True)), {**masks, feature: holding})
        right = build(int(tree.right[node]), (*path, (edge, False)), {**masks, feature: failing})
        if left.values == right.values and len(left.values) == 1:
            return BinnedNode(next(iter(left.values)), LEAF, None, None, path, masks)
        return BinnedNode(0, edge, left, right, path, masks)

    return build(0, (), {})
