"""Final operators that the client evaluates after decryption."""

from __future__ import annotations

from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.ir import CLIENT_OPERATORS, ClientStep
from cloakwork.models.onnx_import.context import Encrypted, OnnxNode

__all__ = ["CLIENT_OPERATORS", "client_step"]


def client_step(node: OnnxNode) -> Encrypted:
    """The same wires, with one more thing to do after decryption."""
    value = node.inputs[0]
    assert isinstance(value, Encrypted)
    rank = value.wires.ndim
    if any(step.operator == "ArgMax" for step in value.client_steps):
        raise UnsupportedNode("comes after ArgMax; make ArgMax the last node")
    if node.operator == "ArgMax":
        if node.attributes.get("select_last_index", 0):
            raise UnsupportedNode("select_last_index is not supported; leave it out")
        axis, keepdims = int(node.attributes.get("axis", 0)), bool(node.attributes.get("keepdims", 1))
    else:
        axis, keepdims = int(node.attributes.get("axis", -1 if node.opset >= 13 else 1)), True
        if node.opset < 13 and axis % rank != rank - 1:
            raise UnsupportedNode("before opset 13 only the last axis is supported; convert the model to opset 13")
    if axis % rank == 0:
        raise UnsupportedNode("works along the batch; samples are computed one by one, use another axis")
    step = ClientStep(node.operator, axis, keepdims)
    return Encrypted(value.wires, (*value.client_steps, step))
