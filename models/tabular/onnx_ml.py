"""Models of tables from ONNX-ML files, as skl2onnx, onnxmltools and others write them.

What prepares the columns (onnx_columns.py) ends in one model node; what comes after it (ZipMap, casts of labels) only renames results. The
preparation becomes the client's steps, the node a TreeEnsemble (TreeEnsembleClassifier, TreeEnsembleRegressor, TreeEnsemble) or a LinearModel
(LinearClassifier, LinearRegressor, SVMClassifier and SVMRegressor with a linear kernel).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.client_steps import Categories, Columns, InputStep
from cloakwork.models.compiler import CompiledModel
from cloakwork.models.errors import CompileError, Problem, UnsupportedNode, unsupported
from cloakwork.models.ir import Reals
from cloakwork.models.onnx_import.graph_order import ordered_nodes
from cloakwork.models.onnx_import.importer import TABLE_OPERATORS, load_onnx
from cloakwork.models.tabular.compile_ensemble import compile_ensemble
from cloakwork.models.tabular.ensemble import TreeEnsemble
from cloakwork.models.tabular.linear_compiler import compile_linear
from cloakwork.models.tabular.linear_model import LinearModel
from cloakwork.models.tabular.onnx_attributes import Attributes, attributes
from cloakwork.models.tabular.onnx_columns import read_columns
from cloakwork.models.tabular.onnx_trees import tree_ensemble, tree_ensemble_5

_AFTER: Final = ("ArrayFeatureExtractor", "Cast", "Identity", "Normalizer", "Reshape", "ZipMap")
_POST_TRANSFORMS: Final = {"NONE": "none", "LOGISTIC": "sigmoid", "SOFTMAX": "softmax"}


def compile_onnx_ml(model: onnx.ModelProto | str | Path, calibration: Any = None, **options: Any) -> CompiledModel:
    """Args: calibration: samples, needed by linear models; options: those of `compile_ensemble` or `compile_linear`."""
    try:
        steps, found = import_onnx_ml(load_onnx(model))
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError, ArithmeticError) as error:
        line = " ".join(str(error).split())[:200]
        raise CompileError(
            f"model: its tables are not valid ONNX-ML ({type(error).__name__}: {line}); export it again"
        ) from error
    if isinstance(found, TreeEnsemble):
        return compile_ensemble(found, preprocessing=steps, **options)
    if calibration is None:
        raise CompileError("linear model: expected calibration samples, which set the range of every feature")
    return compile_linear(found, calibration, preprocessing=steps, **options)


def import_onnx_ml(model: onnx.ModelProto) -> tuple[tuple[InputStep, ...], TreeEnsemble | LinearModel]:
    """The client's steps before the model, the first one checking the columns, and the model.

    Raises:
        UnsupportedOperatorError: names every node that is not part of such a chain.
    """
    ordered = ordered_nodes(model.graph)
    nodes = [node for node in ordered if node.op_type in TABLE_OPERATORS]
    if len(nodes) != 1:
        raise CompileError(f"model: expected one node of {', '.join(TABLE_OPERATORS)}, got {len(nodes)}")
    tensors, before, problems = read_columns(model.graph, ordered, nodes[0].input[0])
    problems += _after(model, nodes[0], before)
    recipe = tensors.recipes.get(nodes[0].input[0])
    steps: tuple[InputStep, ...] = ()
    found: TreeEnsemble | LinearModel | None = None
    try:
        if recipe is not None:
            steps = tensors.flow.finish(recipe)
        found = _READERS[nodes[0].op_type](attributes(nodes[0]), _single(model), len(recipe or tensors.types))
    except UnsupportedNode as error:
        problems.append(Problem(nodes[0].name, nodes[0].op_type, str(error)))
    except ValueError:
        if recipe is not None:  # else another number of columns, which follows from what is reported
            raise
    if problems or found is None:
        raise unsupported(problems)
    first = steps[0]
    assert isinstance(first, Columns | Categories)
    if isinstance(found, TreeEnsemble) and found.takes_missing:
        steps = (replace(first, missing=True), *steps[1:])
    return steps, found


# --- around the model node ------------------------------------------------------------------------------------------------------


def _after(model: onnx.ModelProto, last: onnx.NodeProto, before: set[str]) -> list[Problem]:
    """A problem for each node that is neither before the model nor a known one after it."""
    return [
        Problem(node.name, node.op_type, f"not one of {', '.join(_AFTER)} after the model")
        for node in model.graph.node
        if node.output[0] not in before and node.output[0] != last.output[0] and not _only_renames(node, last)
    ]


def _only_renames(node: onnx.NodeProto, last: onnx.NodeProto) -> bool:
    """Casts, choices and dictionaries of results; shares of classes add up to 1 already."""
    if node.op_type == "Normalizer":
        return "Classifier" in last.op_type and attributes(node).get("norm") == "L1"
    return node.op_type in _AFTER


def _single(model: onnx.ModelProto) -> bool:
    """Whether features are float32, as ONNX Runtime then compares them."""
    return bool(model.graph.input[0].type.tensor_type.elem_type != onnx.TensorProto.DOUBLE)


# --- model nodes ------------------------------------------------------------------------------------------------------------------


def _linear_regressor(own: Attributes, single: bool, features: int) -> LinearModel:
    outputs = int(own.get("targets", 1))
    return LinearModel(
        _reals(own["coefficients"]).reshape(outputs, features),
        _reals(own.get("intercepts", np.zeros(outputs))),
        post_transform(own),
    )


def _linear_classifier(own: Attributes, single: bool, features: int) -> LinearModel:
    labels = class_labels(own)
    coefficients = _reals(own["coefficients"]).reshape(-1, features)
    intercept = _reals(own.get("intercepts", np.zeros(len(coefficients))))
    if len(labels) == 2 and len(coefficients) == 2 and post_transform(own) != "softmax":
        if not np.allclose(coefficients[0], -coefficients[1]) or not np.allclose(intercept[0], -intercept[1]):
            raise UnsupportedNode("two classes with unrelated scores")
        coefficients, intercept = coefficients[1:], intercept[1:]  # skl2onnx writes [-w, w]
    name = post_transform(own)
    return LinearModel(coefficients, intercept, "decision" if name == "none" else name, labels=labels)


def _svm_weights(own: Attributes, features: int) -> tuple[Reals, Reals]:
    """sum_i coefficient_i (sv_i . x) + rho of a linear kernel is one row of weights."""
    if own.get("kernel_type", "LINEAR") != "LINEAR":
        raise UnsupportedNode(f"kernel {own['kernel_type']}; only the linear one can run on encrypted data")
    if own.get("prob_a") or own.get("one_class") or own.get("post_transform", "NONE") != "NONE":
        raise UnsupportedNode("probabilities or one class; fit with probability=False, for decision values")
    vectors = own.get("support_vectors")
    if not vectors or len(own.get("rho", [])) != 1:
        raise UnsupportedNode("of more than two classes votes for pairs of them; use LinearSVC, which compares scores")
    weights = _reals(own["coefficients"]) @ _reals(vectors).reshape(-1, features)
    return weights[None], _reals(own["rho"])


def _svm_regressor(own: Attributes, single: bool, features: int) -> LinearModel:
    return LinearModel(*_svm_weights(own, features))


def _svm_classifier(own: Attributes, single: bool, features: int) -> LinearModel:
    labels = class_labels(own)
    weights, rho = _svm_weights(own, features)
    return LinearModel(-weights, -rho, "decision", labels=labels)  # positive for the first class


def class_labels(own: Attributes) -> NDArray[Any]:
    texts = own.get("classlabels_strings")
    numbers = own.get("classlabels_int64s", own.get("classlabels_ints"))
    if not texts and not numbers:
        raise UnsupportedNode("names no classes")
    return np.asarray(texts or numbers)


def post_transform(own: Attributes) -> str:
    name = own.get("post_transform", "NONE")
    if name not in _POST_TRANSFORMS:
        raise UnsupportedNode(f"post_transform {name}; expected one of {', '.join(_POST_TRANSFORMS)}")
    return _POST_TRANSFORMS[name]


def _reals(values: Any) -> Reals:
    return np.asarray(values, dtype=np.float64)


def _trees(classifier: bool) -> Callable[[Attributes, bool, int], TreeEnsemble]:
    def read(own: Attributes, single: bool, features: int) -> TreeEnsemble:
        labels = class_labels(own) if classifier else None
        return tree_ensemble(own, single, features, post_transform(own), labels)

    return read


_READERS: Final[dict[str, Callable[[Attributes, bool, int], TreeEnsemble | LinearModel]]] = {
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "TreeEnsemble": tree_ensemble_5,
    "TreeEnsembleClassifier": _trees(classifier=True),
    "TreeEnsembleRegressor": _trees(classifier=False),
}
