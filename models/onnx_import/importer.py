"""The importer of ONNX models (opset 11 or newer): a graph of Input, Linear and Lookup nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from google.protobuf.json_format import ParseError as JsonError
from google.protobuf.message import DecodeError
from google.protobuf.text_format import ParseError as TextError
from onnx.checker import ValidationError

from cloakwork.models.errors import CompileError, Problem, UnsupportedNode, unsupported
from cloakwork.models.graph.ir import Graph, NamedTensor, check
from cloakwork.models.onnx_import import (  # noqa: F401 (they register their operators)
    elementwise,
    linear,
    normalisation,
    pooling,
    quant_nodes,
    quantised,
    recurrent,
    reductions,
    resize,
    shape,
    windows,
)
from cloakwork.models.onnx_import.context import (
    OPERATORS,
    Context,
    Encrypted,
    OnnxNode,
    Rounding,
    Value,
    registered_name,
)
from cloakwork.models.onnx_import.ends import (
    CLIENT_OPERATORS,
    chosen_outputs,
    client_step,
    given_inputs,
    outputs_of,
    read_inputs,
)
from cloakwork.models.onnx_import.faults import UNFORESEEN, failed_file, failed_nodes
from cloakwork.models.onnx_import.graph_order import (
    constants_of,
    fold_constant,
    needed_for,
    ordered_nodes,
    read_by_layers,
)
from cloakwork.models.onnx_import.integer_kernels import with_integer_biases, with_kernels
from cloakwork.models.onnx_import.normalisation import with_unit_lengths
from cloakwork.models.onnx_import.quant_nodes import with_moved_quantisers
from cloakwork.models.onnx_import.reductions import evaluated
from cloakwork.models.onnx_import.resize import nearest

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


def import_onnx(
    model: onnx.ModelProto | str | Path,
    *,
    pools_first: bool = True,
    outputs: Sequence[str] | None = None,
    rounding: Rounding = "real",
) -> Graph:
    """Reads a model whose inputs and outputs all have the batch as their first dimension.

    Args:
        pools_first: max-pools before the monotone functions that they follow: fewer look-ups, on values with more bits.
        outputs: names of those that are wanted; None: all. Nodes that only the others need are left out.
        rounding: of quantised models: "real" as their real numbers round, "onnxruntime" as its integer kernels do.

    Raises:
        UnsupportedOperatorError: names every node that cannot be imported, with the reason.
        CompileError: not an ONNX file, an opset below 11, dimensions that are not known, nodes in a circle, names that nothing makes or that
            come twice, constants that are damaged.
        ImportFaultError: valid ONNX at which this importer failed.
    """
    proto = load_onnx(model)
    try:
        return _imported(proto, pools_first, outputs, rounding)
    except UNFORESEEN as error:
        raise failed_file(proto, error) from error


def _imported(proto: onnx.ModelProto, pools_first: bool, outputs: Sequence[str] | None, rounding: Rounding) -> Graph:
    opset = _opset(proto)
    context = Context(pools_first=pools_first, rounding=rounding)
    values: dict[str, Value] = dict(constants_of(proto.graph))
    given = given_inputs(proto.graph, values)
    names = chosen_outputs(proto.graph, outputs)
    nodes = ordered_nodes(proto.graph)
    nodes = with_unit_lengths(nodes, constants_of(proto.graph), names)
    if rounding == "onnxruntime":
        nodes = _as_onnx_runtime(proto, nodes, opset, context, values, names)
    needed, used = needed_for(nodes, names)
    inputs, unused = read_inputs(given, used, context, values)
    _import_nodes(proto, nodes if outputs is None else needed, opset, context, values)
    results = outputs_of(names, values)
    if len(results) == 1:
        graph = Graph(tuple(context.nodes), results[0].wires[0], results[0].client_steps)
    else:
        inner = read_by_layers(needed)
        parts = [
            NamedTensor(name, r.wires.shape[1:], r.client_steps, name in inner)
            for name, r in zip(names, results, strict=True)
        ]
        graph = Graph(
            tuple(context.nodes), np.concatenate([r.wires.reshape(-1) for r in results]), outputs=tuple(parts)
        )
    return check(replace(graph, inputs=inputs, unused=unused))


def is_table_model(model: onnx.ModelProto) -> bool:
    """Whether it has operators of ONNX-ML, trees and linear models or what comes before and after a model: models/onnx_ml/ reads it."""
    return any(node.domain == "ai.onnx.ml" for node in model.graph.node)


def load_onnx(model: onnx.ModelProto | str | Path | bytes) -> onnx.ModelProto:
    """Returns the model of a proto, a path or the bytes of a file. CompileError: no ONNX model."""
    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, bytes):
        try:
            return onnx.load_from_string(model)
        except (DecodeError, UnicodeDecodeError, ValidationError) as error:
            raise CompileError(f"model: expected the bytes of an ONNX file, got others ({error})") from error
    path = Path(model)
    try:
        return onnx.load(str(path))
    except (DecodeError, JsonError, TextError, UnicodeDecodeError, ValidationError) as error:
        raise CompileError(
            f"model: expected an ONNX file, but {path} is another kind of file or damaged ({error})"
        ) from error


def _as_onnx_runtime(
    proto: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    opset: int,
    context: Context,
    values: dict[str, Value],
    outputs: Sequence[str],
) -> list[onnx.NodeProto]:
    """Returns what remains when ONNX Runtime has folded constants (into `values`), moved quantisers, made biases integers and put kernels for
    groups."""
    constants = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    remaining = []
    for node in nodes:
        try:
            known = node.op_type != "DequantizeLinear" and all(name in constants for name in node.input if name)
            results = _results(proto, node, node.name, opset, context, values) if known else None
        except (UnsupportedNode, MemoryError, *UNFORESEEN):
            results = None  # the importer says why
        if results is None or not all(isinstance(result, np.ndarray) for result in results):
            remaining.append(node)
            continue
        folded = {name: result for name, result in zip(node.output, results, strict=False) if name}
        values.update(folded)
        constants.update((name, result) for name, result in folded.items() if isinstance(result, np.ndarray))
    remaining = with_moved_quantisers(remaining, constants, outputs)
    remaining, biases = with_integer_biases(remaining, constants)
    values.update(biases)
    return with_kernels(remaining, constants | biases, outputs)


def _import_nodes(
    proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], opset: int, context: Context, values: dict[str, Value]
) -> None:
    problems: list[Problem] = []
    failures: list[tuple[str, str, Exception]] = []
    failed: set[str] = set()  # names that a reported node would make, or follow from one
    for node in nodes:
        label = node.name or next(filter(None, node.output))
        if any(name in failed for name in node.input):
            failed.update(node.output)
            continue
        try:
            results = _results(proto, node, label, opset, context, values)
        except UnsupportedNode as error:
            problems.append(Problem(label, node.op_type, " ".join(str(error).split())))
            failed.update(node.output)
            continue
        except MemoryError:
            problems.append(Problem(label, node.op_type, "needs more memory than this machine has"))
            failed.update(node.output)
            continue
        except UNFORESEEN as error:
            failures.append((label, node.op_type, error))
            failed.update(node.output)
            continue
        values.update((name, result) for name, result in zip(node.output, results, strict=False) if name)
    if failures:
        raise failed_nodes(proto, opset, failures, problems) from failures[0][2]
    if problems:
        raise unsupported(problems)


def _results(
    proto: onnx.ModelProto, node: onnx.NodeProto, label: str, opset: int, context: Context, values: dict[str, Value]
) -> Sequence[Value]:
    absent = [name for name in node.input if name and name not in values]
    if absent:
        raise UnsupportedNode(f"reads '{absent[0]}', a second result that is not supported; leave it out")
    context.origin = label
    inputs = tuple(values[name] if name else None for name in node.input)
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    attributes["output_count"] = len(node.output)
    results = _import_node(proto, node, OnnxNode(label, node.op_type, inputs, attributes, opset), context)
    for result in results:
        if isinstance(result, Encrypted):
            context.take(result.wires.size)
    return results


def _import_node(proto: onnx.ModelProto, node: onnx.NodeProto, view: OnnxNode, context: Context) -> Sequence[Value]:
    encrypted = [value for value in view.inputs if isinstance(value, Encrypted)]
    if not encrypted and registered_name(node) in quant_nodes.QUANTISERS:
        return quant_nodes.of_constants(view)
    if not encrypted:
        feeds = {
            name: value for name, value in zip(node.input, view.inputs, strict=True) if isinstance(value, np.ndarray)
        }
        return fold_constant(node, feeds, {o.domain: o.version for o in proto.opset_import})
    if view.operator in CLIENT_OPERATORS:
        return client_step(view)
    name = registered_name(node)
    if any(value.client_steps for value in encrypted):
        if name in ("Identity", "Dropout"):
            return [encrypted[0]]
        inputs = [evaluated(context, value) if isinstance(value, Encrypted) else value for value in view.inputs]
        view = replace(view, inputs=tuple(inputs))
    if name not in OPERATORS:
        if node.domain not in ("", "ai.onnx"):
            raise UnsupportedNode(f"belongs to the domain '{node.domain}'; export with standard operators")
        raise UnsupportedNode(f"is not supported on encrypted data; {nearest(view.operator)}")
    result = OPERATORS[name].function(context, view)
    return [result] if isinstance(result, Encrypted | np.ndarray) else result


def _opset(proto: onnx.ModelProto) -> int:
    versions = [o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")]
    version = max(versions, default=0)
    if version < MINIMUM_OPSET:
        raise CompileError(
            f"model: expected opset {MINIMUM_OPSET} or newer, got {version}; convert it with onnx.version_converter"
        )
    return int(version)
