"""Models of tables from ONNX-ML files, as skl2onnx, onnxmltools and others write them.

A chain of Imputer, Scaler, Normalizer and Cast ends in one model node; what comes after it (ZipMap, casts of labels) only renames results. The
chain becomes the client's steps, the node a TreeEnsemble (TreeEnsembleClassifier, TreeEnsembleRegressor, TreeEnsemble) or a LinearModel
(LinearClassifier, LinearRegressor).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.client_steps import Columns, Impute, InputStep, Normalise, Standardise
from cloakwork.models.compiler import CompiledModel
from cloakwork.models.errors import CompileError, Problem, UnsupportedNode, unsupported
from cloakwork.models.ir import Reals
from cloakwork.models.onnx_import.importer import TABLE_OPERATORS, load_onnx
from cloakwork.models.tabular.compile_ensemble import compile_ensemble
from cloakwork.models.tabular.ensemble import TreeEnsemble
from cloakwork.models.tabular.linear_compiler import compile_linear
from cloakwork.models.tabular.linear_model import LinearModel
from cloakwork.models.tabular.onnx_trees import tree_ensemble, tree_ensemble_5

Attributes = dict[str, Any]

_AFTER: Final = ("Cast", "Identity", "Reshape", "ZipMap")
_POST_TRANSFORMS: Final = {"NONE": "none", "LOGISTIC": "sigmoid", "SOFTMAX": "softmax"}
_NORMS: Final = {"MAX": "max", "L1": "l1", "L2": "l2"}


def compile_onnx_ml(model: onnx.ModelProto | str | Path, calibration: Any = None, **options: Any) -> CompiledModel:
    """Args: calibration: samples, needed by linear models; options: those of `compile_ensemble` or `compile_linear`."""
    steps, found = import_onnx_ml(load_onnx(model))
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
    nodes = [node for node in model.graph.node if node.op_type in TABLE_OPERATORS]
    if len(nodes) != 1:
        raise CompileError(f"model: expected one node of {', '.join(TABLE_OPERATORS)}, got {len(nodes)}")
    before, problems = _chain(model, nodes[0])
    single = _single(model)
    steps: list[InputStep] = []
    for node in before:
        try:
            steps += _input_steps(node)
        except UnsupportedNode as error:
            problems.append(Problem(node.name, node.op_type, str(error)))
    found: TreeEnsemble | LinearModel | None = None
    try:
        found = _READERS[nodes[0].op_type](attributes(nodes[0]), single, _feature_count(model))
    except UnsupportedNode as error:
        problems.append(Problem(nodes[0].name, nodes[0].op_type, str(error)))
    if problems or found is None:
        raise unsupported(problems)
    missing = any(isinstance(step, Impute) for step in steps) or getattr(found, "takes_missing", False)
    return (Columns(found.features, None, missing), *steps), found


def attributes(node: onnx.NodeProto) -> Attributes:
    """By name; texts decoded, tensors as arrays."""
    result: Attributes = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            value = onnx.numpy_helper.to_array(value)
        elif isinstance(value, bytes):
            value = value.decode()
        elif attribute.type == onnx.AttributeProto.STRINGS:
            value = [text.decode() for text in value]
        result[attribute.name] = value
    return result


# --- around the model node ------------------------------------------------------------------------------------------------------


def _chain(model: onnx.ModelProto, last: onnx.NodeProto) -> tuple[list[onnx.NodeProto], list[Problem]]:
    """The nodes from the input to the model node, and a problem for each that is neither before nor a known one after."""
    producer = {name: node for node in model.graph.node for name in node.output}
    before: list[onnx.NodeProto] = []
    name = last.input[0]
    while name in producer:
        before.insert(0, producer[name])
        name = producer[name].input[0]
    on_chain = {id(node) for node in (*before, last)}
    problems = [
        Problem(node.name, node.op_type, f"not one of {', '.join(_AFTER)} after the model")
        for node in model.graph.node
        if id(node) not in on_chain and node.op_type not in _AFTER
    ]
    return before, problems


def _single(model: onnx.ModelProto) -> bool:
    """Whether features are float32, as ONNX Runtime then compares them."""
    return bool(model.graph.input[0].type.tensor_type.elem_type != onnx.TensorProto.DOUBLE)


def _feature_count(model: onnx.ModelProto) -> int:
    extents = [extent.dim_value for extent in model.graph.input[0].type.tensor_type.shape.dim]
    if len(model.graph.input) != 1 or len(extents) != 2 or extents[1] < 1:
        raise CompileError(
            f"model: expected one input of shape [samples, features], got {len(model.graph.input)} inputs, the first of shape {extents}; "
            "convert the model with a fixed number of columns"
        )
    return int(extents[1])


def _input_steps(node: onnx.NodeProto) -> list[InputStep]:
    own = attributes(node)
    if node.op_type in ("Cast", "Identity"):
        return []
    if node.op_type == "Scaler":
        return [Standardise(_reals(own["offset"]), _reals(own["scale"]))]
    if node.op_type == "Imputer":
        if not np.isnan(own.get("replaced_value_float", 0.0)):
            raise UnsupportedNode("replaces a number; only missing values (NaN) can be replaced")
        return [Impute(_reals(own["imputed_value_floats"]))]
    if node.op_type == "Normalizer":
        return [Normalise(_NORMS[own.get("norm", "MAX")])]
    raise UnsupportedNode("the client has no such step; do it before, on the table itself")


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
    "TreeEnsemble": tree_ensemble_5,
    "TreeEnsembleClassifier": _trees(classifier=True),
    "TreeEnsembleRegressor": _trees(classifier=False),
}
