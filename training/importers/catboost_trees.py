"""CatBoost's own JSON: trees on float32 features that go right where x > border, and what `predict` makes of their sums."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.client_steps import Indicators, LabelGroups, Labels, Members, OutputStep, Transform
from cloakwork.models.client_steps.transforms import log_odds, plain_labels
from cloakwork.models.trees.ensemble import LEAF, Tree
from cloakwork.training.importers.nodes import unsupported_option


def catboost_trees(estimator: Any) -> tuple[list[Tree], NDArray[np.float64]]:
    """Returns trees, and the start [outputs]."""
    model = _as_json(estimator)
    others = sorted(set(model["features_info"]) - {"float_features"})
    if others:
        raise unsupported_option(estimator, "features", others, "encode categories and texts as numbers or columns")
    scale, bias = model["scale_and_bias"]
    columns = [int(feature["flat_feature_index"]) for feature in model["features_info"]["float_features"]]
    right = [feature["nan_value_treatment"] == "AsTrue" for feature in model["features_info"]["float_features"]]
    trees = [
        _tree(_levels(tree) if "splits" in tree else tree, columns, right, float(scale), len(bias))
        for tree in model.get("oblivious_trees") or model["trees"]
    ]
    return trees, np.asarray(bias, dtype=np.float64)


def _as_json(estimator: Any) -> dict[str, Any]:
    with TemporaryDirectory(prefix="cloakwork-") as folder:
        path = Path(folder) / "model.json"
        try:
            estimator.save_model(str(path), format="json")
        except Exception as error:  # its own class, which is not imported here
            remedy = "use numeric features and its own losses"
            raise unsupported_option(estimator, "model", str(error)[:200], remedy) from error
        model: dict[str, Any] = json.loads(path.read_text())
    return model


def _levels(tree: dict[str, Any]) -> dict[str, Any]:
    """Returns an oblivious tree as one of nodes: bit i of a leaf's number says whether x is above the border of split i."""
    splits = tree["splits"] or []
    values = np.asarray(tree["leaf_values"], dtype=np.float64).reshape(1 << len(splits), -1)
    nodes: list[dict[str, Any]] = [{"value": value} for value in values]
    for split in reversed(splits):  # the last one has the highest bit
        half = len(nodes) // 2
        nodes = [{"split": split, "left": nodes[i], "right": nodes[i + half]} for i in range(half)]
    return nodes[0]


def _tree(root: dict[str, Any], columns: list[int], right: list[bool], scale: float, outputs: int) -> Tree:
    """Args: columns, right: of each float feature, and whether missing values count as above every border."""
    rows: list[tuple[int, float, int, int, Any, bool]] = []

    def visit(node: dict[str, Any]) -> int:
        number = len(rows)
        rows.append((0, 0.0, LEAF, LEAF, np.zeros(outputs), False))
        if "value" in node:
            rows[number] = (0, 0.0, LEAF, LEAF, scale * np.reshape(node["value"], outputs), False)
            return number
        split = node["split"]
        feature = int(split["float_feature_index"])
        left, above = visit(node["left"]), visit(node["right"])
        border = float(np.float32(split["border"]))
        rows[number] = (columns[feature], border, left, above, np.zeros(outputs), not right[feature])
        return number

    visit(root)
    feature, border, left, above, values, missing = zip(*rows, strict=True)
    return Tree.of_nodes(feature, border, left, above, np.stack(values), missing)


# --- what follows the sums ---------------------------------------------------------------------------------------------------------


def regression_answer(estimator: Any) -> tuple[str, tuple[OutputStep, ...] | None]:
    """Returns the transform of `predict`, or the steps that say more than one: the mean and the variance of RMSEWithUncertainty."""
    kind = estimator._get_default_prediction_type()  # which does not follow from the loss of a model that was loaded
    if kind == "RMSEWithUncertainty":
        each = np.ones(2, dtype=np.int64)
        return "none", (Members(each, ("none", "exp"), np.ones(2), False), Transform("none"))
    kinds = {"Exponent": "exp", "RawFormulaVal": "none"}
    if kind not in kinds:
        raise unsupported_option(estimator, "prediction type", kind, f"expected one of {', '.join(kinds)}")
    return kinds[kind], None


def classification_answer(estimator: Any) -> dict[str, Any]:
    """Returns transform, labels and steps of a TreeEnsemble. The label of several classes is a column, as CatBoost has it."""
    loss = str(estimator.get_all_params().get("loss_function", "")).partition(":")[0]
    labels = plain_labels(estimator.classes_)
    groups = LabelGroups(labels, np.array([len(labels)]))
    if loss in ("Logloss", "CrossEntropy", "Focal"):
        threshold = log_odds(float(estimator.get_probability_threshold() or 0.0))
        if threshold == 0:
            return {"transform": "sigmoid", "labels": labels}
        return {"after": (Transform("sigmoid", 1.0, True), Labels(labels, threshold))}
    if loss == "MultiClass":
        after: tuple[OutputStep, ...] = (Transform("softmax", 1.0, True), groups)
        return {"transform": "softmax", "labels": labels, "after": after}
    if loss == "MultiClassOneVsAll":  # probabilities that do not add up to 1
        return {"transform": "decision", "labels": labels, "after": (Transform("sigmoid"), groups)}
    if loss in ("MultiLogloss", "MultiCrossEntropy"):
        return {"after": (Transform("sigmoid"), Indicators())}
    raise unsupported_option(estimator, "loss_function", loss, "use one of CatBoost's own losses of classes")
