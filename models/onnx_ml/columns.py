"""The nodes of an ONNX-ML graph before its model, as what the client does to the user's columns.

Tensors are recipes of columns (column_flow.py). Arithmetic is float64 here and float32 in ONNX Runtime: a scaled feature within rounding of a
tree's threshold may fall on its other side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from cloakwork.models.client_steps import Binarise, Equal, Function, Polynomials, Project
from cloakwork.models.client_steps.column_flow import Codes, ColumnFlow, Recipe
from cloakwork.models.client_steps.first import REFUSE
from cloakwork.models.errors import CompileError, Problem, UnsupportedNode
from cloakwork.models.onnx_import.graph_order import constants_of, fold_constant
from cloakwork.models.onnx_ml.attributes import Attributes, attributes

_INTEGERS: Final = (TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64)
_MOST_COLUMNS: Final = 1 << 16
_NORMS: Final = {"MAX": "max", "L1": "l1", "L2": "l2"}


@dataclass
class Tensors:
    """The tensors known by name while the graph is walked."""

    flow: ColumnFlow
    recipes: dict[str, Recipe]
    constants: dict[str, NDArray[Any]]
    types: list[int] = field(default_factory=list)  # of the user's columns
    opsets: dict[str, int] = field(default_factory=dict)
    widths: dict[str, int] = field(
        default_factory=dict
    )  # columns of a tensor whose shape is asked for, by the name of the answer
    model_nodes: list[onnx.NodeProto] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return name in self.recipes or name in self.constants or name in self.widths


def read_columns(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], output: str, *, table_model: bool = True
) -> tuple[Tensors, set[str], list[Problem]]:
    """Returns recipes of every tensor that tensor `output` needs, the nodes that make them (by their first output), and what is wrong with some.

    Args:
        nodes: of the graph, each after those that it reads.
        table_model: whether `output` is what a tree or linear operator reads; else it is the end of a model in standard operators, which
            begins with the first matrix product or node that the client has no step for: those are `model_nodes` of the result.
    """
    tensors = _inputs(model)
    producer = {name: node for node in nodes for name in node.output}
    needed: set[str] = set()
    waiting = [output]
    while waiting:
        node = producer.get(waiting.pop())
        if node is not None and node.output[0] not in needed:
            needed.add(node.output[0])
            waiting += list(node.input)
    problems: list[Problem] = []
    inside: set[str] = set()  # tensors of the model
    for node in nodes:
        if node.output[0] not in needed:
            continue
        try:
            if not table_model and (node.op_type in _PRODUCTS or any(name in inside for name in node.input)):
                raise UnsupportedNode("belongs to the model")
            if all(tensors.has(name) for name in node.input if name):
                _read(node, tensors)  # else it follows from a node that is reported
        except UnsupportedNode as error:
            inside |= set(node.output)
            if table_model:
                problems.append(Problem(node.name, node.op_type, str(error)))
            else:
                tensors.model_nodes.append(node)
    return tensors, needed, problems


def _inputs(model: onnx.ModelProto) -> Tensors:
    """Returns one input of all columns, or one for each, which names them."""
    graph = model.graph
    constants: dict[str, NDArray[Any]] = dict(constants_of(graph))
    inputs = [value for value in graph.input if value.name not in constants]
    widths: list[int] = []
    types: list[int] = []
    for value in inputs:
        shape = [extent.dim_value for extent in value.type.tensor_type.shape.dim]
        if len(shape) != 2 or shape[1] < 1:
            raise CompileError(
                f"model: expected inputs of shape [samples, columns], got {shape} for '{value.name}'; "
                "convert the model with a fixed number of columns"
            )
        if sum(widths) + shape[1] > _MOST_COLUMNS:
            raise CompileError(f"model: expected at most {_MOST_COLUMNS} columns, got {shape[1]} in '{value.name}'")
        widths.append(int(shape[1]))
        types += [int(value.type.tensor_type.elem_type)] * int(shape[1])
    single = all(width == 1 for width in widths) and len(widths) > 1
    flow = ColumnFlow(sum(widths), tuple(value.name for value in inputs) if single else None)
    start, recipes, first = flow.start(), {}, 0
    for value, width in zip(inputs, widths, strict=True):
        recipes[value.name] = start[first : first + width]
        first += width
    return Tensors(flow, recipes, constants, types, {entry.domain: entry.version for entry in model.opset_import})


def _read(node: onnx.NodeProto, tensors: Tensors) -> None:
    node_attributes = attributes(node)
    if node.op_type == "Constant":
        tensors.constants[node.output[0]] = np.asarray(node_attributes["value"])
        return
    if node.input and all(name in tensors.constants for name in node.input if name):
        feeds = {name: tensors.constants[name] for name in node.input if name}
        tensors.constants.update(zip(node.output, fold_constant(node, feeds, tensors.opsets), strict=False))
        return
    if node.op_type == "Shape":
        tensors.widths[node.output[0]] = len(_recipe(node, tensors))
        return
    if node.op_type == "ConstantOfShape" and node.input[0] in tensors.widths:
        tensors.recipes[node.output[0]] = _filled(node_attributes, tensors, tensors.widths[node.input[0]])
        return
    if node.op_type not in _OPERATORS:
        raise UnsupportedNode("the client has no such step; do it before, on the table itself")
    tensors.recipes[node.output[0]] = _OPERATORS[node.op_type](node, node_attributes, tensors)


# --- one function per operator ------------------------------------------------------------------------------------------------------


def _recipe(node: onnx.NodeProto, tensors: Tensors, index: int = 0) -> Recipe:
    name = node.input[index]
    if name not in tensors.recipes:
        raise UnsupportedNode(f"expected columns as input {index}, got a constant")
    return tensors.recipes[name]


def _constant(node: onnx.NodeProto, tensors: Tensors, index: int) -> NDArray[Any]:
    name = node.input[index]
    if name not in tensors.constants:
        raise UnsupportedNode(f"expected a constant as input {index}, got columns")
    return tensors.constants[name]


def _same(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    return _recipe(node, tensors)


def _cast(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    recipe = _recipe(node, tensors)
    whole = all(tensors.flow.is_given(column) and tensors.types[column.source] in _INTEGERS for column in recipe)
    if node_attributes["to"] in (TensorProto.FLOAT, TensorProto.DOUBLE) or (
        node_attributes["to"] in _INTEGERS and whole
    ):
        return recipe
    if node_attributes["to"] == TensorProto.STRING and all(
        tensors.flow.is_given(c) and tensors.types[c.source] == TensorProto.STRING for c in recipe
    ):
        return recipe
    if node_attributes["to"] in _INTEGERS and all(c.codes is None for c in recipe):
        return tensors.flow.apply(recipe, (Function("trunc"),), len(recipe))
    raise UnsupportedNode("makes texts of numbers, or truth values; do it before, on the table itself")


def _reshape(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    recipe, shape = _recipe(node, tensors), [int(extent) for extent in _constant(node, tensors, 1)]
    if len(shape) != 2 or shape[0] not in (-1, 0) or shape[1] not in (-1, len(recipe)):
        raise UnsupportedNode(f"to {shape}; expected samples of {len(recipe)} columns")
    return recipe


def _concat(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    if node_attributes.get("axis", 1) not in (1, -1):
        raise UnsupportedNode("joins samples; expected columns")
    parts = [_recipe(node, tensors, i) for i in range(len(node.input))]
    if sum(map(len, parts)) > _MOST_COLUMNS:
        raise UnsupportedNode(f"joins more than {_MOST_COLUMNS} columns")
    return [column for part in parts for column in part]


def _select(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    recipe, chosen = _recipe(node, tensors), _constant(node, tensors, 1).reshape(-1)
    if node.op_type == "Gather" and node_attributes.get("axis", 0) not in (1, -1):
        raise UnsupportedNode("chooses samples; expected columns")
    if bool((chosen < -len(recipe)).any() or (chosen >= len(recipe)).any()):
        raise UnsupportedNode(f"chooses columns that do not exist among {len(recipe)}")
    return [recipe[int(i)] for i in chosen]


def _imputer(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    if "imputed_value_floats" not in node_attributes or not np.isnan(node_attributes.get("replaced_value_float", 0.0)):
        raise UnsupportedNode("replaces a number; only missing values (NaN) can be replaced")
    return tensors.flow.fill(_recipe(node, tensors), node_attributes["imputed_value_floats"])


def _scaler(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    return tensors.flow.affine(
        _recipe(node, tensors), node_attributes.get("offset", 0.0), node_attributes.get("scale", 1.0)
    )


def _normalizer(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    return tensors.flow.normalise(_recipe(node, tensors), _NORMS[node_attributes.get("norm", "MAX")])


def _arithmetic(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    """Reads Add, Sub, Mul, Div of columns and a constant."""
    commutes = node.op_type in ("Add", "Mul")
    place = 1 if node.input[0] in tensors.recipes or not commutes else 0
    recipe, value = _recipe(node, tensors, 1 - place), np.asarray(_constant(node, tensors, place), dtype=np.float64)
    if value.size not in (1, len(recipe)):
        raise UnsupportedNode(f"with a constant of shape {list(value.shape)}; expected one number, or {len(recipe)}")
    match node.op_type:
        case "Add":
            return tensors.flow.affine(recipe, -value, 1.0)
        case "Sub":
            return tensors.flow.affine(recipe, value, 1.0)
        case "Mul":
            return tensors.flow.affine(recipe, 0.0, value)
        case _:
            return tensors.flow.affine(recipe, 0.0, 1 / value)


def _one_hot_encoder(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    categories = node_attributes.get("cats_strings") or node_attributes.get("cats_int64s") or []
    recipe = _recipe(node, tensors)
    if len(recipe) != 1 or not categories:
        raise UnsupportedNode("expected one column, and its categories")
    zeros = bool(node_attributes.get("zeros", 1))
    if not tensors.flow.is_given(recipe[0]) and node_attributes.get("cats_int64s") and zeros:
        values = np.array(categories, dtype=np.float64)
        return tensors.flow.apply(recipe, (Equal(np.zeros(len(values), np.int64), values),), len(values))
    codes = Codes.of(categories, range(len(categories)), -1.0 if zeros else REFUSE, len(categories))
    encoded = tensors.flow.encode(recipe[0], codes)
    return [replace(encoded, indicator=i) for i in range(len(categories))]


def _matrix(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    """Reads principal components and other projections."""
    recipe, matrix = _recipe(node, tensors), np.asarray(_constant(node, tensors, 1), dtype=np.float64)
    if matrix.ndim != 2 or len(matrix) != len(recipe):
        raise UnsupportedNode(f"by a constant of shape {list(matrix.shape)}; expected a matrix of {len(recipe)} rows")
    return tensors.flow.apply(recipe, (Project(np.zeros(len(matrix)), matrix),), matrix.shape[1])


def _product(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    recipe = _recipe(node, tensors)
    axes = node_attributes.get("axes") or (_constant(node, tensors, 1).tolist() if len(node.input) > 1 else [])
    if [axis % 2 for axis in axes] != [1] or not node_attributes.get("keepdims", 1):
        raise UnsupportedNode("multiplies samples; expected columns")
    return tensors.flow.product(recipe)


def _above(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    """Reads Binarizer, or Greater than a constant: 1 above it, else 0."""
    recipe = _recipe(node, tensors)
    given = node_attributes.get("threshold", 0.0) if node.op_type == "Binarizer" else _constant(node, tensors, 1)
    threshold = np.asarray(given, dtype=np.float64).reshape(-1)
    if threshold.size not in (1, len(recipe)):
        raise UnsupportedNode(f"compares {len(recipe)} columns with {threshold.size} numbers")
    return tensors.flow.apply(recipe, (Binarise(np.broadcast_to(threshold, len(recipe)).copy()),), len(recipe))


def _function(node: onnx.NodeProto, node_attributes: Attributes, tensors: Tensors) -> Recipe:
    recipe = _recipe(node, tensors)
    return tensors.flow.apply(recipe, (Function(_FUNCTIONS[node.op_type]),), len(recipe))


def _filled(node_attributes: Attributes, tensors: Tensors, width: int) -> Recipe:
    """Returns columns that are all one number: a product of no columns, which is 1, moved."""
    if width > _MOST_COLUMNS:
        raise UnsupportedNode(f"makes more than {_MOST_COLUMNS} columns")
    value = float(np.asarray(node_attributes.get("value", 0.0)).reshape(-1)[0])
    first = tensors.flow.start()[:1]
    ones = tensors.flow.apply(first, (Polynomials(np.zeros((width, 1), np.int64)),), width)
    return tensors.flow.affine(ones, 1.0 - value, 1.0)


_PRODUCTS: Final = ("Conv", "Gemm", "MatMul")  # with which a model begins
_FUNCTIONS: Final = {
    "Abs": "absolute",
    "Atan": "arctan",
    "Ceil": "ceil",
    "Cos": "cos",
    "Exp": "exp",
    "Floor": "floor",
    "Log": "log",
    "Neg": "negative",
    "Reciprocal": "reciprocal",
    "Round": "rint",
    "Sign": "sign",
    "Sin": "sin",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}


_OPERATORS: Final[Mapping[str, Callable[[onnx.NodeProto, Attributes, Tensors], Recipe]]] = {
    "Add": _arithmetic,
    "ArrayFeatureExtractor": _select,
    "Binarizer": _above,
    "Cast": _cast,
    "Concat": _concat,
    "Div": _arithmetic,
    "FeatureVectorizer": _concat,
    "Gather": _select,
    "Greater": _above,
    "Identity": _same,
    "Imputer": _imputer,
    "MatMul": _matrix,
    "Mul": _arithmetic,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot_encoder,
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Scaler": _scaler,
    "Sub": _arithmetic,
    **dict.fromkeys(_FUNCTIONS, _function),
}
