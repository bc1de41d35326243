"""Transforms of the scores [samples, outputs] of a model of tables, computed by the client after decryption."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.last_steps import ArgMax, softmax


def _sigmoid(x: Reals) -> Reals:
    """0 below -709.8, as others have it: shares of classes that are all so small are equal."""
    with np.errstate(over="ignore"):
        result: Reals = 1 / (1 + np.exp(-x))
    return result


def _two_classes(second: Reals) -> Reals:
    return np.concatenate([1 - second, second], axis=1)


def _of_classes(scores: Reals, classes: bool, transformed: Reals) -> Reals:
    """One column of a classifier is the second class; one against the rest is normalised."""
    if not classes:
        return transformed
    if scores.shape[1] == 1:
        return _two_classes(transformed)
    total = transformed.sum(axis=1, keepdims=True)
    shares: Reals = np.where(total > 0, transformed / np.where(total > 0, total, 1), 1 / transformed.shape[1])
    return shares


def _modified_huber(scores: Reals) -> Reals:
    return (np.clip(scores, -1, 1) + 1) / 2


# name -> function of scores, the parameter, and whether they are of classes
TRANSFORMS: Final[dict[str, Callable[[Reals, float, bool], Reals]]] = {
    # a forest's mean of class shares; one column of a classifier is the share of the second class
    "none": lambda s, _, classes: _two_classes(s) if classes and s.shape[1] == 1 else s,
    "sigmoid": lambda s, _, classes: _of_classes(s, classes, _sigmoid(s)),
    "softmax": lambda s, slope, classes: softmax(
        slope * (np.concatenate([-s, s], axis=1) if classes and s.shape[1] == 1 else s), axis=1
    ),
    "shares": lambda s, _, classes: _of_classes(s, classes, s),  # of the sum of all classes
    "exp": lambda s, _, classes: np.exp(s),
    "modified_huber": lambda s, _, classes: _of_classes(s, classes, _modified_huber(s)),
    "isolation": lambda s, divisor, classes: -np.exp2(-s / divisor),  # path lengths to the score of an isolation forest
    "decision": lambda s, _, classes: s,  # decision values: no probabilities, labels by sign or largest
}


LARGEST: Final = ArgMax(axis=1, keepdims=False)


CLASS_TRANSFORMS: Final = (
    "none",
    "sigmoid",
    "softmax",
    "decision",
    "modified_huber",
)  # after which the largest score is the label's


def class_threshold(name: str) -> float:
    """Returns the score above which one column means the second class: shares are compared with 1/2, raw sums with 0."""
    return 0.5 if name in ("none", "shares") else 0.0


LARGEST_NUMBER: Final = float(np.finfo(np.float64).max)


def log_odds(probability: float) -> float:
    """Returns the score whose logistic function is a probability; the largest numbers for 0 and 1."""
    if not 0 < probability < 1:
        return -LARGEST_NUMBER if probability <= 0 else LARGEST_NUMBER
    return math.log(probability / (1 - probability))


def best_class(scores: Reals, threshold: float = 0.0) -> NDArray[np.int64]:
    """Returns the largest score, the first of equal ones; of one column whether it is above the threshold.

    Scores, not probabilities: those are equal where a sigmoid saturates.
    """
    if scores.shape[1] == 1:
        return (scores[:, 0] > threshold).astype(np.int64)
    return LARGEST(scores)


def plain_labels(labels: Any) -> NDArray[Any]:
    """Returns labels as integers, booleans, floats or text: what JSON can hold. CompileError for others, and for several kinds in one model."""
    array = np.asarray(labels)
    if array.dtype.kind in "OT":
        known = array.tolist()
        if len({isinstance(label, str) + 2 * isinstance(label, bool) for label in known}) > 1:
            raise CompileError(f"labels: expected texts, or numbers, got both in {known[:10]}; encode them in one way")
        array = np.asarray(known)
    if array.dtype.kind not in "biufU":
        raise CompileError(
            f"labels: expected texts, numbers or truth values, got {array.dtype}; encode them as such before training"
        )
    return array


def label_array(labels: Any, outputs: int) -> NDArray[Any]:
    """Makes plain labels of this many scores; of one score, two."""
    array = plain_labels(labels)
    expected = 2 if outputs == 1 else outputs
    if array.shape != (expected,):
        raise CompileError(f"labels: expected {expected} for {outputs} output(s), got shape {list(array.shape)}")
    return array
