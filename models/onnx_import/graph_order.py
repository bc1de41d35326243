"""The nodes of a file in an order in which they can be computed, after a check of the names that connect them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from cloakwork.models.errors import CompileError, UnsupportedNode, some
from cloakwork.models.onnx_import.context import MOST_NUMBERS

# Nodes of constants alone, computed at import by onnx's own reference, where their results are of a known and bounded size.

_MOST_SHAPE: Final = 4096  # numbers of a constant that may say the shape of a result
# The size of the result depends on the values, and is at most so many times that of the input.
_FROM_VALUES: Final[dict[str, int]] = {"Compress": 1, "NonZero": 16, "Unique": 1}


def fold_constant(
    node: onnx.NodeProto, feeds: Mapping[str, NDArray[Any]], opsets: Mapping[str, int]
) -> list[NDArray[Any]]:
    """Returns the node's outputs. UnsupportedNode: it cannot be computed, repeats other nodes, or its results are too large."""
    standard = onnx.NodeProto.FromString(node.SerializeToString())
    standard.domain = "" if node.domain == "com.microsoft" else node.domain  # its quantisers mean the same
    if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
        raise UnsupportedNode("has nodes inside; export without control flow")
    try:
        _check_size(standard, feeds, opsets)
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(standard, opsets=dict(opsets)).run(None, dict(feeds))
        return [np.asarray(result) for result in results]
    except UnsupportedNode:
        raise
    except Exception as error:  # whatever the reference raises on what a stranger wrote
        raise UnsupportedNode(
            f"could not be computed from its constants: {' '.join(str(error).split())[:200]}"
        ) from error


def _check_size(node: onnx.NodeProto, feeds: Mapping[str, NDArray[Any]], opsets: Mapping[str, int]) -> None:
    """Refuses before anything is allocated: the shapes of the results are inferred from the node alone."""
    given = sum(array.size for array in feeds.values())
    most = max(MOST_NUMBERS, given)
    if node.op_type in _FROM_VALUES:
        counts = [float(given * _FROM_VALUES[node.op_type])]
    elif node.op_type in ("Constant", "Identity"):
        return
    else:
        counts = [_count(value) for value in _inferred(node, feeds, opsets)]
    if not counts or max(counts) > most:
        largest = max(counts, default=math.inf)
        size = "of unknown size" if math.isinf(largest) else f"of {largest:.0f} numbers"
        raise UnsupportedNode(f"makes a constant {size}; expected at most {most}")


def _inferred(
    node: onnx.NodeProto, feeds: Mapping[str, NDArray[Any]], opsets: Mapping[str, int]
) -> list[onnx.ValueInfoProto]:
    small = {name: array for name, array in feeds.items() if array.size <= _MOST_SHAPE}
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
            if name not in small
        ],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        [numpy_helper.from_array(array, name) for name, array in small.items()],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports)
    return list(shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph.output)


def _count(value: onnx.ValueInfoProto) -> float:
    """Returns numbers of a tensor; infinite where that is not known."""
    shape = value.type.tensor_type
    if not shape.HasField("shape") or any(not extent.HasField("dim_value") for extent in shape.shape.dim):
        return math.inf
    return float(math.prod(extent.dim_value for extent in shape.shape.dim))


_LAYERS: Final = ("Conv", "Gemm", "GRU", "LSTM", "MatMul", "RNN")  # in the names of operators with weights


def ordered_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Returns every node after those that it reads; the file's own order where that holds. Time: proportional to the graph.

    Raises:
        CompileError: a name that two nodes make, or nobody; nodes in a circle; a node without a result.
    """
    nodes = list(graph.node)
    producer = _producers(graph, nodes)
    given = _given(graph)
    waiting = [0] * len(nodes)  # inputs of each node that are not computed yet
    readers: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        for name in node.input:
            if not name or name in given:
                continue
            if name not in producer:
                raise CompileError(
                    f"model: node '{_label(node)}' reads '{name}', which nothing in the file makes; export it again"
                )
            readers[producer[name]].append(i)
            waiting[i] += 1
    for output in graph.output:
        if output.name not in producer and output.name not in given:
            raise CompileError(f"model: nothing in the file makes its output '{output.name}'; export it again")
    if not any(producer.get(name, -1) >= i for i, node in enumerate(nodes) for name in node.input):
        return nodes
    return [nodes[i] for i in _sorted(nodes, waiting, readers)]


def needed_for(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    """Selects of ordered nodes those that these names depend on, and all names that they depend on."""
    used, needed = set(outputs), []
    for node in reversed(nodes):
        if used.intersection(node.output):
            needed.append(node)
            used.update(filter(None, node.input))
    return needed[::-1], used


def read_by_layers(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Finds names that a layer with weights reads, or a node before one. Args: nodes: in order."""
    names: set[str] = set()
    for node in reversed(nodes):
        if any(kind in node.op_type for kind in _LAYERS) or names.intersection(node.output):
            names.update(filter(None, node.input))
    return names


def constants_of(graph: onnx.GraphProto) -> dict[str, NDArray[np.generic]]:
    """Returns the initializers; CompileError for one that is damaged or lies in another file."""
    return {tensor.name: constant(tensor, tensor.name) for tensor in graph.initializer}


def constant(tensor: onnx.TensorProto, name: str) -> NDArray[np.generic]:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise CompileError(
            f"model: constant '{name}' lies in another file; load the model by its path, beside that file"
        )
    try:
        if min(tensor.dims, default=0) < 0:
            raise ValueError("a negative extent")
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        raise CompileError(f"model: constant '{name}' is damaged ({error}); export the model again") from error


def _producers(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> dict[str, int]:
    """Returns the node that makes each name."""
    taken = _given(graph)
    producer: dict[str, int] = {}
    for i, node in enumerate(nodes):
        if not any(node.output):
            raise CompileError(f"model: node '{_label(node)}' ({node.op_type}) makes nothing; remove it")
        for name in filter(None, node.output):
            if name in taken or name in producer:
                raise CompileError(f"model: '{name}' is made twice, last by node '{_label(node)}'; export it again")
            producer[name] = i
    return producer


def _given(graph: onnx.GraphProto) -> set[str]:
    return {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}


def _sorted(nodes: list[onnx.NodeProto], waiting: list[int], readers: list[list[int]]) -> list[int]:
    ready = deque(i for i, count in enumerate(waiting) if count == 0)
    order: list[int] = []
    while ready:
        i = ready.popleft()
        order.append(i)
        for reader in readers[i]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    if len(order) < len(nodes):
        stuck = [_label(nodes[i]) for i, count in enumerate(waiting) if count > 0]
        named = some(f"'{label}'" for label in stuck)
        raise CompileError(f"model: nodes {named} depend on each other in a circle; a graph to be compiled has none")
    return order


def _label(node: onnx.NodeProto) -> str:
    return node.name or next((name for name in node.output if name), node.op_type)
