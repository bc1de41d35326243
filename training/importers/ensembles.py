"""Estimators made of estimators: bagging, voting, stacking, one against the rest, several outputs, calibration; and AdaBoost of trees.

Members become one program: their scores are added up by the server where the mean of the members is linear in them (forests, regressors),
and decrypted side by side where it is not (a mean of logistic functions), for the client to put together. Then the client sees every member's
score, and the weights of what puts them together travel in the client specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import (
    Combine,
    Curves,
    Indicators,
    InputStep,
    LabelGroups,
    Labels,
    Members,
    OutputStep,
    Transform,
    final_steps,
)
from cloakwork.models.client_steps.transforms import LARGEST_NUMBER, class_threshold, log_odds, plain_labels
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.training.importers import sklearn_trees
from cloakwork.training.importers.combining import (
    ImportedModel,
    Model,
    mapped,
    on_one_table,
    side_by_side,
    summed,
    table_model,
)
from cloakwork.training.importers.nodes import unsupported_option

Read: TypeAlias = Callable[..., ImportedModel]
"""An estimator, or a pipeline that ends in one, as a part. Args: the estimator; which columns it gets, None for the table as it is."""


# --- means of members -----------------------------------------------------------------------------------------------------------


def bagging(estimator: Any, read: Read) -> ImportedModel:
    columns = [np.asarray(member_columns, dtype=np.int64) for member_columns in estimator.estimators_features_]
    classes = getattr(estimator, "classes_", None)
    votes = classes is not None and not hasattr(estimator.estimators_[0], "predict_proba")
    weights = np.full(len(columns), 1 / len(columns))
    return _averaged(estimator, estimator.estimators_, columns, weights, classes, votes, read)


def voting(estimator: Any, read: Read) -> ImportedModel:
    members = [member for member in estimator.estimators_ if not isinstance(member, str)]
    given = estimator._weights_not_none
    weights = np.ones(len(members)) if given is None else np.asarray(given, dtype=np.float64)
    classes = getattr(estimator, "classes_", None)
    hard = classes is not None and estimator.voting == "hard"
    return _averaged(estimator, members, None, weights / weights.sum(), classes, hard, read)


def _averaged(
    estimator: Any, members: Sequence[Any], columns: list[NDArray[np.int64]] | None, weights: Reals, classes: Any, votes: bool, read: Read
) -> ImportedModel:  # fmt: skip
    """Returns the weighted mean of the members' probabilities, votes or values. Members tell classes by their numbers."""
    models, steps = _members(estimator, members, columns, read)
    number = 0 if classes is None else len(classes)
    places = [_places(model, number) for model in models]
    after: tuple[OutputStep, ...]
    if not votes and all(model.transform == "none" for model in models):
        shares = [_shares(model) if number else model for model in models]
        parts = [mapped(s, place * w) for s, place, w in zip(shares, places, weights, strict=True)]
        return ImportedModel(_finished(summed(parts, estimator), "none", classes), steps)
    after = (
        _member_steps(models, number > 0, votes),
        Combine(
            np.concatenate([place * w for place, w in zip(places, weights, strict=True)]), np.zeros(places[0].shape[1])
        ),
        *final_steps("none", 1.0, classes),
    )
    return ImportedModel(replace(side_by_side(models, estimator), after=after), steps)


def _members(
    estimator: Any, members: Sequence[Any], columns: list[NDArray[np.int64]] | None, read: Read
) -> tuple[list[Model], tuple[InputStep, ...]]:
    features = int(estimator.n_features_in_)
    everything = [np.arange(features)] * len(members)
    chosen: Sequence[NDArray[np.int64] | None] = columns or [None] * len(members)
    parts = [read(member, member_columns) for member, member_columns in zip(members, chosen, strict=True)]
    return on_one_table(parts, columns or everything, features, estimator)


def _member_steps(models: Sequence[Model], classes: bool, votes: bool = False) -> Members:
    return Members(
        np.array([model.outputs for model in models]),
        tuple(model.transform for model in models),
        np.array([model.transform_parameter for model in models]),
        classes,
        votes,
    )


def _places(model: Model, classes: int) -> Reals:
    """Returns [columns, classes]: which class a column of the member's probabilities is of; of values each column its own."""
    if not classes:
        return np.eye(model.outputs)
    assert model.labels is not None
    return np.eye(classes)[model.labels.astype(np.int64)]


