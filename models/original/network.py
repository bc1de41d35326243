"""The check of a network's import: the file, run as its owner runs it, against the graph that a program is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.errors import CompileError, ImportFaultError
from cloakwork.models.graph.ir import Graph
from cloakwork.models.onnx_import.ends import given_inputs
from cloakwork.models.onnx_import.graph_order import needed_for, ordered_nodes
from cloakwork.models.original.agreement import difference, edges_of
from cloakwork.models.original.onnx_file import Answers, Tensors, answers_of, type_of

_MOST: Final = 300  # samples
_SECONDS: Final = 1.0
_AT_ONCE: Final = 16
_LOOSE: Final = 30.0  # of quantised models: a value on a step goes either way in one kernel or another, in every layer
_FEW_QUANTISED: Final = 0.05
_FEW: Final = 0.02  # samples of which a value may lie on a step
_QUANTISERS: Final = ("Quant", "QLinear", "DequantizeLinear", "Integer")
_STEPS: Final = frozenset(
    {
        "ArgMax", "ArgMin", "Cast", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual", "Mod", "Round",
        "Sign", "ThresholdedRelu", "TopK", "Where",
    }
)  # fmt: skip

Clear = Callable[[Any], Any]
"""The imported network on samples as the user has them: an array, of several outputs arrays by name."""
Import = Callable[[onnx.ModelProto], Clear]


@dataclass(frozen=True, eq=False)
class Original:
    """A file, and samples to run it with."""

    model: onnx.ModelProto
    outputs: list[str]
    samples: Tensors  # by the names of its inputs
    edges: int  # how many of them come first and are no calibration samples

    @classmethod
    def of(cls, model: onnx.ModelProto, graph: Graph, given: Any, outputs: list[str]) -> Original | None:
        """Returns None for samples that are not as the network takes them, which other steps say better."""
        inputs = {each.name: each for each in given_inputs(model.graph, {t.name for t in model.graph.initializer})}
        try:
            arrays = _by_name(graph, inputs, given)
        except (TypeError, ValueError, LookupError):
            return None
        if not arrays:
            return None
        count = len(next(iter(arrays.values())))
        rows = np.linspace(0, count - 1, min(count, _MOST)).astype(int)
        edges = {name: edges_of(each) for name, each in arrays.items()}
        first = min(map(len, edges.values()))
        samples = {name: np.concatenate([edges[name][:first], each[rows]]) for name, each in arrays.items()}
        return cls(model, outputs, samples, first)

    def first(self, count: int) -> Tensors:
        return {name: each[:count] for name, each in self.samples.items()}

    def rounded(self, count: int) -> Tensors:
        """Returns the first ones, each number off by a rounding of float32."""
        by = 1 + 2 * float(np.finfo(np.float32).eps)
        first = self.first(count)
        return {
            name: (each * by).astype(each.dtype) if each.dtype.kind == "f" else each for name, each in first.items()
        }

    @property
    def may_differ(self) -> tuple[float, float]:
        """The share of samples that may, and by how much more than rounding of float32 numbers."""
        operators = {node.op_type for node in self.model.graph.node}
        if any(kind in operator for operator in operators for kind in _QUANTISERS):
            return _FEW_QUANTISED, _LOOSE
        return (_FEW if operators & _STEPS else 0.0), 1.0


def judge_import(original: Original, clear: Clear, import_again: Import) -> bool:
    """Whether the graph says what the file says, to the rounding of float32: not where nobody here can run the file, nor where values on a step of a
    quantiser go the other way in a few samples.

    Args:
        clear: the graph that programs are made of, in real numbers.
        import_again: of a file that ends elsewhere, to find the node that is wrong.

    Raises:
        ImportFaultError: they differ; names the first node whose results do.
    """
    original_answers = answers_of(original.model, original.outputs, original.samples)
    if original_answers is None:
        return False
    answers = _answers(original, original_answers.samples, clear)
    differs = _difference(original, original_answers, answers, *original.may_differ)
    if differs is None:
        return _difference(original, original_answers, answers) is None
    again = answers_of(original.model, original.outputs, original.rounded(original_answers.samples))
    differs = _difference(original, original_answers, answers, *original.may_differ, again)
    if differs is None:
        return False
    name, difference_text = differs
    where = _first_wrong(original, import_again)
    output = f"output '{name}' " if len(original.outputs) > 1 else ""
    step = f"; the first node whose results differ is {where}" if where else ""
    raise ImportFaultError(
        f"model: as imported it {output}{difference_text}, by {original_answers.by}{step}: this is a fault of cloakwork, please report it; "
        "put that part of the model at the client, or write it with other operators"
    )


def _answers(original: Original, count: int, clear: Clear) -> Tensors:
    """Returns what the graph says, by the names of outputs: of `count` samples, or as many as a second is enough for."""
    parts: list[Mapping[str, NDArray[Any]]] = []
    done, started = 0, time.perf_counter()
    while done < count and (not done or time.perf_counter() - started < _SECONDS):
        rows = {name: each[done : min(done + _AT_ONCE, count)] for name, each in original.samples.items()}
        answer = clear(rows if len(rows) > 1 else next(iter(rows.values())))
        parts.append(answer if isinstance(answer, Mapping) else {original.outputs[0]: answer})
        done = min(done + _AT_ONCE, count)
    return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in original.outputs}


def _difference(
    original: Original,
    original_answers: Answers,
    answers: Tensors,
    share: float = 0.0,
    loose: float = 1.0,
    again: Answers | None = None,
) -> tuple[str, str] | None:
    """Returns the first output that differs by more than is allowed, and how. Values at the edges are far larger at times, and compared by
    themselves.

    Args: share, loose, again: see `difference`; `again` of as many samples at least, or it is not looked at.
    """
    for name, answer in answers.items():
        expected = original_answers.outputs[name][: len(answer)]
        shaped = answer.reshape(expected.shape) if answer.size == expected.size else answer
        rounded = None if again is None or again.samples < len(answer) else again.outputs[name][: len(answer)]
        for part, which in (
            (slice(original.edges, None), "calibration sample {}"),
            (slice(original.edges), "a sample at the edge of the samples' ranges"),
        ):
            other = None if rounded is None else rounded[part]
            wrong = difference(expected[part], shaped[part], share=share, loose=loose, again=other)
            if wrong is not None:
                return name, wrong.text.replace(f"sample {wrong.sample};", f"{which.format(wrong.sample)};")
    return None


def _first_wrong(original: Original, import_again: Import) -> str:
    """Returns the node, found by halving: a result is right where all before it are."""
    nodes = needed_for(ordered_nodes(original.model.graph), original.outputs)[0]
    low, high = 0, len(nodes) - 1  # the wrong one is in low .. high
    while low < high:
        middle = (low + high) // 2
        if _is_right(original, nodes[middle].output[0], import_again):
            low = middle + 1
        else:
            high = middle
    node = nodes[low] if nodes else None
    return "" if node is None else f"{node.op_type} '{node.name or node.output[0]}'"


def _is_right(original: Original, name: str, import_again: Import) -> bool:
    """Whether the file up to here says what was imported; what cannot be run or imported by itself is taken for right."""
    model = onnx.ModelProto()
    model.CopyFrom(original.model)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    part = Original(model, [name], original.samples, original.edges)
    try:
        original_answers = answers_of(model, [name], original.first(2 * _AT_ONCE))
        if original_answers is None:
            return True
        answers = _answers(part, original_answers.samples, import_again(model))
        return _difference(part, original_answers, answers, *original.may_differ) is None
    except CompileError:
        return True


def _by_name(graph: Graph, inputs: Mapping[str, onnx.ValueInfoProto], given: Any) -> Tensors:
    """Returns arrays [samples, ..] of the types that the file takes; none where they are not as the network takes them."""
    shapes = {part.name: part.shape for part in graph.inputs} or {next(iter(inputs)): graph.input.shape}
    if not graph.inputs:
        given = (given,)
    given_by_name = (
        dict(zip(shapes, given, strict=True)) if isinstance(given, tuple) else {name: given[name] for name in shapes}
    )
    arrays = {name: np.asarray(each) for name, each in given_by_name.items()}
    counts = {each.shape[0] if each.ndim else 0 for each in arrays.values()}
    fit = all(each.dtype.kind in "fiub" and each.shape[1:] == shapes[name] for name, each in arrays.items())
    if not fit or len(counts) != 1 or 0 in counts:
        return {}
    typed = {name: each.astype(type_of(inputs[name])) for name, each in arrays.items()}
    whole = all(each.dtype.kind == "f" or np.array_equal(each, arrays[name]) for name, each in typed.items())
    return typed if whole and all(np.isfinite(each).all() for each in typed.values()) else {}
