"""Models of ONNX files that no tree or linear operator makes: classifiers that skl2onnx writes in standard operators, networks after prepared
columns. They are cut into three: columns that the client prepares, the scores, and the label and probabilities that it makes of them.

Scores that are sums of the features, or of them and their squares (naive Bayes), are a linear model; others are a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.errors import UnsupportedNode, some
from cloakwork.models.onnx_ml.attributes import attributes

EACH: Final = "sigmoid of each"
"""A transform of several scores: their probabilities are not divided by their sum."""
_MOST_NUMBERS: Final = 1 << 24  # of the coefficients of one tensor


# --- the end: which tensor holds the scores, and what the client does with it ------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Head:
    """The scores of a graph, their transform (models/client_steps/transforms.py, or EACH), and the labels; None: the scores are the result."""

    scores: str
    transform: str = "none"
    labels: NDArray[Any] | None = None


def read_head(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], constants: Mapping[str, NDArray[Any]]) -> Head:
    """Reads the head: behind a label (ArrayFeatureExtractor of an ArgMax) come the scores that it is the largest of; else the only output."""
    producer = {name: node for node in nodes for name in node.output}
    for node in nodes:
        if node.op_type == "ArrayFeatureExtractor" and node.input[0] in constants:
            best = producer.get(node.input[1])
            if best is not None and best.op_type == "ArgMax" and attributes(best).get("axis", 0) in (1, -1):
                scores, transform = _before_transform(best.input[0], producer, constants)
                transform = (
                    "softmax" if transform == "decision" and _has_softmax(scores, nodes, producer) else transform
                )
                if transform == EACH and _has_shares(best.input[0], nodes, producer):
                    transform = "sigmoid"
                return Head(scores, transform, _labels(constants[node.input[0]]))
    if len(graph.output) != 1:
        names = some(value.name for value in graph.output)
        raise UnsupportedNode(
            f"has the outputs {names} and no label that follows from scores; export the one that is wanted"
        )
    return Head(graph.output[0].name)


def _labels(constant: NDArray[Any]) -> NDArray[Any]:
    flat = constant.reshape(-1)
    if flat.dtype.kind in "OS":
        return np.array([text.decode() if isinstance(text, bytes) else str(text) for text in flat])
    return flat.astype(np.int64) if flat.dtype.kind in "iu" else flat


_Producers = Mapping[str, onnx.NodeProto]
_Constants = Mapping[str, NDArray[Any]]


def _before_transform(name: str, producer: _Producers, constants: _Constants) -> tuple[str, str]:
    """Returns the tensor from which probabilities are made, and how; the same tensor as "decision" where none are."""
    name = _original(name, producer)
    node = producer.get(name)
    if node is None:
        return name, "decision"
    if node.op_type == "Softmax":
        return node.input[0], "softmax"
    if node.op_type == "Sigmoid":
        return node.input[0], EACH
    if node.op_type == "Reciprocal":  # 1 / (1 + exp(-z))
        add = producer.get(node.input[0])
        exponential = None if add is None else _operand(add, "Exp", producer)
        negated = None if exponential is None else _negated(exponential.input[0], producer, constants)
        return (name, "decision") if negated is None else (negated, EACH)
    if node.op_type == "Concat" and len(node.input) == 2:  # two classes of one column
        first, second = (producer.get(each) for each in node.input)
        positive = _original(node.input[1], producer)
        if first is not None and first.op_type == "Sub" and _original(first.input[1], producer) == positive:
            inner, transform = _before_transform(positive, producer, constants)
            if transform == EACH:
                return inner, "sigmoid"
            return (inner, transform) if transform != "decision" else (positive, "none")
        if second is None or _negated(node.input[0], producer, constants) != positive:
            return name, "decision"
        return positive, "decision"
    if node.op_type == "Div":  # shares of their sum
        inner, transform = _before_transform(_first_summand(node.input[0], producer), producer, constants)
        return (inner, "sigmoid") if transform == EACH else (name, "decision")
    return name, "decision"


def _original(name: str, producer: _Producers) -> str:
    while name in producer and producer[name].op_type in ("Identity", "Cast"):
        name = producer[name].input[0]
    return name


def _operand(node: onnx.NodeProto, operator: str, producer: _Producers) -> onnx.NodeProto | None:
    operands = [producer[name] for name in node.input if name in producer and producer[name].op_type == operator]
    return operands[0] if operands else None


def _negated(name: str, producer: _Producers, constants: _Constants) -> str | None:
    """Returns z of a tensor -z."""
    node = producer.get(name)
    if node is not None and node.op_type == "Neg":
        return str(node.input[0])
    if node is not None and node.op_type == "Mul":
        for number, other in (node.input, reversed(node.input)):
            if number in constants and bool((constants[number] == -1).all()):
                return str(other)
    return None


def _first_summand(name: str, producer: _Producers) -> str:
    node = producer.get(name)
    return str(node.input[0]) if node is not None and node.op_type == "Add" else name


def _has_shares(probabilities: str, nodes: Sequence[onnx.NodeProto], producer: _Producers) -> bool:
    """Whether these are divided by their sum."""
    name = _original(probabilities, producer)
    divided = [node.input[0] for node in nodes if node.op_type in ("Div", "Normalizer")]
    return any(_original(_first_summand(each, producer), producer) == name for each in divided)


def _has_softmax(scores: str, nodes: Sequence[onnx.NodeProto], producer: _Producers) -> bool:
    """Whether exp(scores - log sum exp(scores)) is computed."""
    return any(node.op_type == "ReduceLogSumExp" and _original(node.input[0], producer) == scores for node in nodes)


# --- the middle: scores that are sums -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sums:
    """A tensor [1, ..] of numbers: linear x + squares x^2 + constant for features x [features]; the leading 1 is the sample."""

    linear: Reals  # [1, .., features]
    squares: Reals
    constant: Reals  # [1, ..]

    @classmethod
    def of_features(cls, count: int) -> Sums:
        return cls(np.eye(count)[None], np.zeros((1, count, count)), np.zeros((1, count)))

    def __post_init__(self) -> None:
        if self.linear.size > _MOST_NUMBERS:
            raise UnsupportedNode(f"makes sums of more than {_MOST_NUMBERS} products")

    def each(self, change: Callable[[Reals], Reals], with_constant: bool = True) -> Sums:
        """Applies the change of numbers [1, ..] to every coefficient; linear in them."""
        coefficients = [np.moveaxis(part, -1, 0) for part in (self.linear, self.squares)]
        linear, squares = (np.moveaxis(np.stack([change(plane) for plane in part]), 0, -1) for part in coefficients)
        return Sums(linear, squares, change(self.constant) if with_constant else self.constant)

    def plus(self, other: Sums | Reals, sign: float = 1.0) -> Sums:
        if isinstance(other, Sums):
            return Sums(
                self.linear + sign * other.linear,
                self.squares + sign * other.squares,
                self.constant + sign * other.constant,
            )
        constant = self.constant + sign * other
        return self.each(lambda plane: np.broadcast_to(plane, constant.shape), with_constant=False)._with(constant)

    def times(self, factor: Reals) -> Sums:
        return self.each(lambda plane: plane * factor)

    def squared(self) -> Sums:
        """Squares numbers that are linear in one feature each."""
        if self.squares.any() or bool((np.count_nonzero(self.linear, axis=-1) > 1).any()):
            raise UnsupportedNode("multiplies features with each other")
        linear = 2 * self.linear * self.constant[..., None]
        return Sums(linear, np.square(self.linear), np.square(self.constant))

    def _with(self, constant: Reals) -> Sums:
        return replace(self, constant=np.asarray(constant, dtype=np.float64))


def score_sums(
    nodes: Sequence[onnx.NodeProto], first: str, count: int, output: str, constants: _Constants
) -> Sums | None:
    """Returns the scores [1, outputs] as sums of the `count` features in tensor `first`; None where a node is none of these."""
    values: dict[str, Sums] = {first: Sums.of_features(count)}
    try:
        for node in nodes:
            values[node.output[0]] = _SUMS[node.op_type](node, values, constants)
    except (KeyError, UnsupportedNode, ValueError, IndexError):
        return None
    sums = values.get(output)
    return sums if sums is not None and sums.constant.ndim == 2 else None


def _parts(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> list[Sums | Reals]:
    return [
        values[name] if name in values else np.asarray(constants[name], dtype=np.float64) for name in node.input if name
    ]


def _add(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    first, second = _parts(node, values, constants)
    return first.plus(second) if isinstance(first, Sums) else second.plus(first)  # type: ignore[union-attr]


def _subtract(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    first, second = _parts(node, values, constants)
    if isinstance(first, Sums):
        return first.plus(second, -1.0)
    assert isinstance(second, Sums)
    return second.times(np.array(-1.0)).plus(first)


def _multiply(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    first, second = _parts(node, values, constants)
    if isinstance(first, Sums) and isinstance(second, Sums):
        if node.input[0] != node.input[1]:
            raise UnsupportedNode("multiplies features with each other")
        return first.squared()
    return first.times(second) if isinstance(first, Sums) else second.times(first)  # type: ignore[arg-type, union-attr]


def _divide(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    return values[node.input[0]].times(1 / np.asarray(constants[node.input[1]], dtype=np.float64))


def _power(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    if not bool((np.asarray(constants[node.input[1]]) == 2).all()):
        raise UnsupportedNode("takes another power than the square")
    return values[node.input[0]].squared()


def _matrix(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    matrix = np.asarray(constants[node.input[1]], dtype=np.float64)
    if matrix.ndim != 2:
        raise UnsupportedNode("multiplies by something else than a matrix")
    return values[node.input[0]].each(lambda plane: plane @ matrix)


def _general_matrix(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    node_attributes = attributes(node)
    matrix = np.asarray(constants[node.input[1]], dtype=np.float64) * node_attributes.get("alpha", 1.0)
    result = values[node.input[0]].each(
        lambda plane: plane @ (matrix.T if node_attributes.get("transB", 0) else matrix)
    )
    if node_attributes.get("transA", 0):
        raise UnsupportedNode("transposes samples")
    if len(node.input) < 3:
        return result
    return result.plus(np.asarray(constants[node.input[2]], dtype=np.float64) * node_attributes.get("beta", 1.0))


def _sum_up(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    node_attributes = attributes(node)
    given = node_attributes.get("axes", constants[node.input[1]].tolist() if len(node.input) > 1 else None)
    x = values[node.input[0]]
    if given is None or any(int(axis) % x.constant.ndim == 0 for axis in given):
        raise UnsupportedNode("adds up samples")
    axes = tuple(int(axis) % x.constant.ndim for axis in given)
    return x.each(lambda plane: plane.sum(axis=axes, keepdims=bool(node_attributes.get("keepdims", 1))))


def _reshaped(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    x = values[node.input[0]]
    shape = [int(extent) for extent in constants[node.input[1]]]
    if shape[0] not in (-1, 0, 1) or (-1 in shape[1:] and shape[0] == -1):
        raise UnsupportedNode("moves samples")
    shape = [1, *(x.constant.shape[i] if extent == 0 else extent for i, extent in enumerate(shape) if i)]
    return x.each(lambda plane: plane.reshape(shape))


def _negate(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    return values[node.input[0]].times(np.array(-1.0))


def _same(node: onnx.NodeProto, values: Mapping[str, Sums], constants: _Constants) -> Sums:
    if node.op_type == "Cast" and attributes(node)["to"] not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        raise UnsupportedNode("rounds")
    return values[node.input[0]]


_SUMS: Final[dict[str, Callable[[onnx.NodeProto, Mapping[str, Sums], _Constants], Sums]]] = {
    "Add": _add,
    "Cast": _same,
    "Div": _divide,
    "Gemm": _general_matrix,
    "Identity": _same,
    "MatMul": _matrix,
    "Mul": _multiply,
    "Neg": _negate,
    "Pow": _power,
    "ReduceSum": _sum_up,
    "Reshape": _reshaped,
    "Sub": _subtract,
}
