"""Attributes of an ONNX node by name."""

from __future__ import annotations

from typing import Any, TypeAlias

import onnx

Attributes: TypeAlias = dict[str, Any]


def attributes(node: onnx.NodeProto) -> Attributes:
    """Decodes attributes: texts decoded, tensors as arrays."""
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