def _shares(model: Model) -> Model:
    """Returns a column for each class: one column alone is the second one's."""
    if model.outputs > 1:
        return model
    return replace(mapped(model, np.array([[-1.0, 1.0]]), np.array([1.0, 0.0])), labels=model.labels)


def _finished(model: Model, transform: str, labels: Any) -> Model:
    return replace(model, transform=transform, labels=None if labels is None else np.asarray(labels))


# --- a linear model on the members' results ---------------------------------------------------------------------------------------


def stacking(estimator: Any, read: Read) -> ImportedModel:
    if estimator.passthrough:
        raise unsupported_option(estimator, "passthrough", True, "leave it out")
    final = read(estimator.final_estimator_)
    if not isinstance(final.model, LinearModel) or final.steps or final.model.after is not None:
        raise unsupported_option(
            estimator, "final_estimator", type(estimator.final_estimator_).__name__, "use a linear one"
        )
    methods = [method for method in estimator.stack_method_ if method is not None]
    models, steps = _members(estimator, estimator.estimators_, None, read)
    classes = getattr(estimator, "classes_", None)
    if classes is not None and "predict" in methods:
        raise unsupported_option(estimator, "stack_method", "predict", "use 'predict_proba' or 'decision_function'")
    labels = None if classes is None else np.asarray(classes)[np.asarray(final.model.labels, dtype=np.int64)]
    known: list[Model] = [
        replace(model, transform="decision") if method == "decision_function" else model
        for model, method in zip(models, methods, strict=True)
    ]
    weights, start = final.model.coefficients.T, 0
    blocks = []
    for model, method in zip(known, methods, strict=True):
        two = method == "predict_proba" and max(model.outputs, 2) == 2  # of two classes the second one alone counts
        width = 1 if two or (model.transform == "decision" and model.outputs == 1) else model.outputs
        block = weights[start : start + width]
        start += width
        blocks.append(np.concatenate([np.zeros_like(block), block]) if two else block)
    last = final_steps(final.model.transform, final.model.transform_parameter, labels)
    if all(model.transform in ("none", "decision") for model in known):
        shares = [_shares(m) if method == "predict_proba" else m for m, method in zip(known, methods, strict=True)]
        parts = [mapped(share, block) for share, block in zip(shares, blocks, strict=True)]
        total = mapped(summed(parts, estimator), np.eye(len(final.model.intercept)), final.model.intercept)
        return ImportedModel(replace(total, after=last), steps)
    after = (_member_steps(known, classes is not None), Combine(np.concatenate(blocks), final.model.intercept), *last)
    return ImportedModel(replace(side_by_side(known, estimator), after=after), steps)


# --- one member for each class or output -----------------------------------------------------------------------------------------


def one_against_rest(estimator: Any, read: Read) -> ImportedModel:
    if any(type(member).__name__ == "_ConstantPredictor" for member in estimator.estimators_):
        raise unsupported_option(estimator, "classes", "one of all samples, or of none", "leave that class out")
    models, steps = _members(estimator, estimator.estimators_, None, read)
    transforms = {model.transform for model in models}
    if len(transforms) > 1 or transforms & {"softmax", "exp", "isolation"}:
        raise unsupported_option(
            estimator, "estimator", type(estimator.estimators_[0]).__name__, "use members of two classes each"
        )
    (transform,) = transforms
    joined = side_by_side([_second(model) for model in models], estimator)
    if not estimator.multilabel_:
        return ImportedModel(
            _finished(joined, "shares" if transform == "none" else transform, estimator.classes_), steps
        )
    return ImportedModel(replace(joined, after=(Transform(transform), Indicators(class_threshold(transform)))), steps)


def _second(model: Model) -> Model:
    """Returns the score of the second of two classes alone."""
    return model if model.outputs == 1 else mapped(model, np.array([[0.0], [1.0]]))


