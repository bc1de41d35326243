"""LightGBM's dump: trees on float64 features that go left where x <= threshold."""

from __future__ import annotations

from json import JSONDecodeError
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.trees.ensemble import Tree
from cloakwork.training.importers.nodes import placed, unsupported_option

EACH: Final = "sigmoid of each"
# Objective -> how a raw sum becomes the prediction.
TRANSFORMS: Final[dict[str, str]] = {
    "binary": "sigmoid",
    "multiclass": "softmax",
    "multiclassova": EACH,
    "cross_entropy": "sigmoid",
    "poisson": "exp",
    "gamma": "exp",
    "tweedie": "exp",
    "regression": "none",
    "regression_l1": "none",
    "huber": "none",
    "fair": "none",
    "quantile": "none",
    "mape": "none",
}


def lightgbm_nodes(estimator: Any) -> tuple[list[Tree], NDArray[np.float64], str]:
    """Returns trees, the start [outputs] (zeros: it is in the leaves), and the transform of the objective."""
    try:
        dump = estimator.booster_.dump_model(num_iteration=None)  # up to the best round, as it predicts
    except JSONDecodeError as error:  # numbers that are none
        raise unsupported_option(
            estimator, "leaves", "no numbers", "train it so that its predictions are finite"
        ) from error
    if callable(estimator.objective) or dump.get("objective", "custom").split()[:1] in ([], ["custom"], ["none"]):
        remedy = "what makes predictions of its sums is not in the model: train with an objective of LightGBM's own"
        raise unsupported_option(estimator, "objective", estimator.objective, remedy)
    transform = _transform(estimator, dump["objective"])
    outputs = int(dump["num_tree_per_iteration"])
    rounds = len(dump["tree_info"]) // outputs
    share = 1.0 / rounds if dump["average_output"] else 1.0
    trees = [_nodes(estimator, tree, i % outputs, outputs, share) for i, tree in enumerate(dump["tree_info"])]
    return trees, np.zeros(outputs), transform


def _transform(estimator: Any, objective: str) -> str:
    name, *options = objective.split()
    if name not in TRANSFORMS or "sqrt" in options:
        raise unsupported_option(estimator, "objective", objective, f"expected one of {', '.join(TRANSFORMS)}")
    scale = [option for option in options if option.startswith("sigmoid:")]
    if scale and float(scale[0].partition(":")[2]) != 1:
        raise unsupported_option(estimator, "sigmoid", scale[0], "leave it at 1")
    return TRANSFORMS[name]


def _nodes(estimator: Any, tree: dict[str, Any], output: int, outputs: int, share: float) -> Tree:
    rows: list[tuple[int, float, int, int, float, bool]] = []

    def visit(node: dict[str, Any]) -> int:
        number = len(rows)
        if "leaf_value" in node:
            if "leaf_const" in node:
                raise unsupported_option(estimator, "linear_tree", True, "fit with linear_tree=False")
            rows.append((-1, 0.0, -1, -1, float(node["leaf_value"]) * share, False))
            return number
        _check_split(estimator, node)
        rows.append((-1, 0.0, -1, -1, 0.0, False))
        # Without NaN in training a missing value counts as 0.
        missing_left = bool(node["default_left"]) if node["missing_type"] == "NaN" else node["threshold"] >= 0
        left, right = visit(node["left_child"]), visit(node["right_child"])
        rows[number] = (int(node["split_feature"]), float(node["threshold"]), left, right, 0.0, missing_left)
        return number

    visit(tree["tree_structure"])
    feature, threshold, left, right, value, missing = (np.array(column) for column in zip(*rows, strict=True))
    values = placed(value.astype(np.float64), output, outputs)
    return Tree.of_nodes(feature, threshold.astype(np.float64), left, right, values, missing.astype(bool))


def _check_split(estimator: Any, node: dict[str, Any]) -> None:
    if node["decision_type"] != "<=":
        raise unsupported_option(estimator, "categorical split", True, "encode categories as numbers or columns")
    if node["missing_type"] == "Zero":
        raise unsupported_option(estimator, "zero_as_missing", True, "fit with zero_as_missing=False")
