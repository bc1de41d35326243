"""The tree operators of ai.onnx.ml: one entry per node (versions 1 and 3), or nodes and leaves apart (version 5).

Every comparison becomes x <= threshold: x < t is x <= the number before t, > and >= exchange the sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.trees.ensemble import LEAF, Tree, TreeEnsemble

# Scores that ONNX Runtime reads from the weights of a TreeEnsembleClassifier, and the decision by them.
#
# Two classes: weights of the first one alone are a score of the second, decided at 1/2 where no weight is negative and else at 0. Weights of the
# second alone, or of both, are scores of each, decided by the sign of the second's. More classes: the largest score of those that a sample's leaves
# have a weight of. Where the standard decides in another way than that, what the file means is open, and it is refused with the reason.


@dataclass(frozen=True, eq=False)
class ClassVotes:
    """Weights of leaves for classes, in the file's order."""

    leaf: Indices  # [weights], node numbers
    of_class: Indices  # [weights]
    weight: Reals  # [weights]
    tree_of_leaf: dict[int, int]  # by node number, of every leaf
    labels: NDArray[Any]
    has_base: bool

    @property
    def has_negative(self) -> bool:
        return bool(self.weight.min(initial=0.0) < 0)

    def scores(self, transform: str) -> tuple[int, str]:
        """Counts the scores, and names the transform. UnsupportedNode: what decides is open."""
        classes = np.unique(self.of_class).tolist()
        if len(self.labels) < 2:
            raise UnsupportedNode("names one class; expected two or more")
        if len(self.labels) > 2:
            self._check_many(classes)
        elif classes == [0]:
            return 1, self._of_one_score(transform)
        elif classes == [1]:
            self._check_second()
        else:
            self._check_both()
        return len(self.labels), transform

    def _of_one_score(self, transform: str) -> str:
        """Raises UnsupportedNode for logistic functions of what is decided at 1/2."""
        if self.has_negative:
            return "decision" if transform == "none" else transform
        if transform == "sigmoid":
            raise UnsupportedNode(
                "has post_transform LOGISTIC and no negative weight: ONNX Runtime decides at a score of 1/2 and the standard at 0; write the weights "
                "of both classes, one the negative of the other"
            )
        return transform

    def _check_second(self) -> None:
        if self.has_base:
            raise UnsupportedNode(
                "has weights of the second of two classes alone, and base values, which runtimes add to different scores; give the weights to the "
                "first class (ONNX Runtime takes these for a score of the second), or add the base values to the leaves of one tree"
            )
        if not self.has_negative:
            raise UnsupportedNode(
                "has weights of the second of two classes alone and none is negative: ONNX Runtime decides at a score of 1/2 and the standard at 0; "
                "give the weights to the first class, which stands for the second where it is alone"
            )

    def _check_both(self) -> None:
        if self.labels.dtype.kind in "iu" and self.labels.tolist() != [0, 1]:
            raise UnsupportedNode(
                f"has weights of both of its two classes, {self.labels.tolist()}: ONNX Runtime answers 0 or 1 and the standard one of these; name "
                "the classes 0 and 1, or by texts"
            )
        scores = self._table(np.float64)
        if self.has_base or not np.array_equal(scores[:, 0], -scores[:, 1]) or not self._table(np.bool_)[:, 1].all():
            raise UnsupportedNode(
                "has weights of both of its two classes: ONNX Runtime decides by the sign of the second score and the standard by the larger one; "
                "make one the negative of the other in each leaf, without base values, or give the second's alone, to the first class"
            )

    def _check_many(self, classes: list[int]) -> None:
        if len(classes) == 1:
            raise UnsupportedNode(f"has weights of one class of {len(self.labels)}; expected some of each")
        if self.has_base or not self.has_negative or self._always_scored():
            return
        raise UnsupportedNode(
            "has leaves without a weight of some classes and negative weights: ONNX Runtime leaves these classes out where the standard takes their "
            "score for 0; write the zeros"
        )

    def _always_scored(self) -> bool:
        """Whether each class has a tree that all leaves of have a weight of it."""
        trees = np.unique(list(self.tree_of_leaf.values()), return_inverse=True)[1]
        everywhere = np.ones((int(trees.max()) + 1, len(self.labels)), dtype=np.bool_)
        np.logical_and.at(everywhere, trees, self._table(np.bool_))
        return bool(everywhere.any(axis=0).all())

    def _table(self, kind: type[np.float64] | type[np.bool_]) -> NDArray[Any]:
        """Returns [leaves, classes]: the sums of weights, or whether there are any."""
        row = {leaf: number for number, leaf in enumerate(self.tree_of_leaf)}
        known = np.array([leaf in row for leaf in self.leaf.tolist()], dtype=np.bool_)  # not of inner nodes
        rows = np.array([row[leaf] for leaf in self.leaf[known].tolist()], dtype=np.int64)
        table = np.zeros((len(row), len(self.labels)), dtype=kind)
        np.add.at(table, (rows, self.of_class[known]), self.weight[known] if kind is np.float64 else np.bool_(True))
        return table


