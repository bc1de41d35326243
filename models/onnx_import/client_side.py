"""Final operators that the client evaluates after decryption."""

from __future__ import annotations

from typing import Final

from cloakwork.models.ir import ClientStep
from cloakwork.models.onnx_import.context import Encrypted, OnnxNode

CLIENT_OPERATORS: Final = ("ArgMax", "LogSoftmax", "Softmax")


def client_step(node: OnnxNode) -> Encrypted:
    """The same wires, with one more thing to do after decryption."""
    value = node.inputs[0]
    assert isinstance(value, Encrypted)
    if node.operator == "ArgMax":
        axis = int(node.attributes.get("axis", 0))
        step = ClientStep("ArgMax", axis, bool(node.attributes.get("keepdims", 1)))
    else:
        step = ClientStep(node.operator, int(node.attributes.get("axis", -1)))
    return Encrypted(value.wires, (*value.client_steps, step))
