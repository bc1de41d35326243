"""Offsets, scales and projections right before a model, which it takes in: its weights change, no score does."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from cloakwork.models.batches.kernels import PowerModel, RadialModel
from cloakwork.models.client_steps import InputStep, Project, Standardise
from cloakwork.models.client_steps.scaling import split_scaling
from cloakwork.models.linear.linear_model import LinearModel

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
