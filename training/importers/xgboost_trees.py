"""XGBoost's own JSON: trees on float32 features that go left where x < threshold, sums in float32."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.trees.ensemble import Tree
from cloakwork.training.importers.nodes import placed, unsupported_option

# Objective -> how a raw sum becomes the prediction.
TRANSFORMS: Final[dict[str, str]] = {
    "binary:logistic": "sigmoid",
    "reg:logistic": "sigmoid",
    "multi:softprob": "softmax",
    "multi:softmax": "softmax",
    "count:poisson": "exp",
    "reg:gamma": "exp",
    "reg:tweedie": "exp",
    "reg:squarederror": "none",
    "reg:squaredlogerror": "none",
    "reg:pseudohubererror": "none",
    "reg:absoluteerror": "none",
    "reg:quantileerror": "none",
}


def xgboost_nodes(estimator: Any) -> tuple[list[Tree], NDArray[np.float64], str]:
    """Returns trees, the start [outputs] on the raw scale, and the transform of the objective."""
    booster = estimator.get_booster()
    learner = json.loads(booster.save_raw("json").decode())["learner"]
    objective = learner["objective"]["name"]
    if objective not in TRANSFORMS:
        raise unsupported_option(estimator, "objective", objective, f"expected one of {', '.join(TRANSFORMS)}")
    transform = TRANSFORMS[objective]
    gbtree, weights = _trees_of(estimator, learner["gradient_booster"])
    sizes = learner["learner_model_param"]
    classes, targets = int(sizes["num_class"]), int(sizes.get("num_target", "1"))
    if classes > 1 and targets > 1:
        raise unsupported_option(estimator, "targets of classes", targets, "fit one estimator per target")
    outputs = max(1, classes, targets)
    used = _rounds_used(estimator, gbtree)
    trees = [
        _nodes(estimator, tree, int(gbtree["tree_info"][i]), outputs, weights[i])
        for i, tree in enumerate(gbtree["trees"][:used])
    ]
    return trees, _start(learner["learner_model_param"]["base_score"], outputs, transform), transform


def _trees_of(estimator: Any, booster: dict[str, Any]) -> tuple[dict[str, Any], list[float]]:
    """Returns the trees' part of the model, and the weight of each tree (DART drops some)."""
    if booster["name"] == "gbtree":
        return booster["model"], [1.0] * len(booster["model"]["trees"])
    if booster["name"] == "dart":
        return booster["gbtree"]["model"], [float(weight) for weight in booster["weight_drop"]]
    raise unsupported_option(estimator, "booster", booster["name"], "use 'gbtree', or a linear estimator")


def _rounds_used(estimator: Any, gbtree: dict[str, Any]) -> int:
    """Returns trees up to the best round, as `predict` has it: the booster knows, whoever stopped it, and after it was saved and loaded too."""
    best = getattr(estimator, "best_iteration", None)
    ends = gbtree["iteration_indptr"]
    return int(ends[-1] if best is None else ends[min(int(best) + 1, len(ends) - 1)])


def _start(base_score: str, outputs: int, transform: str) -> NDArray[np.float64]:
    """Returns the base score, which is stored behind the objective's link."""
    stored = json.loads(base_score)
    values = np.broadcast_to(np.asarray(stored, dtype=np.float32).reshape(-1), outputs).astype(np.float64)
    if transform == "sigmoid":  # of one class alone 0 or 1, which XGBoost moves as far
        return np.array([-math.log(1 / value - 1) for value in np.clip(values, _LEAST, 1 - _LEAST)])
    return np.log(np.maximum(values, np.finfo(np.float32).tiny)) if transform == "exp" else values


_LEAST: Final = 1e-6


def _nodes(estimator: Any, tree: dict[str, Any], output: int, outputs: int, weight: float) -> Tree:
    if any(tree["split_type"]):
        raise unsupported_option(estimator, "categorical split", True, "encode categories as numbers or columns")
    if int(tree["tree_param"].get("size_leaf_vector", "1")) > 1:
        raise unsupported_option(estimator, "multi_strategy", "multi_output_tree", "use 'one_output_per_tree'")
    left = np.asarray(tree["left_children"], dtype=np.int64)
    leaf = left < 0
    condition = np.asarray(tree["split_conditions"], dtype=np.float32).astype(np.float64)
    return Tree.of_nodes(
        np.where(leaf, -1, np.asarray(tree["split_indices"], dtype=np.int64)),
        np.where(leaf, 0.0, condition),
        left,
        np.where(leaf, -1, np.asarray(tree["right_children"], dtype=np.int64)),
        placed(np.where(leaf, condition * weight, 0.0), output, outputs),
        np.asarray(tree["default_left"], dtype=bool),
    )
