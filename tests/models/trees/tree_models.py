"""Neutral ensembles for tests: of fitted scikit-learn trees, and random ones."""

from __future__ import annotations

import numpy as np

from cloakwork.models.trees.ensemble import Tree, TreeEnsemble


def of_sklearn_forest(model, **options):
    """A fitted forest or a single decision tree of one output."""
    members = getattr(model, "estimators_", [model])
    trees = []
    for member in members:
        inner = member.tree_
        values = inner.value[:, 0, :]
        if hasattr(model, "classes_"):
            values = values / values.sum(axis=1, keepdims=True)
        trees.append(Tree.of_nodes(inner.feature, inner.threshold, inner.children_left, inner.children_right, values))
    labels = getattr(model, "classes_", None)
    return TreeEnsemble(tuple(trees), model.n_features_in_, "mean", single=True, labels=labels, **options)


def random_tree(random, features, depth, outputs, levels, values=None, missing=False):
    """Thresholds are from a grid of `levels` values, so that ties are frequent."""
    rows = []

    def visit(left_over):
        number = len(rows)
        rows.append(None)
        if left_over == 0 or random.random() < 0.2:
            leaf = random.integers(0, values, outputs) if values else random.normal(size=outputs)
            rows[number] = (0, 0.0, -1, -1, leaf, False)
            return number
        feature, threshold = int(random.integers(features)), float(random.integers(levels))
        left = visit(left_over - 1)
        right = visit(left_over - 1)
        rows[number] = (feature, threshold, left, right, np.zeros(outputs), bool(random.integers(2)))
        return number

    visit(depth)
    feature, threshold, left, right, leaves, direction = zip(*rows, strict=True)
    return Tree.of_nodes(feature, threshold, left, right, np.stack(leaves), direction if missing else None)
