"""Inputs and outputs of a model: its inputs as one tensor of numbers, its outputs as another, with the names of both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import onnx

from cloakwork.models.errors import CompileError, UnsupportedNode, some
from cloakwork.models.graph.ir import NamedTensor
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
from cloakwork.models.onnx_import.context import MOST_NUMBERS, Context, Encrypted, OnnxNode, Value

# Final operators that the client evaluates after decryption.

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


MOST_PARTS: Final = 1024  # inputs, and outputs, of a model
_NUMBERS: Final = frozenset(
    {
        onnx.TensorProto.BFLOAT16, onnx.TensorProto.BOOL, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16,
        onnx.TensorProto.INT8, onnx.TensorProto.INT16, onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.UINT8,
        onnx.TensorProto.UINT16, onnx.TensorProto.UINT32, onnx.TensorProto.UINT64,
    }
)  # fmt: skip


# --- outputs -----------------------------------------------------------------------------------------------------------------------


def chosen_outputs(graph: onnx.GraphProto, requested: Sequence[str] | None) -> list[str]:
    """Returns the names of the outputs that are computed, in the model's order. Args: requested: some of them; None: all.

    Raises:
        CompileError: none, too many, names that are empty, repeated or not the model's.
    """
    names = [output.name for output in graph.output]
    _check_names(names, "output")
    if requested is None:
        return names
    if isinstance(requested, str) or not requested or not all(isinstance(name, str) for name in requested):
        raise CompileError("outputs: expected a list of names of outputs, at least one")
    unknown = [name for name in requested if name not in names]
    if unknown:
        raise CompileError(
            f"outputs: the model has none named {some(map(repr, unknown))}; expected some of {some(map(repr, names))}"
        )
    return [name for name in names if name in set(requested)]


def outputs_of(names: Sequence[str], values: Mapping[str, Value]) -> list[Encrypted]:
    """Raises CompileError for an output that is a constant, or whose first dimension is not the batch."""
    return [_output(name, values.get(name), len(names)) for name in names]


def _output(name: str, value: Value | None, count: int) -> Encrypted:
    which = "the output" if count == 1 else f"output '{name}'"
    if value is None:
        raise CompileError(
            f"model: {which} is a second result of its node that is not supported; choose others with outputs="
        )
    if not isinstance(value, Encrypted):
        remedy = "there is nothing to encrypt" if count == 1 else "choose the others with outputs="
        raise CompileError(f"model: {which} does not depend on the input; {remedy}")
    if value.wires.ndim == 0 or value.wires.shape[0] != 1:
        raise CompileError(
            f"model: expected {which if count > 1 else 'an output'} whose first dimension is the batch, got shape {list(value.wires.shape)}; "
            "keep the batch first"
        )
    if not value.wires.size:
        which = "its output" if count == 1 else which
        raise CompileError(f"model: {which} is an empty tensor; there is nothing to compute")
    return value


# --- inputs ------------------------------------------------------------------------------------------------------------------------


def given_inputs(graph: onnx.GraphProto, constants: Iterable[str]) -> list[onnx.ValueInfoProto]:
    """Returns the inputs that are no initializers."""
    known = set(constants)
    inputs = [value for value in graph.input if value.name not in known]
    _check_names([value.name for value in inputs], "input")
    return inputs


def read_inputs(
    inputs: Sequence[onnx.ValueInfoProto], used: set[str], context: Context, values: dict[str, Value]
) -> tuple[tuple[NamedTensor, ...], tuple[str, ...]]:
    """Adds the input node and its tensors; the parts of several inputs (none of a model that has one), and names of inputs that nothing reads.

    Args:
        used: names that outputs depend on.
    """
    needed = [value for value in inputs if value.name in used] if len(inputs) > 1 else list(inputs)
    unused = tuple(value.name for value in inputs if value not in needed)
    if not needed:
        raise CompileError("model: no output depends on an input; there is nothing to encrypt")
    shapes = [_extents(value) for value in needed]
    total = sum(map(math.prod, shapes))
    if total > MOST_NUMBERS:
        raise CompileError(f"model: expected inputs of at most {MOST_NUMBERS} numbers, got {total}; use smaller ones")
    if len(inputs) == 1:
        context.origin = needed[0].name
        values[context.origin] = context.input([1, *shapes[0]])
        return (), ()
    context.origin = "inputs"
    wires, start = context.input([1, total]).wires, 0
    for value, shape in zip(needed, shapes, strict=True):
        size = math.prod(shape)
        values[value.name] = Encrypted(wires[:, start : start + size].reshape(1, *shape))
        start += size
    return tuple(NamedTensor(value.name, tuple(shape)) for value, shape in zip(needed, shapes, strict=True)), unused


def _extents(value: onnx.ValueInfoProto) -> list[int]:
    """Returns shape without the batch."""
    if value.type.WhichOneof("value") not in (None, "tensor_type"):
        raise CompileError(f"model: input '{value.name}' is no tensor; export the model with tensors as inputs")
    tensor = value.type.tensor_type
    if tensor.elem_type not in (*_NUMBERS, onnx.TensorProto.UNDEFINED):
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type) if tensor.elem_type <= 26 else "another kind"
        raise CompileError(f"model: input '{value.name}' holds {kind}; expected numbers, encode it before the model")
    extents = [int(dim.dim_value) for dim in tensor.shape.dim]
    if not extents or min(extents[1:], default=1) < 1:
        raise CompileError(
            f"model: expected an input [batch, ..] of known shape, got {extents} for '{value.name}'; fix every dimension but the first"
        )
    if extents[0] > 1:
        raise CompileError(
            f"model: was exported for batches of {extents[0]}; export with a batch of 1 or a dynamic one"
        )
    if math.prod(extents[1:]) > MOST_NUMBERS:
        raise CompileError(
            f"model: expected an input of at most {MOST_NUMBERS} numbers, got {extents} for '{value.name}'; use a smaller one"
        )
    return extents[1:]


def _check_names(names: Sequence[str], what: str) -> None:
    if not names:
        raise CompileError(f"model: it has no {what}; export it again")
    if len(names) > MOST_PARTS:
        raise CompileError(f"model: expected at most {MOST_PARTS} {what}s, got {len(names)}; put them into one tensor")
    if not all(names):
        raise CompileError(f"model: an {what} has no name; export it again")
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if twice:
        raise CompileError(f"model: {what} '{min(twice)}' is listed twice; export it again")
