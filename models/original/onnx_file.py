"""An ONNX file run as its owner runs it: by ONNX Runtime where that is installed, else by the reference evaluator of the package onnx."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from cloakwork.models.onnx_import.ends import given_inputs

# Sums of products of uint8 and int8, run by ONNX Runtime so that they are right on every processor.
#
# On x86 processors without VNNI its kernels saturate such sums in pairs at 16 bits. There the same integers plus 128 run as uint8 (`moved`): sums of
# products of uint8 are right everywhere. A model is compared with what it says, not with what one processor makes of it.

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


Tensors = dict[str, NDArray[Any]]
Run = Callable[[list[str], Tensors], list[Any]]

_FIRST: Final = 8  # samples that tell how long more would take
_SECONDS: Final = 0.5
_LARGEST: Final = 1 << 30  # bytes of a file that is run


@dataclass(frozen=True)
class Answers:
    """Answers of the file to the first samples, by the names of its outputs; `by`: who ran it."""

    outputs: Tensors
    samples: int
    by: str


def answers_of(model: onnx.ModelProto, outputs: list[str], samples: Tensors) -> Answers | None:
    """Answers as many samples as half a second is enough for, eight at least; None where nobody here can run the file.

    Args:
        outputs: names.
        samples: arrays [samples, ..] by the names of inputs; those that are missing get zeros.
    """
    way = opened(model)
    if way is None:
        return None
    by, run = way
    inputs = {each.name: each for each in given_inputs(model.graph, {t.name: t for t in model.graph.initializer})}
    batch = _batch(inputs)
    for at_once in (batch,) if batch else (None, 1):  # a file may say that it takes any number, and mean one
        with contextlib.suppress(
            Exception
        ):  # whatever a run-time of others raises on a model that it has no kernel for
            return Answers(*_all(run, outputs, inputs, samples, at_once), by)
    return None


def _all(
    run: Run, outputs: list[str], inputs: Mapping[str, onnx.ValueInfoProto], samples: Tensors, at_once: int | None
) -> tuple[Tensors, int]:
    """Returns answers, and how many there are. ValueError where they are not one for each sample."""
    count = len(next(iter(samples.values())))
    parts: list[list[NDArray[Any]]] = []
    done, started = 0, time.perf_counter()
    step = at_once or _FIRST
    while done < count:
        parts.append(_run_some(run, outputs, inputs, samples, slice(done, min(done + step, count)), at_once))
        done = min(done + step, count)
        spent = time.perf_counter() - started
        if done >= _FIRST and spent > _SECONDS:
            break
        if at_once is None:
            step = max(_FIRST, int(done * _SECONDS / max(spent, 1e-3)))
    answers = {
        name: np.concatenate(output_parts) for name, output_parts in zip(outputs, zip(*parts, strict=True), strict=True)
    }
    if any(len(answer) != done for answer in answers.values()):
        raise ValueError("expected an answer for each sample")
    return answers, done


def opened(model: onnx.ModelProto) -> tuple[str, Run] | None:
    """Opens a file with what can run it here, and says how."""
    if model.ByteSize() > _LARGEST:
        return None
    for by, begin in _WAYS:
        with contextlib.suppress(
            Exception
        ):  # it is not installed, or has no kernel for an operator that another one may have
            return by, begin(model)
    return None


def _by_runtime(model: onnx.ModelProto) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # nothing but what ends the process
    # Node by node: its rewriting is not always right (PadFusion of 1.32 takes zeros before a MaxPool for the pool's own padding).
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = moved(model) if has_sums(model) and saturates() else model
    run: Run = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run
    return run


def _by_reference(model: onnx.ModelProto) -> Run:
    from onnx.reference import ReferenceEvaluator

    return cast(Run, ReferenceEvaluator(model).run)


_WAYS: Final[tuple[tuple[str, Callable[[onnx.ModelProto], Run]], ...]] = (
    ("ONNX Runtime", _by_runtime),
    ("onnx.reference", _by_reference),
)


def _batch(inputs: Mapping[str, onnx.ValueInfoProto]) -> int | None:
    """Returns the number of samples that the file is made for; None for any."""
    for each in inputs.values():
        first = each.type.tensor_type.shape.dim[:1]
        if first and first[0].HasField("dim_value") and first[0].dim_value > 0:
            return int(first[0].dim_value)
    return None


def _run_some(
    run: Run,
    outputs: list[str],
    inputs: Mapping[str, onnx.ValueInfoProto],
    samples: Tensors,
    rows: slice,
    at_once: int | None,
) -> list[NDArray[Any]]:
    count = rows.stop - rows.start
    lacking = 0 if at_once is None else at_once - count
    given = {}
    for name, each in inputs.items():
        kind = type_of(each)
        shape = [dimension.dim_value or 1 for dimension in each.type.tensor_type.shape.dim[1:]]
        values = samples[name][rows] if name in samples else np.zeros((count, *shape))
        given[name] = np.concatenate([values, np.repeat(values[-1:], lacking, axis=0)]).astype(kind)
    return [np.asarray(output)[:count] for output in run(outputs, given)]


def type_of(value: onnx.ValueInfoProto) -> np.dtype[Any]:
    """Returns the type of an input's numbers."""
    return helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
