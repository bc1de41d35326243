"""`compile_linear`: a linear model on encrypted features, without bootstraps and with an exact result.

The client makes integers of the features, the server adds integer multiples of them, the client decrypts exact integers and makes scores of
them. What is lost is the rounding of features and weights alone, some 12 bits each; encryption adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.parameters import ParameterSet, parameter_set, require_structured_keys
from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import (
    Columns,
    Combine,
    InputStep,
    Integers,
    OutputStep,
    Round,
    Saturate,
    Standardise,
    run_input_steps,
    run_output_steps,
)
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError, ShapeError
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.linear.linear_program import linear_program
from cloakwork.models.linear.linear_quantisation import LinearQuantisation, quantise_linear
from cloakwork.models.program import Program
from cloakwork.models.program.facts import Facts, LinearFacts
from cloakwork.models.runtime.interpreter import interpret

DEFAULT_SET: Final = "lut3"  # two limbs; trees take it too, so that one key serves both
STRUCTURED_SET: Final = "lut3_block"  # the same
DEFAULT_P_FAIL_LOG2: Final = -128.0
DEFAULT_ACCURACY: Final = 0.97
_COMPARED: Final = 2000  # calibration samples
_FEW: Final = 2
_CONSTANT_RANGE: Final = 1e-6  # of its size: the half range that a feature gets which is always the same


def compile_linear(
    model: LinearModel,
    calibration: Any,
    *,
    parameters: str | ParameterSet | None = None,
    bits: int | None = None,
    margin: float = 0.1,
    p_fail_log2: float = DEFAULT_P_FAIL_LOG2,
    accuracy: float = DEFAULT_ACCURACY,
    preprocessing: Sequence[InputStep] | None = None,
    structured_keys: bool = False,
) -> CompiledModel:
    """A program of one linear node.

    Args:
        calibration: typical samples [samples, columns]; they set the range of every feature. Values beyond it saturate, with a warning.
        parameters: None: lut3, or lut3_block of structured keys: the set of trees, so that one key serves both.
        bits: of an encrypted feature, sign included; None: as many as are best.
        margin: part of the calibrated half range that is kept free on either side.
        p_fail_log2: log2 of the largest probability that an output is decrypted to another integer.
        accuracy: least share of calibration samples with the label of the model in clear; of values, least share of their deviation that is
            kept. 0: any.
        preprocessing: what the client does before, its first step checking the columns; None: that step alone.
        structured_keys: a set whose small key is block-binary may be taken. Nothing here is faster with one.

    Raises:
        CompileError: no calibration samples, another number of features than the model has, or too little accuracy.
        NoParameterSetError: the set is too noisy for so many features.
    """
    chosen = parameters or (STRUCTURED_SET if structured_keys else DEFAULT_SET)
    params = chosen if isinstance(chosen, ParameterSet) else parameter_set(chosen)
    require_structured_keys(params, structured_keys)
    steps = (Columns(model.features, model.feature_names),) if preprocessing is None else tuple(preprocessing)
    features = run_input_steps(steps, calibration)
    lower, upper = feature_ranges(features, model.features, margin)
    centre, half = (upper + lower) / 2, (upper - lower) / 2
    quantised = quantise_linear(model.coefficients * half, params, p_fail_log2, bits)
    program = linear_program(quantised, params, "linear model")
    last = (Saturate(lower, upper), Standardise(centre, quantised.levels / half), Round())
    after = _output_steps(model, quantised, centre)
    seen = features[:_COMPARED]
    found = run_output_steps(after, interpret(program.graph, run_input_steps(last, seen)))
    _check_accuracy(found, run_output_steps(model.output_steps, model.scores(seen)), quantised, accuracy)
    return CompiledModel(
        Program(
            program.graph,
            params,
            program.noise_percent,
            input_steps=(*steps, *last),
            output_steps=after,
            facts=Facts(linear=_facts(model, quantised)),
        )
    )


def _check_accuracy(found: NDArray[Any], clear: NDArray[Any], quantised: LinearQuantisation, accuracy: float) -> None:
    """CompileError where the quantised model is another than the one in clear."""
    if clear.dtype.kind == "f":
        deviation = float(np.std(clear))
        error = float(np.sqrt(np.mean(np.square(found - clear)))) / deviation if deviation > 0 else 0.0
        reached, wrong = 1 - error, error > 0
        what = "keeps {:.1%} of the deviation of its values"
    else:
        differing = int((found != clear).sum())
        reached, wrong = 1 - differing / clear.size, differing > _FEW  # of few samples one or two say nothing
        what = "agrees with the model in clear on {:.1%} of the calibration samples"
    if wrong and reached < accuracy:
        bits = f"{int(quantised.levels).bit_length()} bits of features and {int(np.abs(quantised.weights).max()).bit_length() + 1} of weights"
        raise CompileError(
            f"linear model: with {bits} it {what.format(max(reached, 0.0))}, expected {accuracy:.1%}: its weights, times the range of their "
            "features, are of too different sizes. Scale or leave out features, regularise more (GaussianNB: a larger var_smoothing), "
            "or pass accuracy=0 to go on"
        )


def feature_ranges(features: Reals, count: int, margin: float) -> tuple[Reals, Reals]:
    """[features] each: what the samples show, widened; a feature that is always the same keeps a narrow range around it."""
    if features.ndim != 2 or features.shape[1] != count or not len(features):
        raise ShapeError(
            f"calibration: expected samples of {count} features, got an array of shape {list(features.shape)}; pass training samples"
        )
    if margin < 0:
        raise CompileError(f"margin: expected a share of the range, 0 or more, got {margin}")
    low, high = features.min(axis=0), features.max(axis=0)
    half = (high - low) / 2 * (1 + margin)
    half = np.maximum(half, _CONSTANT_RANGE * np.maximum(np.abs(low), 1.0))
    centre = (high + low) / 2
    return centre - half, centre + half


def _output_steps(model: LinearModel, quantised: LinearQuantisation, centre: Reals) -> tuple[OutputStep, ...]:
    scale = np.diag(1.0 / (quantised.gain * quantised.levels))
    offset = model.intercept + model.coefficients @ centre
    return Integers(), Combine(scale, offset), *model.output_steps


def _facts(model: LinearModel, quantised: LinearQuantisation) -> LinearFacts:
    return LinearFacts(
        features=model.features,
        outputs=model.outputs,
        feature_bits=int(quantised.levels).bit_length(),
        weight_bits=int(np.abs(quantised.weights).max()).bit_length() + 1,
        p_fail_log2=quantised.p_fail_log2,
    )
