"""Several models as one: sums of their scores, scores side by side, scores through a matrix. Exact, because all of them are sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import ZERO_IS_MISSING, Append, Function, InputStep, Select
from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble

Model: TypeAlias = TreeEnsemble | LinearModel


@dataclass(frozen=True, eq=False)
class ImportedModel:
    """An imported estimator: a model of the numbers that `steps` make of its features; without steps of the features themselves."""

    model: Model | onnx.ModelProto
    steps: tuple[InputStep, ...] = ()


def table_model(part: ImportedModel, owner: Any) -> Model:
    """Returns the part's model. UnsupportedOperatorError for a network, and where what follows the scores is not one transform."""
    model = part.model
    if isinstance(model, onnx.ModelProto) or model.after is not None:
        raise UnsupportedOperatorError(
            f"{type(owner).__name__}: expected members that are trees, sums of trees or linear models with one label; compile others separately"
        )
    return model


def outputs(model: Model) -> int:
    return model.outputs


def mapped(model: Model, matrix: Reals, offset: Reals | float = 0.0) -> Model:
    """Returns the model of scores matrix + offset, without transform and labels. Args: matrix [outputs, new outputs]."""
    added = np.broadcast_to(np.asarray(offset, dtype=np.float64), matrix.shape[1])
    if isinstance(model, LinearModel):
        return LinearModel(
            matrix.T @ model.coefficients, model.intercept @ matrix + added, feature_names=model.feature_names
        )
    assert model.base is not None
    share = 1.0 if model.aggregation == "sum" else 1.0 / len(model.trees)
    trees = tuple(replace(tree, values=tree.values @ (matrix * share)) for tree in model.trees)
    plain: dict[str, Any] = {"transform": "none", "transform_parameter": 1.0, "labels": None}
    return replace(model, trees=trees, aggregation="sum", base=model.base @ matrix + added, **plain)


def summed(models: Sequence[Model], owner: Any) -> Model:
    """Returns the sum of the scores of models with as many outputs each, of which only the scores count.

    Raises:
        UnsupportedOperatorError: trees and linear models, or trees that compare features in different ways.
    """
    linear = [model for model in models if isinstance(model, LinearModel)]
    if len(linear) == len(models):
        return LinearModel(
            np.sum([model.coefficients for model in linear], axis=0),
            np.sum([model.intercept for model in linear], axis=0),
        )
    trees = [model for model in models if isinstance(model, TreeEnsemble)]
    if linear:
        raise UnsupportedOperatorError(
            f"{type(owner).__name__}: expected members of one kind, got trees and linear models; compile the members by themselves and "
            "put their results together at the client"
        )
    first = trees[0]
    if any((model.strict, model.single) != (first.strict, first.single) for model in trees):
        raise UnsupportedOperatorError(
            f"{type(owner).__name__}: its members compare features in different ways (float32 or float64, < or <=); use members of one library"
        )
    joined: list[Tree] = []
    base = np.zeros(first.outputs)
    for model in trees:
        part = mapped(model, np.eye(model.outputs))
        assert isinstance(part, TreeEnsemble) and part.base is not None
        joined += part.trees
        base = base + part.base
    if any(
        tree.missing_left is not None for tree in joined
    ):  # only of one member's features; those of others have none
        joined = [tree if tree.missing_left is not None else _complete(tree) for tree in joined]
    return TreeEnsemble(tuple(joined), first.features, base=base, strict=first.strict, single=first.single)


def _complete(tree: Tree) -> Tree:
    """Returns a tree of features that are never missing."""
    return replace(tree, missing_left=np.zeros(len(tree.left), dtype=np.bool_))


def makes_missing(steps: Sequence[InputStep]) -> bool:
    """Whether the client makes missing values of numbers that the user has."""
    return any(
        (isinstance(step, Function) and step.name == ZERO_IS_MISSING)
        or (isinstance(step, Append) and makes_missing(step.steps))
        for step in steps
    )


def side_by_side(models: Sequence[Model], owner: Any) -> Model:
    """Returns the scores of all models, one after the other."""
    ends = np.cumsum([model.outputs for model in models])
    whole = np.eye(int(ends[-1]))
    blocks = [whole[end - model.outputs : end] for model, end in zip(models, ends, strict=True)]
    return summed([mapped(model, block) for model, block in zip(models, blocks, strict=True)], owner)


def spread(model: Model, columns: NDArray[np.int64], features: int) -> Model:
    """Returns a model of some columns as one of all `features`."""
    if model.features == features and np.array_equal(columns, np.arange(features)):
        return replace(model, feature_names=None)
    if isinstance(model, LinearModel):
        places = np.eye(features)[columns]  # a column may be taken several times
        return replace(model, coefficients=model.coefficients @ places, feature_names=None)
    trees = tuple(
        replace(tree, feature=np.where(tree.left < 0, 0, columns[np.where(tree.left < 0, 0, tree.feature)]))
        for tree in model.trees
    )
    return replace(model, trees=trees, features=features, feature_names=None)


def on_one_table(
    parts: Sequence[ImportedModel], columns: Sequence[NDArray[np.int64]], features: int, owner: Any
) -> tuple[list[Model], tuple[InputStep, ...]]:
    """Returns models of one table, and the steps that make it of `features` columns: what members prepare by themselves lies beside the rest.

    Args:
        columns: which of the features each part takes.
    """
    models = [table_model(part, owner) for part in parts]
    places: list[NDArray[np.int64]] = []
    steps: list[InputStep] = []
    width = features
    for part, model, part_columns in zip(parts, models, columns, strict=True):
        if not part.steps:
            places.append(part_columns)
            continue
        steps.append(Append(part_columns, part.steps))
        places.append(np.arange(width, width + model.features))
        width += model.features
    if steps and all(part.steps for part in parts):  # nobody takes the features as they are
        steps.append(Select(np.arange(features, width)))
        places, width = [place - features for place in places], width - features
    return [spread(model, place, width) for model, place in zip(models, places, strict=True)], tuple(steps)