def several_outputs(estimator: Any, read: Read) -> ImportedModel:
    """Imports MultiOutputClassifier and MultiOutputRegressor."""
    models, steps = _members(estimator, estimator.estimators_, None, read)
    models = [_both_decisions(model) for model in models]
    joined = side_by_side(models, estimator)
    classified = all(model.labels is not None for model in models)
    members = _member_steps(models, classified)
    if not classified:
        plain = all(model.transform == "none" for model in models)
        return ImportedModel(
            replace(joined, after=(Transform("none"),) if plain else (members, Transform("none"))), steps
        )
    labels = [np.asarray(model.labels) for model in models]
    groups = LabelGroups(np.concatenate(labels), np.array([len(each) for each in labels]))
    return ImportedModel(replace(joined, after=(members, groups)), steps)


def _both_decisions(model: Model) -> Model:
    """Returns one decision value as a score for each of its two classes."""
    if model.labels is None or model.transform != "decision" or model.outputs > 1:
        return model
    return replace(mapped(model, np.array([[-1.0, 1.0]])), transform="decision", labels=model.labels)


# --- calibration --------------------------------------------------------------------------------------------------------------------


def calibrated(estimator: Any, read: Read) -> ImportedModel:
    members = estimator.calibrated_classifiers_
    method, number = members[0].method, len(estimator.classes_)
    if method not in ("sigmoid", "isotonic"):
        raise unsupported_option(estimator, "method", method, "use 'sigmoid' or 'isotonic'")
    if any(len(member.calibrators) != (1 if number == 2 else number) for member in members):
        raise unsupported_option(estimator, "classes of its members", "fewer than of all samples", "stratify the folds")
    models, steps = _members(estimator, [member.estimator for member in members], None, read)
    responses = [
        _response(estimator, member.estimator, model, number) for member, model in zip(members, models, strict=True)
    ]
    calibrators = [calibrator for member in members for calibrator in member.calibrators]
    before: tuple[OutputStep, ...] = ()
    if method == "sigmoid":  # 1 / (1 + exp(a t + b))
        slopes = iter([(-float(c.a_), -float(c.b_)) for c in calibrators])
        pairs = [[next(slopes) for _ in range(response.outputs)] for response in responses]
        responses = [
            mapped(r, np.diag([a for a, _ in member_pairs]), np.array([b for _, b in member_pairs]))
            for r, member_pairs in zip(responses, pairs, strict=True)
        ]
    else:
        points = [
            (np.asarray(c.X_thresholds_, np.float64), np.asarray(c.y_thresholds_, np.float64)) for c in calibrators
        ]
        start = np.concatenate([[0], np.cumsum([len(x) for x, _ in points])]).astype(np.int64)
        before = (Curves(start, np.concatenate([x for x, _ in points]), np.concatenate([y for _, y in points])),)
    link = "sigmoid" if method == "sigmoid" else "shares"
    sizes = np.array([response.outputs for response in responses])
    mean = np.tile(np.eye(number), (len(members), 1)) / len(members)
    after = (
        *before,
        Members(sizes, (link,) * len(members), np.ones(len(members)), True),
        Combine(mean, np.zeros(number)),
        *final_steps("none", 1.0, estimator.classes_),
    )
    return ImportedModel(replace(side_by_side(responses, estimator), after=after), steps)


def _response(estimator: Any, member: Any, model: Model, classes: int) -> Model:
    """Returns what is calibrated: decision values, else probabilities, where these are linear in the scores."""
    if hasattr(member, "decision_function"):
        return model
    if model.transform != "none":
        raise unsupported_option(
            estimator, "estimator", type(member).__name__, "use one with a decision_function, or a forest"
        )
    return _second(model) if classes == 2 else model


# --- thresholds ---------------------------------------------------------------------------------------------------------------------


def thresholded(estimator: Any, read: Read) -> ImportedModel:
    """Imports FixedThresholdClassifier and TunedThresholdClassifierCV: of two classes, decided where the user, or a search, says."""
    inner = getattr(estimator, "estimator_", estimator.estimator)
    part = read(inner)
    model, transform, scale = _one_score(table_model(part, estimator), estimator)
    method = _asked(estimator, inner)
    if hasattr(estimator, "best_threshold_"):
        threshold, positive = float(estimator.best_threshold_), estimator._curve_scorer._get_pos_label()
    else:
        usual = 0.5 if method == "predict_proba" else 0.0
        threshold = usual if estimator.threshold == "auto" else float(estimator.threshold)
        positive = estimator.pos_label
    first = positive is not None and positive == estimator.classes_[0]
    if first:  # whose probability is 1 - p, whose decision value is -s
        threshold = 1 - threshold if method == "predict_proba" else -threshold
    threshold = _score_of(threshold, transform) if method == "predict_proba" else scale * threshold
    aside = _TIE * max(1.0, abs(threshold))  # a score at the threshold is the positive class's
    threshold = float(np.clip(threshold + (aside if first else -aside), -LARGEST_NUMBER, LARGEST_NUMBER))
    shown = Transform(transform, 1.0, True)
    after = (shown, Labels(plain_labels(estimator.classes_), threshold))
    return replace(part, model=replace(model, transform="none", labels=None, after=after))


