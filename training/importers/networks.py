"""MLPClassifier and MLPRegressor as ONNX graphs: Gemm and activation layers, then what the client does with the last one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.training.importers.nodes import unsupported_option

_ACTIVATIONS: Final = {"relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid"}
# What follows the last layer, by the names of models/client_steps/transforms.py.
OUTPUTS: Final = {"identity": "none", "logistic": "sigmoid", "softmax": "softmax", "exp": "exp"}
_OPSET: Final = 17
_IR_VERSION: Final = 8


def import_network(estimator: Any) -> onnx.ModelProto:
    """Returns the logits (classifiers) or values (regressors) of a fitted multilayer perceptron, `x` [batch, features] to `y` [batch, outputs]."""
    if estimator.activation not in (*_ACTIVATIONS, "identity"):
        raise UnsupportedOperatorError(
            f"{type(estimator).__name__}: expected one of the activations {', '.join(_ACTIVATIONS)}, identity, got '{estimator.activation}'"
        )
    if estimator.out_activation_ not in OUTPUTS:
        raise unsupported_option(
            estimator, "out_activation_", estimator.out_activation_, f"expected one of {', '.join(OUTPUTS)}"
        )
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    name, last = "x", len(estimator.coefs_) - 1
    for i, (weights, bias) in enumerate(zip(estimator.coefs_, estimator.intercepts_, strict=True)):
        for label, array in ((f"weights{i}", weights), (f"bias{i}", bias)):
            constants.append(numpy_helper.from_array(np.asarray(array, dtype=np.float32), label))
        out = "y" if i == last else f"sum{i}"
        nodes.append(helper.make_node("Gemm", [name, f"weights{i}", f"bias{i}"], [out], name=f"layer {i}"))
        name = out
        if i < last and estimator.activation != "identity":
            name = f"activation{i}"
            operator = _ACTIVATIONS[estimator.activation]
            nodes.append(helper.make_node(operator, [out], [name], name=f"layer {i} {estimator.activation}"))
    graph = helper.make_graph(
        nodes,
        type(estimator).__name__,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", int(estimator.n_features_in_)])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", len(estimator.intercepts_[-1])])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
