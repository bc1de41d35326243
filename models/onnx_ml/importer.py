"""Models of tables from ONNX-ML files, as skl2onnx, onnxmltools and others write them.

What prepares the columns (columns.py) ends in one model node; what comes after it (ZipMap, casts of labels) only renames results. The
preparation becomes the client's steps, the node a TreeEnsemble (TreeEnsembleClassifier, TreeEnsembleRegressor, TreeEnsemble) or a LinearModel
(LinearClassifier, LinearRegressor, SVMClassifier and SVMRegressor with a linear kernel). Without such a node the model is in standard operators
(scores.py): a LinearModel where its scores are sums of features or their squares, else a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import (
    InputStep,
    Labels,
    OutputStep,
    Polynomials,
    Standardise,
    Transform,
    final_steps,
)
from cloakwork.models.client_steps.transforms import plain_labels
from cloakwork.models.errors import CompileError, Problem, UnsupportedNode, unsupported
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.onnx_import.graph_order import constants_of, ordered_nodes
from cloakwork.models.onnx_import.importer import TABLE_OPERATORS
from cloakwork.models.onnx_ml.attributes import Attributes, attributes
from cloakwork.models.onnx_ml.columns import Tensors, read_columns
from cloakwork.models.onnx_ml.scores import EACH, Head, Sums, read_head, score_sums
from cloakwork.models.onnx_ml.trees import tree_ensemble, tree_ensemble_5
from cloakwork.models.trees.ensemble import TreeEnsemble

_AFTER: Final = ("ArrayFeatureExtractor", "Cast", "Identity", "Normalizer", "Reshape", "ZipMap")
_ROUNDED: Final = 1e-4  # that float32 weights of a tree add up to 1
_POST_TRANSFORMS: Final = {"NONE": "none", "LOGISTIC": "sigmoid", "SOFTMAX": "softmax"}


@dataclass(frozen=True, eq=False)
class Network:
    """A model of the numbers that the client's steps make, and what the client does with its result."""

    model: onnx.ModelProto
    after: tuple[OutputStep, ...]


def import_onnx_ml(model: onnx.ModelProto) -> tuple[tuple[InputStep, ...], TreeEnsemble | LinearModel | Network]:
    """Returns the client's steps before the model, the first one checking the columns, and the model.

    Raises:
        UnsupportedOperatorError: names every node that is not part of such a chain.
    """
    ordered = ordered_nodes(model.graph)
    nodes = [node for node in ordered if node.op_type in TABLE_OPERATORS]
    if not nodes:
        return _standard_operators(model, ordered)
    if len(nodes) > 1:
        raise CompileError(
            f"model: expected one tree or linear model, got {len(nodes)}: an ensemble of models; compile it from the fitted estimator, "
            "with cloakwork.compile"
        )
    tensors, before, problems = read_columns(model, ordered, nodes[0].input[0])
    problems += _after(model, nodes[0], before)
    recipe = tensors.recipes.get(nodes[0].input[0])
    steps: tuple[InputStep, ...] = ()
    imported: TreeEnsemble | LinearModel | None = None
    try:
        if recipe is not None:
            steps = tensors.flow.finish(recipe)
        imported = _READERS[nodes[0].op_type](attributes(nodes[0]), _single(model), len(recipe or tensors.types))
        divided = any(node.op_type == "Normalizer" and node.output[0] not in before for node in ordered)
        imported = _shared(imported) if divided else _each_by_itself(imported)
    except UnsupportedNode as error:
        problems.append(Problem(nodes[0].name, nodes[0].op_type, str(error)))
    except (ValueError, CompileError):
        if recipe is not None:  # else another number of columns, which follows from what is reported
            raise
    if problems or imported is None:
        raise unsupported(problems)
    if isinstance(imported, TreeEnsemble) and imported.takes_missing:
        steps = tensors.flow.finish(recipe or [], missing=True)
    return steps, imported


def _each_by_itself(model: TreeEnsemble | LinearModel) -> TreeEnsemble | LinearModel:
    """LOGISTIC of several scores: probabilities that do not add up to 1, unless a node after the model divides them by their sum."""
    if model.labels is None or model.transform != "sigmoid" or model.outputs == 1:
        return model
    return replace(model, transform="decision", after=_apart(model.labels))


