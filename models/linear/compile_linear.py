"""`compile_linear` compiles a linear model on encrypted features, without bootstraps and with an exact result.

The client makes integers of the features, the server adds integer multiples of them, the client decrypts exact integers and makes scores of
them. What is lost is the rounding of features and weights alone, some 12 bits each; encryption adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import (
    Columns,
    Combine,
    InputStep,
    Integers,
    OutputStep,
    Pick,
    Rescale,
    Round,
    column_labels,
    known_ranges,
    run_input_steps,
    run_output_steps,
)
from cloakwork.models.client_steps.range_report import RangeReport
from cloakwork.models.client_steps.scaling import split_scaling
from cloakwork.models.client_steps.transforms import CLASS_TRANSFORMS, class_threshold
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.choose_set import named_sets
from cloakwork.models.criteria.feature_ranges import OPTION
from cloakwork.models.criteria.slots import ARGMAX_CANDIDATES, check_p_fail_log2
from cloakwork.models.errors import AccuracyWarning, CompileError, warn_user
from cloakwork.models.linear.client_ranges import client_ranges
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.linear.linear_program import linear_program
from cloakwork.models.linear.linear_quantisation import Effects, LinearQuantisation, quantise_linear
from cloakwork.models.linear.linear_winner import effects_of_labels, linear_labels
from cloakwork.models.options import DEFAULT_ACCURACY, Options
from cloakwork.models.original.agreement import verdict_of
from cloakwork.models.program import Program
from cloakwork.models.program.facts import Facts, LinearFacts
from cloakwork.models.report import Report
from cloakwork.models.runtime.interpreter import interpret

DEFAULT_SET: Final = "lut3"  # two limbs; trees take it too, so that one key serves both
STRUCTURED_SET: Final = "lut3_block"  # the same
DEFAULT_MARGIN: Final = 0.1
_COMPARED: Final = 2000  # calibration samples


def compile_linear(
    model: LinearModel,
    samples: Any = None,
    options: Options | None = None,
    *,
    preprocessing: Sequence[InputStep] | None = None,
    **named: Any,
) -> CompiledModel:
    """Compile a linear model to a program of one linear node.

    Args:
        samples: typical samples [samples, columns]; they set the range of each feature, rounded outwards to round numbers. Values beyond it
            saturate, with a warning. None: with `ranges` of all features; the accuracy is not checked then.
        options: of `cloakwork.compile`, or by name. `sets`: by default lut3, or lut3_block of structured keys: the set of trees, so that one key
            serves both. `p_fail_log2`: of an output that is decrypted to another integer. `tell="labels"`: the scores of all classes are compared
            in pairs, at most 64 classes, by default under large16: some seven bootstraps a pair. `structured`: nothing here is faster with such a
            set.
        preprocessing: what the client does before, its first step checking the columns; None: that step only. Offsets and scales of columns at
            its end become part of the model, which spares the client them.

    Warns:
        AccuracyWarning: with accuracy=0 less is reached than the default asks for.

    Raises:
        CompileError: no samples, another number of features than the model has, ranges that are none, or too little accuracy.
        NoParameterSetError: the set is too noisy for so many features.
    """
    options = Options.of(options, named)
    options.check("linear")
    labels_only = options.tell == "labels"
    if labels_only and (model.labels is None or model.transform not in CLASS_TRANSFORMS):
        raise CompileError(
            "tell='labels': expected a classifier whose label is that of the largest score; this model has none"
        )
    check_p_fail_log2(options.p_fail_log2)
    params = _chosen_set(options)
    steps = (Columns(model.features, model.feature_names),) if preprocessing is None else tuple(preprocessing)
    steps, scaling = split_scaling(steps)
    model = model if scaling is None else model.on_unscaled(scaling)
    features = None if samples is None else run_input_steps(steps, samples)
    names = _names(model, steps)
    known = None if features is None else known_ranges(steps, samples, len(names))
    margin = DEFAULT_MARGIN if options.margin is None else options.margin
    lower, upper = client_ranges(features, names, options.ranges, margin, known)
    centre, half = lower / 2 + upper / 2, upper / 2 - lower / 2
    effects = _effects(model, centre, half)
    if labels_only:
        assert model.labels is not None
        scores = effects_of_labels(effects, class_threshold(model.transform))
        labels = linear_labels(scores, params, options.p_fail_log2, options.input_bits)
        quantised, program = labels.quantised, labels.program
        after: tuple[OutputStep, ...] = (Integers(), Pick(model.labels))
    else:
        quantised = quantise_linear(effects, params, options.p_fail_log2, options.input_bits)
        program = linear_program(quantised, params, "linear model")
        after = _output_steps(model, quantised)
    last = (Rescale(lower, upper, centre, quantised.levels / half), Round())
    if features is not None:
        outside = _warn_of_samples(last[0], features, names)
        seen = features[:_COMPARED]
        answers = run_output_steps(after, interpret(program.graph, run_input_steps(last, seen)))
        clear = run_output_steps(model.output_steps, model.scores(seen))
        _check_accuracy(answers, clear, _bits(quantised) + outside, options.accuracy)
    program = replace(program, input_steps=(*steps, *last), output_steps=after)
    facts = Facts(linear=_facts(model, quantised))
    if labels_only:
        facts = Facts(linear=_facts_of_labels(model, quantised, program), tell="labels")
    return CompiledModel.checked(replace(program, facts=facts))


def _chosen_set(options: Options) -> ParameterSet:
    """Returns the set that is named, or the usual one. ParameterError for one that was not asked for."""
    usual = ARGMAX_CANDIDATES[0] if options.tell == "labels" else STRUCTURED_SET if options.structured else DEFAULT_SET
    sets = named_sets((usual,) if options.sets is None else options.sets, options.structured)
    if len(sets) != 1:
        raise CompileError(f"sets: a linear model takes one set, got {len(sets)}")
    return sets[0]


def _warn_of_samples(rescale: Rescale, features: Reals, names: Sequence[str]) -> str:
    """Returns one CalibratedRangeWarning where calibration samples lie outside of ranges that were given; the same as part of a message."""
    beyond, report = rescale.outside(features), RangeReport()
    report.add(beyond, tuple(names))
    report.warn(OPTION, "the range that was given")
    count = int(beyond.any(axis=1).sum())
    return f", and with {count} samples beyond the ranges that were given in {OPTION}," if count else ""


def _bits(quantised: LinearQuantisation) -> str:
    feature_bits, weight_bits = (
        int(quantised.levels).bit_length(),
        int(np.abs(quantised.weights).max()).bit_length() + 1,
    )
    return f"{feature_bits} bits of features and {weight_bits} of weights"


def _check_accuracy(answers: NDArray[Any], clear: NDArray[Any], rounding: str, accuracy: float) -> None:
    """Raises CompileError where the quantised model is another than the one in clear; where any accuracy will do, an AccuracyWarning.

    Args:
        rounding: to how many bits, for the message.
    """
    verdict = verdict_of(clear, answers)
    if verdict.reaches(accuracy) if accuracy else verdict.value >= DEFAULT_ACCURACY:
        return
    what = "agrees with the model in clear on {:.1%} of the samples (at least {:.1%})"
    if verdict.measure == "closeness":
        what = "keeps {:.1%} of the deviation of its values (at least {:.1%})"
    outcome = f"linear model: with {rounding} it {what.format(verdict.value, verdict.at_least)}"
    reason = (
        "its weights, times the range of their features, are of too different sizes, or given ranges too narrow. Scale or leave out features, "
        "regularise more (GaussianNB: a larger var_smoothing)"
    )
    if accuracy:
        raise CompileError(f"{outcome}, expected {accuracy:.1%}: {reason}, or pass accuracy=0 to go on")
    warn_user(f"{outcome}, which accuracy=0 lets pass: {reason}", AccuracyWarning)


def _names(model: LinearModel, steps: tuple[InputStep, ...]) -> tuple[str, ...]:
    names = column_labels(steps, np.zeros((0, model.features)))
    assert names is not None
    return names


def _effects(model: LinearModel, centre: Reals, half: Reals) -> Effects:
    with np.errstate(all="ignore"):
        at_centre = model.intercept + model.coefficients @ centre
        of_features = model.coefficients * half
    effects = Effects(of_features, at_centre, compared=model.labels is not None and model.after is None)
    effects.check()
    return effects


def _output_steps(model: LinearModel, quantised: LinearQuantisation) -> tuple[OutputStep, ...]:
    scale = np.diag(1.0 / (quantised.gain * quantised.levels))
    return Integers(), Combine(scale, quantised.public_offset), *model.output_steps


def _facts(model: LinearModel, quantised: LinearQuantisation) -> LinearFacts:
    return LinearFacts(
        features=model.features,
        outputs=model.outputs,
        feature_bits=int(quantised.levels).bit_length(),
        weight_bits=int(np.abs(quantised.weights).max()).bit_length() + 1,
        p_fail_log2=quantised.p_fail_log2,
    )


def _facts_of_labels(model: LinearModel, quantised: LinearQuantisation, program: Program) -> LinearFacts:
    """With the failure of a sample, all its look-ups counted, as that of its one output."""
    p_fail_log2 = Report.of(program).program_p_fail_log2
    assert p_fail_log2 is not None
    return replace(_facts(model, quantised), outputs=1, p_fail_log2=p_fail_log2)