_TIE: Final = 1e-12  # of a threshold: rounding of sums


def _one_score(model: Model, estimator: Any) -> tuple[Model, str, float]:
    """Returns the score of the second class, what makes its probability of it, and how many times the decision value it is."""
    slope = model.transform_parameter
    if model.transform == "softmax" and model.outputs == 2:
        return mapped(model, np.array([[-slope], [slope]])), "sigmoid", slope
    if model.transform == "softmax" and model.outputs == 1:
        return mapped(model, np.array([[2 * slope]])), "sigmoid", 2 * slope
    if model.transform == "none" and model.outputs == 2:
        return _second(model), "none", 1.0
    if model.outputs == 1 and model.transform in ("none", "sigmoid", "modified_huber", "decision"):
        return model, model.transform, 1.0
    raise unsupported_option(estimator, "estimator", type(estimator.estimator).__name__, "use one of two classes")


def _score_of(probability: float, transform: str) -> float:
    """Returns the score of which a transform makes a probability."""
    if transform == "none":
        return probability
    if transform == "modified_huber":
        return 2 * probability - 1 if 0 < probability < 1 else log_odds(probability)
    return log_odds(probability)


def _asked(estimator: Any, inner: Any) -> str:
    """Returns which method's result is compared."""
    methods = estimator._get_response_method()
    return str(next(name for name in np.atleast_1d(methods) if hasattr(inner, name)))


# --- AdaBoost -----------------------------------------------------------------------------------------------------------------------


def adaboost(estimator: Any) -> TreeEnsemble:
    """Imports SAMME: each tree votes with its weight for the class of the leaf and against the others.

    Source: [ZZRH09] SAMME.
    """
    if getattr(estimator, "algorithm", "deprecated") == "SAMME.R":
        raise unsupported_option(estimator, "algorithm", "SAMME.R", "use 'SAMME'")
    if not all(hasattr(member, "tree_") for member in estimator.estimators_):
        raise unsupported_option(estimator, "estimator", type(estimator.estimators_[0]).__name__, "use decision trees")
    number = len(estimator.classes_)
    total = float(estimator.estimator_weights_.sum())
    trees = []
    for member, weight in zip(estimator.estimators_, estimator.estimator_weights_, strict=False):
        best = np.searchsorted(estimator.classes_, member.classes_)[np.argmax(member.tree_.value[:, 0, :], axis=1)]
        votes = np.where(best[:, None] == np.arange(number), 1.0, -1.0 / (number - 1)) * float(weight) / total
        trees.append(sklearn_trees.tree_nodes(member, votes if number > 2 else votes[:, 1:] - votes[:, :1]))
    slope = 0.5 if number == 2 else 1.0 / (number - 1)
    features = int(estimator.n_features_in_)
    return TreeEnsemble(
        tuple(trees), features, single=True, transform="softmax", transform_parameter=slope, labels=estimator.classes_
    )


READERS: Final[dict[str, Callable[[Any, Read], ImportedModel]]] = {
    **dict.fromkeys(("BaggingClassifier", "BaggingRegressor"), bagging),
    **dict.fromkeys(("VotingClassifier", "VotingRegressor"), voting),
    **dict.fromkeys(("StackingClassifier", "StackingRegressor"), stacking),
    **dict.fromkeys(("MultiOutputClassifier", "MultiOutputRegressor"), several_outputs),
    **dict.fromkeys(("FixedThresholdClassifier", "TunedThresholdClassifierCV"), thresholded),
    "CalibratedClassifierCV": calibrated,
    "OneVsRestClassifier": one_against_rest,
}