def _least_value(model: TreeEnsemble) -> float:
    assert model.base is not None
    return float(min(model.base.min(), *(tree.values.min() for tree in model.trees)))


def _shared(model: TreeEnsemble | LinearModel) -> TreeEnsemble | LinearModel:
    """Scores that a node after the model divides by the sum of their sizes. UnsupportedNode where that is not the sum itself."""
    if model.labels is None or model.transform not in ("none", "decision"):
        return model
    if model.outputs == 1 and (isinstance(model, LinearModel) or _is_share(model)):
        return model
    if isinstance(model, LinearModel) or model.outputs == 1 or _least_value(model) < 0:
        raise UnsupportedNode("has scores of either sign that a Normalizer divides; leave the Normalizer out")
    sums = {round(float(total), 5) for tree in model.trees for total in tree.values[tree.leaves].sum(axis=1)}
    return model if len(sums) == 1 and _adds_up_to_one(model, *sums) else replace(model, transform="shares")


def _is_share(model: TreeEnsemble) -> bool:
    """Whether one score s, beside 1 - s, is a share of the two."""
    if model.transform != "none" or model.base is None:
        return False
    leaves = [tree.values[tree.leaves] for tree in model.trees]
    low, high = (float(model.base[0]) + sum(float(end(values)) for values in leaves) for end in (np.min, np.max))
    return low >= 0 and high <= 1 + _ROUNDED * len(leaves)


def _adds_up_to_one(model: TreeEnsemble, of_a_tree: float) -> bool:
    count = len(model.trees) if model.aggregation == "sum" else 1
    assert model.base is not None
    return bool(abs(of_a_tree * count + model.base.sum() - 1) < _ROUNDED * count)


# --- models in standard operators ------------------------------------------------------------------------------------------------


def _standard_operators(
    model: onnx.ModelProto, ordered: list[onnx.NodeProto]
) -> tuple[tuple[InputStep, ...], LinearModel | Network]:
    """Raises UnsupportedOperatorError where the graph is no chain of columns, scores and a label."""
    try:
        head = read_head(model.graph, ordered, constants_of(model.graph))
        tensors, before, _ = read_columns(model, ordered, head.scores, table_model=False)
        inside = {name for node in tensors.model_nodes for name in node.output}
        read = {name for node in tensors.model_nodes for name in node.input if name in tensors.recipes} - inside
        if len(read) != 1:
            raise UnsupportedNode(f"reads {len(read)} tables of columns at its beginning; expected one")
        (first,) = read
        _check_after(ordered, before, {head.scores})
        steps, width = tensors.flow.finish(tensors.recipes[first]), len(tensors.recipes[first])
        sums = score_sums(tensors.model_nodes, first, width, head.scores, tensors.constants)
        foreign = [node for node in tensors.model_nodes if node.domain == "ai.onnx.ml"]
        if sums is None and foreign:
            raise UnsupportedNode(
                f"has {foreign[0].op_type} '{foreign[0].name}' within the model; expected it before the first matrix product"
            )
    except UnsupportedNode as error:
        raise unsupported([Problem(model.graph.name, "the graph", str(error))]) from error
    if sums is not None:
        return _linear_scores(head, sums, steps)
    transform = "none" if head.transform == "decision" and head.labels is None else head.transform
    after = _apart(head.labels) if transform == EACH else final_steps(transform, 1.0, head.labels)
    return steps, Network(_cut(model, tensors, first, width, head.scores), after)


def _check_after(ordered: list[onnx.NodeProto], before: set[str], following: set[str]) -> None:
    """Checks that what is not before the scores follows from them and constants alone."""
    following = following | {
        name for node in ordered if node.output[0] in before for name in node.output if name in following
    }
    for node in ordered:
        if node.output[0] in before:
            continue
        if (
            node.input
            and not any(name in following for name in node.input)
            and any(name in before for name in node.input)
        ):
            raise UnsupportedNode(f"has a second result, of node '{node.name}', that does not follow from the scores")
        following |= set(node.output)


