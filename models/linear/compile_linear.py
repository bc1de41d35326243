"""`compile_linear` compiles a linear model on encrypted features, without bootstraps and with an exact result.

The client makes integers of the features, the server adds integer multiples of them, the client decrypts exact integers and makes scores of
them. What is lost is the rounding of features and weights alone, some 12 bits each; encryption adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices, Reals
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
from cloakwork.models.client_steps.scaling import split_scaling
from cloakwork.models.client_steps.transforms import CLASS_TRANSFORMS, class_threshold
from cloakwork.models.client_steps.unfit import RangeReport
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.choose_set import (
    ARGMAX_CANDIDATES,
    check_classes,
    check_p_fail_log2,
    lookup_margins,
    named_sets,
    noise_limit_percent,
    plan_contest,
)
from cloakwork.models.criteria.feature_ranges import OPTION
from cloakwork.models.errors import AccuracyWarning, CompileError, NoParameterSetError, warn_user
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.graph.ir import Graph, Input, Linear, check_levelled
from cloakwork.models.graph.merge_equal import merge_equal
from cloakwork.models.graph.winner import Contest
from cloakwork.models.linear.linear_model import LinearModel, client_ranges
from cloakwork.models.linear.linear_quantisation import Effects, LinearQuantisation, quantise_for_signs, quantise_linear
from cloakwork.models.options import DEFAULT_ACCURACY, Options
from cloakwork.models.original.agreement import verdict_of
from cloakwork.models.program import Program
from cloakwork.models.program.facts import Facts, LinearFacts
from cloakwork.models.report import Report
from cloakwork.models.runtime.interpreter import interpret

# A linear model as a program without bootstraps: one Linear node on the integers that the client encrypts.


def linear_program(quantised: LinearQuantisation, params: ParameterSet, origin: str) -> Program:
    """Returns a program of integers q [features] -> sums and what is added to them [outputs], both at `step` of the torus for a unit."""
    outputs, features = quantised.weights.shape
    node = Linear(
        features,
        np.arange(features, dtype=np.int64)[None],
        np.zeros(1, dtype=np.int64),
        quantised.weights[None],
        quantised.added[None].astype(np.float64),
        origin,
    )
    largest = np.abs(quantised.weights).sum(axis=1) * float(quantised.levels) + np.abs(quantised.added)
    upper: Reals = np.concatenate([np.full(features, float(quantised.levels)), np.maximum(largest, 1.0)])
    scale, offset = np.full(features + outputs, quantised.step), np.zeros(features + outputs)
    graph = Graph(
        (Input(0, (features,), "features"), node),
        np.arange(features, features + outputs, dtype=np.int64),
        lower=-upper,
        upper=upper,
        scale=scale,
        offset=offset,
    )
    noise_percent = 0.0  # no look-up sees any
    return Program(check_levelled(graph), params, noise_percent)


# A linear classifier whose label alone the client decrypts: scores of all classes as integers, compared in pairs (graph/winner.py).

_DIFFERENCE_BITS: Final = range(20, 11, -1)  # tried in turn: every five take two look-ups of each pair


@dataclass(frozen=True, eq=False)
class LinearLabels:
    quantised: LinearQuantisation
    program: Program  # without the client's steps


def effects_of_labels(effects: Effects, threshold: float) -> Effects:
    """Returns one score for each class, the largest wins. One score against a threshold is that of the second class, the first having 0.

    What all classes have in common changes no label, so that it is left out of the constants. One that is too small to be reached has no more than
    that says.
    """
    if len(effects.at_centre) == 1:
        of_features = np.concatenate([np.zeros_like(effects.of_features), effects.of_features])
        effects = Effects(of_features, np.array([0.0, effects.at_centre[0] - threshold]))
    reach = float(np.abs(effects.of_features).sum(axis=1).max())
    behind = np.maximum(effects.at_centre - effects.at_centre.max(), -4 * reach)
    return Effects(effects.of_features, behind - behind.mean(), compared=True)


def linear_labels(effects: Effects, params: ParameterSet, p_fail_log2: float, bits: int | None) -> LinearLabels:
    """Returns scores as fine as the set has room for.

    Raises:
        CompileError: more than 64 classes.
        NoParameterSetError: the set's look-ups are too noisy to compare such sums.
    """
    classes = len(effects.at_centre)
    check_classes(classes)
    pairs = list(combinations(range(classes), 2))
    for difference_bits in _DIFFERENCE_BITS:
        quantised = quantise_for_signs(effects, difference_bits, bits)
        if quantised is None:
            continue
        weights = quantised.weights.astype(np.float64)
        norm = max(float(np.linalg.norm(weights[a] - weights[b])) for a, b in pairs)
        variance = noise.linear_variance(noise.fresh_variance(params) + (1 / params.modulus) ** 2, norm)
        no_leads: Indices = np.zeros((classes, classes), dtype=np.int64)
        contest = plan_contest(no_leads, difference_bits, variance, params, p_fail_log2)
        if contest is not None and contest.plan.bits == difference_bits:
            return LinearLabels(quantised, _program(quantised, contest, params, p_fail_log2))
    raise NoParameterSetError(
        f"tell='labels': look-ups of '{params.name}' are too noisy to compare sums of {effects.of_features.shape[1]} features"
        + ("" if bits is None else f" of {bits} bits")
        + "; use large16, "
        + ("" if bits is None else "fewer bits, ")
        + "or let the client decrypt the scores"
    )


def _program(quantised: LinearQuantisation, contest: Contest, params: ParameterSet, p_fail_log2: float) -> Program:
    builder, levels = GraphBuilder(), float(quantised.levels)
    wires = builder.input(
        quantised.weights.shape[1], WireEncoding(quantised.step, -levels, levels), "features"
    ).tolist()
    rows = [
        Row({wire: weight for wire, weight in zip(wires, row_weights, strict=True) if weight}, float(added))
        for row_weights, added in zip(quantised.weights.tolist(), quantised.added.tolist(), strict=True)
    ]
    graph = merge_equal(builder.graph(contest.output(builder, rows)))
    limits = {name: noise_limit_percent(params, at, p_fail_log2) for name, at in lookup_margins(graph).items()}
    return replace(Program(graph, params, min(limits.values()), limits), output_unit=contest.output_unit)


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
