"""Support vector machines: kernels as models of batches, and what decides by their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.batches.decisions import Votes
from cloakwork.models.batches.kernels import PowerModel, RadialModel
from cloakwork.models.client_steps import OutputStep, final_steps
from cloakwork.models.client_steps.transforms import plain_labels
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.training.importers.nodes import unsupported_option

CLASSIFIERS: Final = ("SVC", "NuSVC")
REGRESSORS: Final = ("SVR", "NuSVR")
KERNELS: Final = ("linear", "poly", "rbf")


@dataclass(frozen=True, eq=False)
class KernelPart:
    """A fitted machine: its scores, and what decides by them."""

    model: LinearModel | PowerModel | RadialModel
    after: Votes | tuple[OutputStep, ...]


Machine: TypeAlias = Any  # SVC, NuSVC, SVR, NuSVR of scikit-learn


def kernel_part(estimator: Machine) -> KernelPart:
    """Imports a kernel machine. Raises: UnsupportedOperatorError: another kernel, sparse support vectors."""
    kernel = estimator.kernel
    if kernel not in KERNELS:
        raise unsupported_option(estimator, "kernel", kernel, "expected linear, poly or rbf")
    vectors = estimator.support_vectors_
    if not isinstance(vectors, np.ndarray):
        raise unsupported_option(estimator, "support_vectors_", type(vectors).__name__, "fit on dense samples")
    dual, intercept = dual_weights(estimator)
    after = _after(estimator)
    gamma = float(getattr(estimator, "_gamma", 1.0))
    if kernel == "rbf":
        return KernelPart(RadialModel(vectors, gamma, dual, intercept), after)
    if kernel == "poly" and estimator.degree >= 2:
        constant = np.full(len(vectors), float(estimator.coef0))
        return KernelPart(PowerModel(gamma * vectors, constant, int(estimator.degree), dual, intercept), after)
    if kernel == "poly":  # of degree 1, or of degree 0: a constant
        if estimator.degree != 1:
            raise unsupported_option(estimator, "degree", estimator.degree, "a constant kernel decides nothing")
        intercept = intercept + float(estimator.coef0) * dual.sum(axis=1)
        vectors = gamma * vectors
    return KernelPart(LinearModel(dual @ vectors, intercept, after=() if isinstance(after, Votes) else after), after)


def dual_weights(estimator: Machine) -> tuple[Reals, Reals]:
    """Returns [outputs, vectors] and [outputs]: one output of regression and of two classes (positive: the second), else one of each pair of classes
    (positive: the first). scikit-learn stores LIBSVM's: a vector of class i has a coefficient for each other class, those below i first."""
    coefficients = np.asarray(estimator.dual_coef_, dtype=np.float64)
    intercept = np.asarray(estimator.intercept_, dtype=np.float64)
    if len(intercept) == 1:
        return coefficients, intercept
    starts = np.concatenate([[0], np.cumsum(estimator.n_support_)])
    classes = len(starts) - 1
    dual = np.zeros((len(intercept), coefficients.shape[1]))
    for row, (i, j) in zip(dual, zip(*np.triu_indices(classes, 1), strict=True), strict=True):
        row[starts[i] : starts[i + 1]] = coefficients[j - 1, starts[i] : starts[i + 1]]
        row[starts[j] : starts[j + 1]] = coefficients[i, starts[j] : starts[j + 1]]
    return dual, intercept


def _after(estimator: Machine) -> Votes | tuple[OutputStep, ...]:
    labels = getattr(estimator, "classes_", None)
    if labels is None or len(labels) == 2:
        return final_steps("none" if labels is None else "decision", 1.0, labels)
    return Votes(plain_labels(labels), bool(estimator.break_ties), estimator.decision_function_shape == "ovo")