Attributes = dict[str, Any]

_MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")  # by their numbers in version 5
_AGGREGATIONS: Final[dict[Any, Literal["sum", "mean"]]] = {"SUM": "sum", "AVERAGE": "mean", 1: "sum", 0: "mean"}
_MOST_VALUES: Final = 1 << 25
_TRANSFORMS_5: Final = {0: "none", 1: "softmax", 2: "sigmoid"}


def tree_ensemble(
    node_attributes: Attributes, single: bool, features: int, transform: str, labels: NDArray[Any] | None
) -> TreeEnsemble:
    """Reads TreeEnsembleClassifier (with labels) or TreeEnsembleRegressor."""
    tree_of_node = np.asarray(node_attributes["nodes_treeids"], dtype=np.int64)
    number = np.asarray(node_attributes["nodes_nodeids"], dtype=np.int64)
    leaf = np.array([mode == "LEAF" for mode in node_attributes["nodes_modes"]])
    values, transform = _leaf_values(node_attributes, transform, labels, tree_of_node, number, leaf)
    children = np.stack(
        [np.asarray(node_attributes[f"nodes_{side}nodeids"], dtype=np.int64) for side in ("true", "false")]
    )
    modes = ["BRANCH_LEQ" if mode == "LEAF" else mode for mode in node_attributes["nodes_modes"]]
    threshold, swapped = _as_at_most(modes, _numbers(node_attributes, "nodes_values"), single)
    tracks = _tracks_true(node_attributes, len(number))
    trees = []
    for tree in dict.fromkeys(tree_of_node.tolist()):
        rows = np.flatnonzero(tree_of_node == tree)
        local = {int(number[row]): i for i, row in enumerate(rows)}
        true, false = (
            np.array([LEAF if leaf[row] else local[int(children[side, row])] for row in rows]) for side in (0, 1)
        )
        trees.append(
            _tree(
                np.asarray(node_attributes["nodes_featureids"], dtype=np.int64)[rows],
                threshold[rows],
                (true, false),
                swapped[rows],
                values[rows],
                None if tracks is None else tracks[rows],
            )
        )
    return TreeEnsemble(
        tuple(trees),
        features,
        _aggregation(node_attributes.get("aggregate_function", "SUM")),
        base=_base(node_attributes, values.shape[1]),
        single=single,
        transform=transform,
        labels=labels,
    )


def _leaf_values(
    node_attributes: Attributes,
    transform: str,
    labels: NDArray[Any] | None,
    tree_of_node: Indices,
    number: Indices,
    leaf: NDArray[np.bool_],
) -> tuple[Reals, str]:
    """Returns [nodes, outputs], and the transform of the scores."""
    prefix = "target" if labels is None else "class"
    target = np.asarray(node_attributes[f"{prefix}_ids"], dtype=np.int64)
    weight = _numbers(node_attributes, f"{prefix}_weights")
    outputs = int(node_attributes.get("n_targets", 1)) if labels is None else len(labels)
    if target.min(initial=0) < 0 or target.max(initial=0) >= outputs:
        raise UnsupportedNode(f"has weights of scores that it does not have; expected {prefix}_ids 0 to {outputs - 1}")
    place = {pair: i for i, pair in enumerate(zip(tree_of_node.tolist(), number.tolist(), strict=True))}
    pairs = zip(node_attributes[f"{prefix}_treeids"], node_attributes[f"{prefix}_nodeids"], strict=True)
    node = np.array([place[int(tree), int(at)] for tree, at in pairs], dtype=np.int64)
    if labels is not None:
        _check_size(len(number), outputs)
        trees = {int(i): int(tree_of_node[i]) for i in np.flatnonzero(leaf)}
        votes = ClassVotes(node, target, weight, trees, labels, _base_values(node_attributes) is not None)
        outputs, transform = votes.scores(transform)
    values = _no_values(len(number), outputs)
    np.add.at(values, (node, target), weight)
    return values, transform


