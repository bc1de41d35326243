"""Nodes of constants alone, computed at import by onnx's own reference, where their results are of a known and bounded size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.onnx_import.context import MOST_NUMBERS

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
