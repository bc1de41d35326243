"""From an ONNX model (opset 11 or newer) to a graph of Input, Linear and Lookup nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper
from onnx.checker import ValidationError
from onnx.reference import ReferenceEvaluator

from cloakwork.models.errors import CompileError, Problem, UnsupportedNode, unsupported
from cloakwork.models.ir import Graph, check
from cloakwork.models.onnx_import import (  # noqa: F401 (they register their operators)
    elementwise,
    linear,
    logic,
    pooling,
    quantised,
    reductions,
    shape,
)
from cloakwork.models.onnx_import.client_side import CLIENT_OPERATORS, client_step
from cloakwork.models.onnx_import.context import Context, Encrypted, OnnxNode, Value
from cloakwork.models.onnx_import.nearest import nearest
from cloakwork.models.onnx_import.registry import OPERATORS, registered_name

MINIMUM_OPSET = 11
TABLE_OPERATORS: Final = (
    "LinearClassifier",
    "LinearRegressor",
    "SVMClassifier",
    "SVMRegressor",
    "TreeEnsemble",
    "TreeEnsembleClassifier",
    "TreeEnsembleRegressor",
)


def import_onnx(model: onnx.ModelProto | str | Path, *, pools_first: bool = True) -> Graph:
    """Reads a model with one input and one output whose first dimension is the batch.

    Args:
        pools_first: max-pools before the monotone functions that they follow: fewer look-ups, on values with more bits.

    Raises:
        UnsupportedOperatorError: names every node that cannot be imported, with the reason.
        CompileError: not an ONNX file, an opset below 11, several inputs or outputs, dimensions that are not known.
    """
    proto = load_onnx(model)
    opset = _opset(proto)
    context = Context(pools_first=pools_first)
    values: dict[str, Value] = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    name, extents = _input(proto, values)
    context.origin = name
    values[name] = context.input(extents)
    if len(proto.graph.output) != 1:
        raise CompileError(f"model: expected one output, got {len(proto.graph.output)}; export the one that is wanted")
    _import_nodes(proto, opset, context, values)
    result = values[proto.graph.output[0].name]
    if not isinstance(result, Encrypted):
        raise CompileError("model: the output does not depend on the input; there is nothing to encrypt")
    if result.wires.ndim == 0 or result.wires.shape[0] != 1:
        raise CompileError(
            f"model: expected an output whose first dimension is the batch, got shape {list(result.wires.shape)}; keep the batch first"
        )
    return check(Graph(tuple(context.nodes), result.wires[0], result.client_steps))


def is_table_model(model: onnx.ModelProto) -> bool:
    """Whether a tree or linear operator of ONNX-ML makes its result: models/tabular/onnx_ml.py reads it."""
    return any(node.op_type in TABLE_OPERATORS and node.domain == "ai.onnx.ml" for node in model.graph.node)


def load_onnx(model: onnx.ModelProto | str | Path) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    path = Path(model)
    try:
        return onnx.load(str(path))
    except (DecodeError, UnicodeDecodeError, ValidationError) as error:
        raise CompileError(
            f"model: expected an ONNX file, but {path} is another kind of file or damaged ({error})"
        ) from error


def _import_nodes(proto: onnx.ModelProto, opset: int, context: Context, values: dict[str, Value]) -> None:
    problems: list[Problem] = []
    for node in proto.graph.node:
        if any(name and name not in values for name in node.input):
            continue  # follows from a node that is reported
        label = node.name or next(iter(node.output))
        context.origin = label
        inputs = tuple(values[name] if name else None for name in node.input)
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        attributes["output_count"] = len(node.output)
        view = OnnxNode(label, node.op_type, inputs, attributes, opset)
        try:
            results = _import_node(proto, node, view, context)
        except UnsupportedNode as error:
            problems.append(Problem(label, node.op_type, str(error)))
            continue
        except (ValueError, IndexError, KeyError) as error:
            problems.append(Problem(label, node.op_type, f"is not valid ONNX of opset {opset} ({error})"))
            continue
        values.update((name, result) for name, result in zip(node.output, results, strict=False) if name)
    if problems:
        raise unsupported(problems)


def _import_node(proto: onnx.ModelProto, node: onnx.NodeProto, view: OnnxNode, context: Context) -> Sequence[Value]:
    encrypted = [value for value in view.inputs if isinstance(value, Encrypted)]
    if not encrypted:
        return _fold_constant(proto, node, view)
    if view.operator in CLIENT_OPERATORS:
        return client_step(view)
    if any(value.client_steps for value in encrypted):
        done = encrypted[0].client_steps[-1].operator
        raise UnsupportedNode(
            f"comes after {done}, which the client evaluates; only final ones are supported, remove it"
        )
    name = registered_name(node)
    if name not in OPERATORS:
        if node.domain not in ("", "ai.onnx"):
            raise UnsupportedNode(f"belongs to the domain '{node.domain}'; export with standard operators")
        raise UnsupportedNode(f"is not supported on encrypted data; {nearest(view.operator)}")
    result = OPERATORS[name].function(context, view)
    return [result] if isinstance(result, Encrypted | np.ndarray) else result


def _fold_constant(proto: onnx.ModelProto, node: onnx.NodeProto, view: OnnxNode) -> list[Any]:
    """Nodes of constants alone are computed at import, by onnx's own reference."""
    feeds = {name: value for name, value in zip(node.input, view.inputs, strict=True) if name}
    standard = onnx.NodeProto.FromString(node.SerializeToString())
    standard.domain = ""  # quantisers of ONNX Runtime's domain mean the same
    try:
        evaluator = ReferenceEvaluator(standard, opsets={o.domain: o.version for o in proto.opset_import})
        return [np.asarray(result) for result in evaluator.run(None, feeds)]
    except Exception as error:
        raise UnsupportedNode(f"could not be computed from its constants: {error}") from error


def _opset(proto: onnx.ModelProto) -> int:
    versions = [o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")]
    version = max(versions, default=0)
    if version < MINIMUM_OPSET:
        raise CompileError(
            f"model: expected opset {MINIMUM_OPSET} or newer, got {version}; convert it with onnx.version_converter"
        )
    return int(version)


def _input(proto: onnx.ModelProto, values: dict[str, Value]) -> tuple[str, list[int]]:
    """Name and shape of the one input that is no initializer; the batch becomes 1."""
    inputs = [value for value in proto.graph.input if value.name not in values]
    if len(inputs) != 1:
        raise CompileError(
            f"model: expected one input, got {[value.name for value in inputs]}; make the others constants"
        )
    dims = inputs[0].type.tensor_type.shape.dim
    extents = [int(dim.dim_value) for dim in dims]
    if not extents or min(extents[1:], default=1) < 1:
        raise CompileError(
            f"model: expected an input [batch, ..] of known shape, got {extents} for '{inputs[0].name}'; fix every dimension but the first"
        )
    if extents[0] > 1:
        raise CompileError(
            f"model: was exported for batches of {extents[0]}; export with a batch of 1 or a dynamic one"
        )
    return inputs[0].name, [1, *extents[1:]]