def tree_ensemble_5(node_attributes: Attributes, single: bool, features: int) -> TreeEnsemble:
    """Reads TreeEnsemble of version 5: scores alone, without classes."""
    transform = int(node_attributes.get("post_transform", 0))
    if transform not in _TRANSFORMS_5:
        raise UnsupportedNode(f"post_transform {transform}; expected 0 (none), 1 (softmax) or 2 (logistic)")
    numbers = np.asarray(node_attributes["nodes_modes"]).astype(np.int64)
    if numbers.max(initial=0) >= len(_MODES):
        raise UnsupportedNode("tests equality or membership; encode categories as columns of 0 and 1")
    threshold, swapped = _as_at_most([_MODES[i] for i in numbers], _numbers(node_attributes, "nodes_splits"), single)
    inner = len(threshold)
    weights, targets = (
        _numbers(node_attributes, "leaf_weights"),
        np.asarray(node_attributes["leaf_targetids"], dtype=np.int64),
    )
    outputs = int(node_attributes.get("n_targets", 1))
    values = _no_values(inner + len(weights), outputs)
    values[inner + np.arange(len(weights)), targets] = weights
    children = []
    for side in ("true", "false"):
        node = np.asarray(node_attributes[f"nodes_{side}nodeids"], dtype=np.int64)
        is_leaf = np.asarray(node_attributes[f"nodes_{side}leafs"], dtype=np.int64) == 1
        children.append(np.concatenate([node + inner * is_leaf, np.full(len(weights), LEAF)]))
    tracks = _tracks_true(node_attributes, inner)
    padded = [np.concatenate([column, np.zeros(len(weights), column.dtype)]) for column in (threshold, swapped)]
    feature = np.concatenate(
        [np.asarray(node_attributes["nodes_featureids"], dtype=np.int64), np.zeros(len(weights), np.int64)]
    )
    missing = None if tracks is None else np.concatenate([tracks, np.zeros(len(weights), np.bool_)])
    trees = []
    for root in node_attributes["tree_roots"]:
        order = _from_root(int(root), children[0], children[1])
        renumbered = np.full(len(feature) + 1, LEAF)
        renumbered[order] = np.arange(len(order))
        sides = (renumbered[children[0][order]], renumbered[children[1][order]])
        tree_missing = None if missing is None else missing[order]
        trees.append(_tree(feature[order], padded[0][order], sides, padded[1][order], values[order], tree_missing))
    return TreeEnsemble(
        tuple(trees),
        features,
        _aggregation(int(node_attributes.get("aggregate_function", 1))),
        single=single,
        transform=_TRANSFORMS_5[transform],
    )


def _tree(
    feature: Indices,
    threshold: Reals,
    sides: tuple[Indices, Indices],
    swapped: NDArray[np.bool_],
    values: Reals,
    tracks_true: NDArray[np.bool_] | None,
) -> Tree:
    """Args: sides: where a true comparison goes and a false one; swapped: it was > or >=, so that <= is its contrary."""
    true, false = sides
    left, right = np.where(swapped, false, true), np.where(swapped, true, false)
    missing = None if tracks_true is None else tracks_true != swapped
    return Tree.of_nodes(feature, threshold, left, right, values, missing)


def _from_root(root: int, true: Indices, false: Indices) -> Indices:
    order = [root]
    for node in order:
        if true[node] != LEAF:
            if len(order) > len(true):
                raise UnsupportedNode("a tree runs in a circle")
            order += [int(true[node]), int(false[node])]
    return np.array(order, dtype=np.int64)


def _as_at_most(modes: list[str], threshold: Reals, single: bool) -> tuple[Reals, NDArray[np.bool_]]:
    """Returns thresholds of x <= t, and where the sides are exchanged."""
    if any(mode not in _MODES for mode in modes):
        strange = next(mode for mode in modes if mode not in _MODES)
        raise UnsupportedNode(f"tests {strange}; encode categories as columns of 0 and 1")
    kind = np.float32 if single else np.float64
    below = np.nextafter(threshold.astype(kind), kind(-np.inf)).astype(np.float64)
    open_end = np.array([mode in ("BRANCH_LT", "BRANCH_GTE") for mode in modes], dtype=np.bool_)
    swapped = np.array([mode in ("BRANCH_GTE", "BRANCH_GT") for mode in modes], dtype=np.bool_)
    return np.where(open_end, below, threshold), swapped


def _tracks_true(node_attributes: Attributes, count: int) -> NDArray[np.bool_] | None:
    """Returns None when no node says where missing values go: then they are refused."""
    tracks = np.asarray(node_attributes.get("nodes_missing_value_tracks_true") or np.zeros(count), dtype=np.bool_)
    return tracks if tracks.any() else None


def _no_values(nodes: int, outputs: int) -> Reals:
    _check_size(nodes, outputs)
    return np.zeros((nodes, outputs))


def _check_size(nodes: int, outputs: int) -> None:
    if not 0 < outputs <= _MOST_VALUES // max(nodes, 1):
        raise UnsupportedNode(f"has {outputs} outputs for {nodes} nodes; expected at most {_MOST_VALUES} values")


def _numbers(node_attributes: Attributes, name: str) -> Reals:
    """Returns a list of floats, or the tensor of newer versions."""
    tensor = node_attributes.get(f"{name}_as_tensor")
    return np.asarray(node_attributes[name] if tensor is None else tensor, dtype=np.float64)


def _base_values(node_attributes: Attributes) -> Any:
    """Returns None where there are none."""
    return node_attributes.get("base_values") or node_attributes.get("base_values_as_tensor")


def _base(node_attributes: Attributes, outputs: int) -> Reals | None:
    values = _base_values(node_attributes)
    if values is None:
        return None
    base = np.asarray(values, dtype=np.float64)
    if len(base) != outputs:
        raise UnsupportedNode(f"has {len(base)} base values for {outputs} scores; expected one for each")
    return base


def _aggregation(name: str | int) -> Literal["sum", "mean"]:
    if name not in _AGGREGATIONS:
        raise UnsupportedNode(f"aggregate_function {name}; expected the sum or the average")
    return _AGGREGATIONS[name]
