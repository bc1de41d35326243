"""Kernel models in a neutral form: what the importers write and the compiler of batches reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import TypeAlias

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import InputStep, Polynomials, Project, Standardise
from cloakwork.models.client_steps.scaling import split_scaling
from cloakwork.models.errors import CompileError
from cloakwork.models.linear.linear_model import LinearModel

MOST_DEGREE = 16
_NOTHING = 1e-12  # of the largest coefficient or eigenvalue


@dataclass(frozen=True, eq=False)
class PowerModel:
    """Scores dual (inner x + constant)^degree + intercept.

    Attributes:
        inner: [rows, features].
        constant: [rows].
        dual: [outputs, rows].
        intercept: [outputs].
    """

    inner: Reals
    constant: Reals
    degree: int
    dual: Reals
    intercept: Reals

    def __post_init__(self) -> None:
        """Raises: CompileError: shapes that do not fit, numbers that are not finite, another degree than 2 to 16."""
        rows, outputs = len(self.inner), len(self.intercept)
        shapes = self.constant.shape == (rows,) and self.dual.shape == (outputs, rows) and self.inner.ndim == 2
        numbers = (self.inner, self.constant, self.dual, self.intercept)
        if not shapes or min(self.inner.shape) < 1 or not all(np.isfinite(each).all() for each in numbers):
            raise CompileError("kernel model: expected finite vectors and weights of shapes that fit")
        if not 2 <= self.degree <= MOST_DEGREE:
            raise CompileError(f"kernel model: expected a degree of 2 to {MOST_DEGREE}, got {self.degree}")

    @property
    def features(self) -> int:
        return int(self.inner.shape[1])

    @property
    def monomials(self) -> int:
        """Products of up to `degree` features, at most."""
        return math.comb(self.features + self.degree, self.degree) - 1

    def before(self, step: Standardise | Project) -> PowerModel:
        """Returns the same on what the step is made from."""
        inner = self.inner * step.scale if isinstance(step, Standardise) else self.inner @ step.matrix.T
        return replace(self, inner=inner, constant=self.constant - inner @ step.offset)

    def on_ranges(self, centre: Reals, half: Reals) -> PowerModel:
        """Returns the same of u, x = centre + half u. Rows reach from -1 to 1 for u in [-1, 1]."""
        inner, constant = self.inner * half, self.constant + self.inner @ centre
        reach = np.abs(inner).sum(axis=1) + np.abs(constant)
        reach = np.where(reach > 0, reach, 1.0)
        return replace(
            self, inner=inner / reach[:, None], constant=constant / reach, dual=self.dual * reach**self.degree
        )

    def scores(self, x: Reals) -> Reals:
        """Returns [samples, outputs]."""
        scores: Reals = (x @ self.inner.T + self.constant) ** self.degree @ self.dual.T + self.intercept
        return scores

    def squares(self) -> PowerModel | None:
        """Writes a kernel of degree 2, the quadratic form of every output, as squares along its eigenvectors, features + 1 at most; None of other
        degrees."""
        if self.degree != 2:
            return None
        rows = np.concatenate([self.inner, self.constant[:, None]], axis=1)
        vectors, owners, values = [], [], []
        for number, weights in enumerate(self.dual):
            eigenvalues, eigenvectors = np.linalg.eigh((rows.T * weights) @ rows)
            used = np.abs(eigenvalues) > _NOTHING * np.abs(eigenvalues).max(initial=0.0)
            vectors.append(eigenvectors.T[used])
            values.append(eigenvalues[used])
            owners.append(np.full(int(used.sum()), number))
        directions, owner = np.concatenate(vectors), np.concatenate(owners)
        if not len(directions):
            return None
        dual = np.where(np.arange(len(self.dual))[:, None] == owner, np.concatenate(values), 0.0)
        return replace(self, inner=directions[:, :-1], constant=directions[:, -1], dual=dual)

    def expanded(self) -> tuple[Polynomials, LinearModel]:
        """Returns products of features, which the client makes, and a linear model of them."""
        rows = np.concatenate([self.inner, self.constant[:, None]], axis=1)
        chosen = np.array(list(combinations_with_replacement(range(rows.shape[1]), self.degree)))
        powers = (chosen[:, :, None] == np.arange(rows.shape[1])).sum(axis=1)
        products = np.ones((len(rows), len(chosen)))
        for place in chosen.T:
            products *= rows[:, place]
        orders = [math.factorial(self.degree) / math.prod(map(math.factorial, each)) for each in powers.tolist()]
        coefficients = self.dual @ products * np.array(orders)
        intercept = self.intercept + coefficients[:, -1]  # of the constant to the power of the degree
        powers, coefficients = powers[:-1, :-1], coefficients[:, :-1]
        size = np.abs(coefficients).max(axis=0)
        used = size > _NOTHING * size.max()
        used[0] |= not used.any()
        return Polynomials(powers[used].astype(np.int64)), LinearModel(coefficients[:, used], intercept)


@dataclass(frozen=True, eq=False)
class RadialModel:
    """Scores dual exp(-gamma |x - vectors|^2) + intercept.

    Attributes:
        vectors: [rows, features].
        dual: [outputs, rows].
        intercept: [outputs].
    """

    vectors: Reals
    gamma: float
    dual: Reals
    intercept: Reals

    def __post_init__(self) -> None:
        """Raises: CompileError: shapes that do not fit, numbers that are not finite, a width that is not positive."""
        fits = self.vectors.ndim == 2 and self.dual.shape == (len(self.intercept), len(self.vectors))
        numbers = (self.vectors, self.dual, self.intercept, np.array(self.gamma))
        if not fits or min(self.vectors.shape) < 1 or not all(np.isfinite(each).all() for each in numbers):
            raise CompileError("kernel model: expected finite vectors and weights of shapes that fit")
        if not self.gamma > 0:
            raise CompileError(f"kernel model: expected a positive gamma, got {self.gamma}")

    @property
    def features(self) -> int:
        return int(self.vectors.shape[1])

    def scores(self, x: Reals) -> Reals:
        """Returns [samples, outputs]."""
        distances = np.square(x).sum(axis=1)[:, None] + np.square(self.vectors).sum(axis=1) - 2 * x @ self.vectors.T
        scores: Reals = np.exp(-self.gamma * np.maximum(distances, 0.0)) @ self.dual.T + self.intercept
        return scores


# Offsets, scales and projections right before a model, which it takes in: its weights change, no score does.

Model: TypeAlias = LinearModel | PowerModel | RadialModel


def folded(steps: tuple[InputStep, ...], model: Model) -> tuple[tuple[InputStep, ...], Model]:
    """Returns steps without those that the model takes in.

    Radial kernels take in none: their distances are those of scaled features. Powers take in no projection to fewer features than it is made
    from: products and the client's ciphertexts would be more.
    """
    while not isinstance(model, RadialModel):
        rest, scaling = split_scaling(steps)
        if scaling is not None:
            model, steps = _before(model, scaling), rest
        elif len(steps) > 1 and isinstance(steps[-1], Project) and _pays(model, steps[-1]):
            model, steps = _before(model, steps[-1]), steps[:-1]
        else:
            break
    return steps, model


def _pays(model: LinearModel | PowerModel, step: Project) -> bool:
    before, after = step.matrix.shape
    return isinstance(model, LinearModel) or before <= after


def _before(model: LinearModel | PowerModel, step: Standardise | Project) -> LinearModel | PowerModel:
    if isinstance(model, PowerModel):
        return model.before(step)
    if isinstance(step, Standardise):
        return model.on_unscaled(step)
    coefficients = model.coefficients @ step.matrix.T
    return replace(
        model, coefficients=coefficients, intercept=model.intercept - coefficients @ step.offset, feature_names=None
    )
