"""The nodes of a file in an order in which they can be computed, after a check of the names that connect them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from cloakwork.models.errors import CompileError, some

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