def _linear_scores(head: Head, sums: Sums, steps: tuple[InputStep, ...]) -> tuple[tuple[InputStep, ...], LinearModel]:
    linear, squares, constant = sums.linear[0], sums.squares[0], sums.constant[0]
    transform = head.transform
    if head.labels is not None and len(head.labels) == len(constant) == 2 and transform in ("softmax", "decision"):
        linear, squares, constant = (part[1:] - part[:1] for part in (linear, squares, constant))
        transform = "sigmoid" if transform == "softmax" else transform
    if squares.any():
        used = np.flatnonzero(squares.any(axis=0))
        curved = np.where(squares != 0, squares, np.nan)
        centre = np.zeros(linear.shape[1])  # the mean of the classes' own: squares are small around it
        centre[used] = np.nanmean(-linear[:, used] / (2 * curved[:, used]), axis=0)
        constant = constant + linear @ centre + squares @ np.square(centre)
        linear = np.concatenate([linear + 2 * squares * centre, squares[:, used]], axis=1)
        unit = np.eye(len(centre), dtype=np.int64)
        steps = (*steps, Standardise(centre, np.ones(len(centre))), Polynomials(np.concatenate([unit, 2 * unit[used]])))
    if head.labels is None:
        transform = "none"
    if transform == EACH:
        return steps, LinearModel(linear, constant, "decision", labels=head.labels, after=_apart(head.labels))
    return steps, LinearModel(linear, constant, transform, labels=head.labels)


def _apart(labels: Any) -> tuple[OutputStep, ...]:
    """Returns a probability for each class that says nothing of the others."""
    return Transform("sigmoid"), Labels(plain_labels(labels))


def _cut(model: onnx.ModelProto, tensors: Tensors, first: str, width: int, output: str) -> onnx.ModelProto:
    """Returns the nodes between the columns and the scores as a model of their own."""
    read = {name for node in tensors.model_nodes for name in node.input}
    constants = [
        onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        for name, array in tensors.constants.items()
        if name in read
    ]
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        tensors.model_nodes,
        model.graph.name or "network",
        [onnx.helper.make_tensor_value_info(first, kind, ["batch", width])],
        [onnx.helper.make_empty_tensor_value_info(output)],
        constants,
    )
    return onnx.helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)


# --- around the model node ------------------------------------------------------------------------------------------------------


def _after(model: onnx.ModelProto, last: onnx.NodeProto, before: set[str]) -> list[Problem]:
    """Returns a problem for each node that is neither before the model nor a known one after it."""
    constants = constants_of(model.graph)
    return [
        Problem(node.name, node.op_type, f"not one of {', '.join(_AFTER)} after the model")
        for node in model.graph.node
        if node.output[0] not in before
        and node.output[0] != last.output[0]
        and not _only_renames(node, last, constants)
    ]


def _only_renames(node: onnx.NodeProto, last: onnx.NodeProto, constants: Mapping[str, NDArray[Any]]) -> bool:
    """Casts, choices and dictionaries of results, times one; shares of classes add up to 1 already."""
    if node.op_type == "Normalizer":
        return "Classifier" in last.op_type and attributes(node).get("norm") == "L1"
    if node.op_type == "Mul":  # onnxmltools
        return any(bool((constants[name] == 1).all()) for name in node.input if name in constants)
    return node.op_type in _AFTER


def _single(model: onnx.ModelProto) -> bool:
    """Whether features are float32, as ONNX Runtime then compares them."""
    return bool(model.graph.input[0].type.tensor_type.elem_type != onnx.TensorProto.DOUBLE)


# --- model nodes ------------------------------------------------------------------------------------------------------------------


def _linear_regressor(node_attributes: Attributes, single: bool, features: int) -> LinearModel:
    outputs = int(node_attributes.get("targets", 1))
    if outputs == 1:
        _check_one_score(post_transform(node_attributes), regression=True)
    return LinearModel(
        _reals(node_attributes["coefficients"]).reshape(outputs, features),
        _reals(node_attributes.get("intercepts", np.zeros(outputs))),
        post_transform(node_attributes),
    )


