"""Sums of products of uint8 and int8, run by ONNX Runtime so that they are right on every processor.

On x86 processors without VNNI its kernels saturate such sums in pairs at 16 bits. There the same integers plus 128 run as uint8 (`moved`): sums of
products of uint8 are right everywhere. A model is compared with what it says, not with what one processor makes of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

# Operands of operators that add products, each with its zero point, and the zero point of what they answer.
_SUMS: Final = {
    "QLinearConv": (((0, 2), (3, 5)), 7), "QLinearMatMul": (((0, 2), (3, 5)), 7), "QGemm": (((0, 2), (3, 5)), 8),
    "MatMulInteger": (((0, 2), (1, 3)), None), "ConvInteger": (((0, 2), (1, 3)), None),
}  # fmt: skip


def has_sums(proto: onnx.ModelProto) -> bool:
    """Checks whether any node adds products of integers."""
    return any(node.op_type in _SUMS for node in proto.graph.node)


@cache
def saturates() -> bool:
    """Checks whether ONNX Runtime's sum of eight products of 255 and 127 is another one on this processor."""
    import onnxruntime

    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 8])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])
    weights = numpy_helper.from_array(np.full((8, 1), 127, np.int8), "w")
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "sum", [x], [y], [weights])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return bool(session.run(None, {"x": np.full((1, 8), 255, np.uint8)})[0][0, 0] != 8 * 255 * 127)


def moved(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with 128 added to every int8 that enters a sum of products, as uint8, and taken from every int8 that a sum answers."""
    constants = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*inferred.value_info, *inferred.input)}
    moved_constants = dict[str, NDArray[Any]]()
    nodes: list[onnx.NodeProto] = [helper.make_node("Constant", [], ["moved_128"], value_int=128)]

    def signed(name: str) -> bool:
        return constants[name].dtype == np.int8 if name in constants else kinds.get(name) == TensorProto.INT8

    def shifted(name: str, by: str, kind: int, to: str) -> str:
        """`name` plus or minus 128 as `to`."""
        wide = f"{to}_wide"
        nodes.append(helper.make_node("Cast", [name], [f"{wide}_in"], to=TensorProto.INT64))
        nodes.append(helper.make_node(by, [f"{wide}_in", "moved_128"], [wide]))
        nodes.append(helper.make_node("Cast", [wide], [to], to=kind))
        return to

    def operand(name: str, of: str) -> str:
        if name not in constants:
            return shifted(name, "Add", TensorProto.UINT8, f"{of}_{name}_moved")
        moved_constants[f"{name}_moved"] = (constants[name].astype(int) + 128).astype(np.uint8)
        return f"{name}_moved"

    for node in proto.graph.node:
        operands, result = _SUMS.get(node.op_type, ((), None))
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        for value, zero in operands:
            has_zero = len(node.input) > zero and bool(node.input[zero])
            if not signed(node.input[zero] if has_zero else node.input[value]):
                continue
            changed.input[value] = operand(node.input[value], node.output[0])
            while len(changed.input) <= zero:
                changed.input.append("")
            moved_constants["moved_zero"] = np.array(128, dtype=np.uint8)
            changed.input[zero] = operand(node.input[zero], node.output[0]) if has_zero else "moved_zero"
        nodes.append(changed)
        if result is not None and len(node.input) > result and node.input[result] and signed(node.input[result]):
            changed.input[result] = operand(node.input[result], node.output[0])
            changed.output[0] = f"{node.output[0]}_moved"
            shifted(changed.output[0], "Sub", TensorProto.INT8, node.output[0])
    result_model = onnx.ModelProto()
    result_model.CopyFrom(proto)
    del result_model.graph.node[:]
    result_model.graph.node.extend(nodes)
    result_model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in moved_constants.items()
    )
    return result_model
