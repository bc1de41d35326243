"""Scores that ONNX Runtime reads from the weights of a TreeEnsembleClassifier, and the decision by them.

Two classes: weights of the first one alone are a score of the second, decided at 1/2 where no weight is negative and else at 0. Weights of the second
alone, or of both, are scores of each, decided by the sign of the second's. More classes: the largest score of those that a sample's leaves have a
weight of. Where the standard decides in another way than that, what the file means is open, and it is refused with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import UnsupportedNode


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