def _linear_classifier(node_attributes: Attributes, single: bool, features: int) -> LinearModel:
    labels = class_labels(node_attributes)
    coefficients = _reals(node_attributes["coefficients"]).reshape(-1, features)
    intercept = _reals(node_attributes.get("intercepts", np.zeros(len(coefficients))))
    opposite = len(coefficients) == 2 and bool(
        np.allclose(coefficients[0], -coefficients[1]) and np.allclose(intercept[0], -intercept[1])
    )
    if len(labels) == 2 and opposite and post_transform(node_attributes) != "softmax":
        coefficients, intercept = coefficients[1:], intercept[1:]  # skl2onnx writes [-w, w]
    name = post_transform(node_attributes)
    if len(coefficients) == 1:
        _check_one_score(name, regression=False)
    return LinearModel(coefficients, intercept, "decision" if name == "none" else name, labels=labels)


def _svm_weights(node_attributes: Attributes, features: int) -> tuple[Reals, Reals]:
    """sum_i coefficient_i (sv_i . x) + rho of a linear kernel is one row of weights."""
    if node_attributes.get("kernel_type", "LINEAR") != "LINEAR":
        raise UnsupportedNode(f"kernel {node_attributes['kernel_type']}; only the linear one can run on encrypted data")
    if (
        node_attributes.get("prob_a")
        or node_attributes.get("one_class")
        or node_attributes.get("post_transform", "NONE") != "NONE"
    ):
        raise UnsupportedNode("probabilities or one class; fit with probability=False, for decision values")
    vectors = node_attributes.get("support_vectors")
    if not vectors or len(node_attributes.get("rho", [])) != 1:
        raise UnsupportedNode("of more than two classes votes for pairs of them; use LinearSVC, which compares scores")
    weights = _reals(node_attributes["coefficients"]) @ _reals(vectors).reshape(-1, features)
    return weights[None], _reals(node_attributes["rho"])


def _svm_regressor(node_attributes: Attributes, single: bool, features: int) -> LinearModel:
    return LinearModel(*_svm_weights(node_attributes, features))


def _svm_classifier(node_attributes: Attributes, single: bool, features: int) -> LinearModel:
    labels = class_labels(node_attributes)
    weights, rho = _svm_weights(node_attributes, features)
    return LinearModel(-weights, -rho, "decision", labels=labels)  # positive for the first class


def class_labels(node_attributes: Attributes) -> NDArray[Any]:
    texts = node_attributes.get("classlabels_strings")
    numbers = node_attributes.get("classlabels_int64s", node_attributes.get("classlabels_ints"))
    if not texts and not numbers:
        raise UnsupportedNode("names no classes")
    return np.asarray(texts or numbers)


def post_transform(node_attributes: Attributes) -> str:
    name = node_attributes.get("post_transform", "NONE")
    if name not in _POST_TRANSFORMS:
        raise UnsupportedNode(f"post_transform {name}; expected one of {', '.join(_POST_TRANSFORMS)}")
    return _POST_TRANSFORMS[name]


def _check_one_score(transform: str, regression: bool) -> None:
    """ONNX Runtime leaves out what it does not know of one score, and other runtimes do not."""
    if transform == "softmax" or (regression and transform != "none"):
        raise UnsupportedNode(
            "has a post_transform of one score, which ONNX Runtime leaves out and the standard has; export the model without it and apply it "
            "to the result"
        )


def _reals(values: Any) -> Reals:
    return np.asarray(values, dtype=np.float64)


def _trees(classifier: bool) -> Callable[[Attributes, bool, int], TreeEnsemble]:
    def read(node_attributes: Attributes, single: bool, features: int) -> TreeEnsemble:
        labels = class_labels(node_attributes) if classifier else None
        model = tree_ensemble(node_attributes, single, features, post_transform(node_attributes), labels)
        if model.outputs == 1:
            _check_one_score(model.transform, regression=not classifier)
        return model

    return read


_READERS: Final[dict[str, Callable[[Attributes, bool, int], TreeEnsemble | LinearModel]]] = {
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "TreeEnsemble": tree_ensemble_5,
    "TreeEnsembleClassifier": _trees(classifier=True),
    "TreeEnsembleRegressor": _trees(classifier=False),
}
