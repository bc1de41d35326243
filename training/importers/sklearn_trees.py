"""Decision trees, forests, gradient boosting and isolation forests of scikit-learn.

Their trees convert samples to float32 and go left where x <= threshold (float64); histogram gradient boosting compares float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.trees.ensemble import Tree
from cloakwork.training.importers.nodes import check_own_methods, placed, unsupported_option


def tree_nodes(member: Any, values: NDArray[np.float64], features: NDArray[np.int64] | None = None) -> Tree:
    """Returns one fitted decision tree. Args: values [nodes, outputs]; features: which columns it was trained on, None for all."""
    _check_own(member)
    tree = member.tree_
    left, right = np.asarray(tree.children_left, dtype=np.int64), np.asarray(tree.children_right, dtype=np.int64)
    feature = np.asarray(tree.feature, dtype=np.int64)
    if features is not None:
        feature = features[feature]  # in leaves anything
    missing = np.asarray(tree.missing_go_to_left, dtype=bool)
    return Tree.of_nodes(feature, np.asarray(tree.threshold, dtype=np.float64), left, right, values, missing)


def _check_own(member: Any) -> None:
    """Checks that a user's class of trees, or of starts, answers as scikit-learn's."""
    if not type(member).__module__.startswith("sklearn."):
        check_own_methods(member, next(cls for cls in type(member).__mro__ if cls.__module__.startswith("sklearn.")))


def class_shares(tree: Any) -> NDArray[np.float64]:
    """Returns [nodes, classes of all outputs] that `predict_proba` of one tree returns: older versions keep counts, newer ones shares."""
    return np.concatenate([_shares(tree, i, int(count)) for i, count in enumerate(tree.n_classes)], axis=1)


def _shares(tree: Any, output: int, classes: int) -> NDArray[np.float64]:
    counts = np.asarray(tree.value[:, output, :classes], dtype=np.float64)
    shares: NDArray[np.float64] = counts / counts.sum(axis=1, keepdims=True)
    return shares if np.abs(counts.sum(axis=1) - 1).max() > 1e-6 else counts


def means(tree: Any) -> NDArray[np.float64]:
    """Returns [nodes, outputs] of a regression tree."""
    return np.asarray(tree.value[:, :, 0], dtype=np.float64)


def forest_trees(estimator: Any) -> list[Tree]:
    """Returns trees whose outputs are averaged: classes' shares, or values; a single decision tree too."""
    of_tree = class_shares if hasattr(estimator, "classes_") else means
    return [tree_nodes(member, of_tree(member.tree_)) for member in getattr(estimator, "estimators_", [estimator])]


def gradient_boosting(estimator: Any) -> tuple[list[Tree], NDArray[np.float64]]:
    """Returns trees whose outputs are added to a constant start [outputs]."""
    start = _constant_start(estimator)
    outputs = estimator.estimators_.shape[1]
    trees = [
        tree_nodes(member, placed(estimator.learning_rate * means(member.tree_)[:, 0], k, outputs))
        for stage in estimator.estimators_
        for k, member in enumerate(stage)
    ]
    return trees, start


def _constant_start(estimator: Any) -> NDArray[np.float64]:
    """Returns the initial raw prediction, which has to be the same for all samples."""
    from sklearn.dummy import DummyClassifier, DummyRegressor

    if estimator.init not in (None, "zero") and not isinstance(estimator.init_, DummyClassifier | DummyRegressor):
        raise unsupported_option(estimator, "init", estimator.init, "use init=None or 'zero'")
    if estimator.init not in (None, "zero"):
        _check_own(estimator.init_)
    probes = np.zeros((1, estimator.n_features_in_), dtype=np.float32)
    start: NDArray[np.float64] = np.asarray(estimator._raw_predict_init(probes), dtype=np.float64)[0]
    return start


def histogram_boosting(estimator: Any) -> tuple[list[Tree], NDArray[np.float64]]:
    """Returns trees on float64 features, and the baseline [outputs]."""
    if getattr(estimator, "is_categorical_", None) is not None:
        raise unsupported_option(
            estimator, "categorical_features", estimator.categorical_features, "encode categories as numbers or columns"
        )
    start = np.asarray(estimator._baseline_prediction, dtype=np.float64).reshape(-1)
    trees = [
        _histogram_nodes(predictor.nodes, k, len(start))
        for stage in estimator._predictors
        for k, predictor in enumerate(stage)
    ]
    return trees, start


def _histogram_nodes(nodes: Any, output: int, outputs: int) -> Tree:
    leaf = nodes["is_leaf"].astype(bool)
    return Tree.of_nodes(
        np.where(leaf, -1, nodes["feature_idx"]).astype(np.int64),
        nodes["num_threshold"].astype(np.float64),
        np.where(leaf, -1, nodes["left"].astype(np.int64)),
        np.where(leaf, -1, nodes["right"].astype(np.int64)),
        placed(nodes["value"].astype(np.float64), output, outputs),
        nodes["missing_go_to_left"].astype(bool),
    )


def isolation_forest(estimator: Any) -> tuple[list[Tree], float]:
    """Returns trees whose leaves hold path lengths, and the divisor d of score = -2^(-sum / d), which is -1/2 where no path has a length."""
    from sklearn.ensemble._iforest import _average_path_length

    trees = []
    members = zip(estimator.estimators_, estimator.estimators_features_, strict=True)
    for i, (member, features) in enumerate(members):
        length = estimator._decision_path_lengths[i] + estimator._average_path_length_per_tree[i] - 1.0
        trees.append(tree_nodes(member, np.asarray(length, dtype=np.float64)[:, None], features))
    divisor = len(trees) * float(_average_path_length(np.array([estimator._max_samples]))[0])
    if divisor == 0:  # of one sample each
        return [replace(tree, values=np.ones_like(tree.values)) for tree in trees], float(len(trees))
    return trees, divisor
