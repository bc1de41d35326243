"""Final operators that the client evaluates after decryption."""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.last_steps import (
    ArgMax,
    ArgMin,
    Hardmax,
    L2Normalization,
    LastStep,
    LogSoftmax,
    Softmax,
    TopK,
    TopKIndices,
)
from cloakwork.models.onnx_import.context import Encrypted, OnnxNode

CLIENT_OPERATORS: Final = ("ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "LpNormalization", "Softmax", "TopK")
_INDICES: Final = (ArgMax, ArgMin, TopKIndices)  # whose results are no values


def client_step(node: OnnxNode) -> list[Encrypted]:
    """Returns the same wires, with one more thing to do after decryption; TopK gives values and indices."""
    value = node.inputs[0]
    assert isinstance(value, Encrypted)
    rank = value.wires.ndim
    done = [step.title for step in value.client_steps if isinstance(step, _INDICES)]
    if done:
        raise UnsupportedNode(f"comes after {done[0].removesuffix('Indices')}; make that the last node")
    if node.operator == "TopK":
        return _top_k(node, value)
    if node.operator in ("ArgMax", "ArgMin"):
        if node.attributes.get("select_last_index", 0):
            raise UnsupportedNode("select_last_index is not supported; leave it out")
        axis, keepdims = int(node.attributes.get("axis", 0)), bool(node.attributes.get("keepdims", 1))
        _check_axis(axis, rank)
        return [_with(value, (ArgMax if node.operator == "ArgMax" else ArgMin)(axis, keepdims))]
    if node.operator == "LpNormalization":
        return [_with(value, _unit_length(node, rank))]
    axis = int(node.attributes.get("axis", -1 if node.opset >= 13 else 1))
    if node.opset < 13 and axis % rank != rank - 1:
        raise UnsupportedNode("before opset 13 only the last axis is supported; convert the model to opset 13")
    _check_axis(axis, rank)
    kinds: dict[str, type[Hardmax | LogSoftmax | Softmax]] = {
        "Hardmax": Hardmax,
        "LogSoftmax": LogSoftmax,
        "Softmax": Softmax,
    }
    return [_with(value, kinds[node.operator](axis))]


def _unit_length(node: OnnxNode, rank: int) -> L2Normalization:
    if node.attributes.get("p", 2) != 2:
        raise UnsupportedNode(
            "divides by a sum of absolute values; only p=2 is supported, leave it to whoever decrypts"
        )
    axis = int(node.attributes.get("axis", -1))
    _check_axis(axis, rank)
    return L2Normalization(axis)


def _top_k(node: OnnxNode, value: Encrypted) -> list[Encrypted]:
    axis, count = int(node.attributes.get("axis", -1)), int(np.atleast_1d(node.constant(1))[0])
    _check_axis(axis, value.wires.ndim)
    if not 1 <= count <= value.wires.shape[axis]:
        raise UnsupportedNode(f"takes the first {count} of {value.wires.shape[axis]}; take fewer")
    if not node.attributes.get("sorted", 1):
        raise UnsupportedNode("leaves its results unsorted; export with sorted=True")
    largest = bool(node.attributes.get("largest", 1))
    return [_with(value, kind(axis, count, largest)) for kind in (TopK, TopKIndices)]


def _check_axis(axis: int, rank: int) -> None:
    if not -rank <= axis < rank:
        raise UnsupportedNode(f"works along axis {axis} of a tensor of {rank} dimensions")
    if axis % rank == 0:
        raise UnsupportedNode("works along the batch; samples are computed one by one, use another axis")


def _with(value: Encrypted, step: LastStep) -> Encrypted:
    return Encrypted(value.wires, (*value.client_steps, step))
