"""The steps of the pipelines that are more than a pass from graph to graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import onnx

from cloakwork.models.approximate.choose_parameters import least_error
from cloakwork.models.approximate.statistics import Statistics, statistics
from cloakwork.models.arrays import Reals
from cloakwork.models.calibration import Calibration, mixed_inputs, observe
from cloakwork.models.client_steps import Quantise, Rescale, Tensors
from cloakwork.models.client_steps.feature_tables import feature_labels
from cloakwork.models.client_steps.unfit import RangeReport
from cloakwork.models.compile.accuracy import Reference
from cloakwork.models.compile.approximate import approximate_programs, search_of
from cloakwork.models.compile.compilation import Compilation, Transformation
from cloakwork.models.compile.exact import exact_programs, layered_programs
from cloakwork.models.compile.first_accurate import Beyond, beyond_samples, first_accurate
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.criteria.feature_ranges import OPTION, ranges_by_number
from cloakwork.models.criteria.noise_limits import on_layers
from cloakwork.models.criteria.verdicts import held_out
from cloakwork.models.errors import AccuracyError, CompileError, NoParameterSetError, PrecisionOverflowError
from cloakwork.models.graph.ir import Graph, places, wires
from cloakwork.models.onnx_import.ends import chosen_outputs
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.original.network import Clear, Original, judge_import
from cloakwork.models.passes.bound_ranges import bound_ranges, room_for_answers, room_for_far_answers
from cloakwork.models.passes.carry_lines import carry_lines
from cloakwork.models.passes.equalise_lookups import equalise_lookups
from cloakwork.models.passes.lower_products import has_choices, lower_products
from cloakwork.models.passes.quantise_ends import quantise_input, quantise_output
from cloakwork.models.passes.quantised_ranges import quantised_ranges, quantiser_bounds
from cloakwork.models.passes.rescale_input import RESCALED, InputRanges, rescale_input
from cloakwork.models.passes.several_inputs import input_bounds, quantise_inputs, rescale_inputs
from cloakwork.models.passes.widen_ranges import reach_far, widen_ranges
from cloakwork.models.program import Program
from cloakwork.models.runtime.interpreter import clear_answers

_FAR: Final = (0.5, 0.25)  # of a range's width, of room for inputs unlike the samples, that are tried


def rewriting(rewrite: Callable[[Graph], Graph]) -> Transformation:
    """Wraps a pass from graph to graph as a step."""
    return lambda c: replace(c, graph=rewrite(c.graph))


def leave_input_quantisers(c: Compilation) -> Compilation:
    if c.graph.inputs:
        graph, tensors = quantise_inputs(c.graph)
        return replace(c, graph=graph, before=(tensors,))
    graph, given = quantise_input(c.graph)
    return c if given is None else replace(c, graph=graph, before=(given,), grid=given.unit)


def leave_last_functions(c: Compilation) -> Compilation:
    graph, quantiser = quantise_output(c.graph, c.options.is_exact)
    return replace(c, graph=graph, quantiser=quantiser)


def lower(c: Compilation) -> Compilation:
    """Lowers products; in exact programs choices as gates, which need to know how far apart the values are."""
    gated, needed = c.options.is_exact, c.options.is_exact and has_choices(c.graph)
    if needed and isinstance(c.given, Calibration):
        raise CompileError(
            "samples: expected samples, not recorded ranges: the model chooses between computed values (Where); pass typical inputs [samples, ..]"
        )
    samples = c.entered(c.given) if needed and c.given is not None else None
    return replace(c, graph=lower_products(c.graph, gated, samples))


def judge(c: Compilation) -> Compilation:
    """Raises ImportFaultError where the graph says something else than the file that it comes from."""
    if c.model is None or c.given is None or isinstance(c.given, Calibration):
        return c
    model, options = c.model, c.options
    original = Original.of(model, c.imported, c.given, chosen_outputs(model.graph, options.outputs))
    judged = original is not None and judge_import(original, c.clear, lambda part: _imported(part, options))
    return replace(c, judged=judged)


def _imported(part: onnx.ModelProto, options: NetworkOptions) -> Clear:
    """Returns a part of the file, imported by itself."""
    graph = import_onnx(part, pools_first=not options.is_exact, rounding=options.rounding)
    return lambda samples: clear_answers(graph, samples)


def limit_noise(c: Compilation) -> Compilation:
    return replace(c, limits=on_layers(c.options.limits, c.graph))


def calibrate(c: Compilation) -> Compilation:
    if c.given is None:
        return replace(c, seen=quantised_ranges(c.graph, _quantised(c), c.quantiser))
    if isinstance(c.given, Calibration):
        return replace(c, seen=c.given)
    samples, accuracy = c.entered(c.given), c.options.accuracy
    unseen = held_out(len(samples)) if accuracy else np.zeros(len(samples), dtype=bool)
    seen = _of_all_inputs(observe(c.graph, samples[~unseen]), c.graph, samples)
    if (first := _own_quantiser(c)) is not None:
        seen = replace(seen, input_range=(first.low, first.high))  # integers that no sample has are the model's too
    observed = replace(c, seen=seen, samples=samples, unseen=unseen)
    if not accuracy:
        return observed
    return replace(observed, reference=Reference.of(c.graph, samples, c.options.task, accuracy, unseen))


def _of_all_inputs(seen: Calibration, graph: Graph, samples: Reals) -> Calibration:
    """With the ranges of inputs that all samples have: clients are told of these, and values beyond them count as their ends."""
    flat = samples.reshape(len(samples), -1)
    ends = tuple((float(flat[:, place].min()), float(flat[:, place].max())) for place in places(graph.inputs))
    return replace(seen, input_range=(float(flat.min()), float(flat.max())), inputs=ends or None)


def _own_quantiser(c: Compilation) -> Quantise | None:
    """Returns the model's, of its one input, in exact programs that take all that it lets through."""
    first = c.before[0] if c.before else None
    as_is = c.options.accumulator_ranges == "calibrated"
    return first if c.options.is_exact and not as_is and isinstance(first, Quantise) else None


def _quantised(c: Compilation) -> tuple[Reals, Reals]:
    first = c.before[0] if c.before else None
    if isinstance(first, Tensors):
        return input_bounds(first)
    assert first is None or isinstance(first, Quantise)
    return quantiser_bounds(c.graph, first)


def bring_inputs_to_one_scale(c: Compilation) -> Compilation:
    assert c.seen is not None
    first = c.before[0] if c.before else None
    ranges = InputRanges(_given_ranges(c), rounded=not c.options.is_exact)
    if isinstance(first, Tensors):
        rescaled = rescale_inputs(c.graph, first, c.seen, c.samples, ranges)
        samples = None if c.samples is None else rescaled.step(rescaled.step.apart(c.samples))
        return replace(
            c,
            graph=rescaled.graph,
            before=(rescaled.step,),
            seen=rescaled.calibration,
            grid=rescaled.grid,
            samples=samples,
        )
    if first is not None:
        return c
    graph, rescale = (c.graph, None) if c.samples is None else rescale_input(c.graph, c.samples, ranges)
    if rescale is None:
        entering = ranges.of_all(*c.seen.input_range) if ranges.rounded else c.seen.input_range
        return replace(c, seen=replace(c.seen, input_range=entering))
    assert c.samples is not None
    if ranges.given:
        _warn_of_samples(rescale, c.samples)
    seen = replace(c.seen.on(c.graph, graph), input_range=RESCALED)
    return replace(c, graph=graph, before=(rescale,), seen=seen, samples=rescale(c.samples))


def _given_ranges(c: Compilation) -> dict[int, tuple[float, float]]:
    """By number of the column, channel or input. CompileError where the model or recorded ranges say them already."""
    shape, parts = c.graph.input.shape, c.graph.inputs
    names = tuple(part.name for part in parts) or feature_labels(None, shape[0] if shape else 1)
    given = ranges_by_number(c.options.ranges, names)
    first = c.before[0] if c.before else None
    if given and (all(first.steps) if isinstance(first, Tensors) else first is not None):
        raise CompileError(
            f"{OPTION}: the model's own quantiser (QDQ or QOperator) says the range of its input; leave the option out"
        )
    if given and c.samples is None:
        raise CompileError(
            f"{OPTION}: expected samples beside it, not recorded ranges; pass typical inputs [samples, ..]"
        )
    return given


def _warn_of_samples(rescale: Rescale, samples: Reals) -> None:
    """One CalibratedRangeWarning where calibration samples lie outside of ranges that were given."""
    report = RangeReport()
    report.add(rescale.outside(samples), feature_labels(None, samples.shape[1]) if samples.ndim == 2 else None)
    report.warn(OPTION, "the range that was given")


def bound(c: Compilation) -> Compilation:
    assert c.seen is not None
    return replace(c, graph=bound_ranges(c.graph, c.seen, c.options.margin))


def give_outputs_room(c: Compilation) -> Compilation:
    """Widens ranges of outputs; statistics are of the graph with ranges: from here on."""
    graph = _with_room(c, c.graph)
    return replace(c, graph=graph, stats=statistics(graph, c.fitted))


def _with_room(c: Compilation, bounded: Graph) -> Graph:
    """Ranges with a margin that was asked for are taken as they are."""
    return bounded if c.options.margin is not None else room_for_answers(bounded, c.samples)


def carry(c: Compilation) -> Compilation:
    """Carries lines and bounds the graph again: rows that read lines have ranges of their own."""
    assert c.stats is not None and c.graph.lower is not None and c.graph.upper is not None
    if c.fitted is None or (carried := carry_lines(c.graph, c.stats)) is None:
        return c
    input_wires = wires(c.graph.input)
    entering = float(c.graph.lower[input_wires].min()), float(c.graph.upper[input_wires].max())
    seen = replace(observe(carried, c.fitted), input_range=entering)
    bounded = _with_room(c, bound_ranges(carried, seen, c.options.margin))
    return replace(c, graph=bounded, stats=statistics(bounded, c.fitted), plain=(c.graph, c.stats))


def widen(c: Compilation) -> Compilation:
    """Widens ranges; those with a margin that was asked for are taken as they are."""
    assert c.stats is not None
    if c.options.margin is not None:
        return c
    return replace(_widened(c, widen_ranges), narrow=c)


def _widened(c: Compilation, wider: Callable[[Graph], Graph]) -> Compilation:
    """With other ranges of the graph, and of that without lines."""

    def widened(graph: Graph, stats: Statistics) -> tuple[Graph, Statistics]:
        wide = wider(graph)
        if wide is graph:
            return graph, stats
        wide = room_for_far_answers(wide, c.samples)
        return wide, statistics(wide, c.fitted)

    assert c.stats is not None
    graph, stats = widened(c.graph, c.stats)
    return replace(c, graph=graph, stats=stats, plain=None if c.plain is None else widened(*c.plain))


def equalise(c: Compilation) -> Compilation:
    assert c.stats is not None
    graph, stats = equalise_lookups(c.graph, c.stats)
    return replace(c, graph=graph, stats=stats, plain=None if c.plain is None else equalise_lookups(*c.plain))


def keep_the_better(c: Compilation) -> Compilation:
    if c.plain is None:
        return c
    assert c.stats is not None
    search = search_of(c)
    graph, stats = least_error([c.plain, (c.graph, c.stats)], search.limits, search.least_bits, search.sets)
    return replace(c, graph=graph, stats=stats, plain=None)


def choose_approximate(c: Compilation) -> Compilation:
    """Chooses approximate programs with ranges for inputs unlike the samples, if answers beyond the samples' come back without them and as accurate
    a program has them."""
    chosen = _chosen(c, approximate_programs(c))
    if c.reference is None or c.narrow is None:
        return chosen
    assert chosen.program is not None
    beyond = beyond_samples(chosen.program, c.reference)
    if beyond.comes_back:
        chosen, beyond = _reaching_far(c.narrow, c.reference, chosen, beyond)
    if not beyond.comes_back:
        return chosen
    return replace(chosen, doubt=beyond.text if chosen.doubt is None else f"{chosen.doubt}; {beyond.text}")


def _reaching_far(
    narrow: Compilation, reference: Reference, chosen: Compilation, beyond: Beyond
) -> tuple[Compilation, Beyond]:
    """Returns the first that is as good, and of which fewer answers come back; else what there is. Args: narrow: as it was before `widen`."""
    inputs = mixed_inputs(reference.fitted[0])
    for most in _FAR:
        far = keep_the_better(equalise(_widened(narrow, partial(_far_ranges, inputs=inputs, most=most))))
        try:
            other = _chosen(far, approximate_programs(far))
        except (AccuracyError, NoParameterSetError, PrecisionOverflowError):
            continue
        assert other.program is not None
        further = beyond_samples(other.program, reference)
        if further.back < beyond.back and (other.loss, other.doubt) in ((None, None), (chosen.loss, chosen.doubt)):
            return other, further
    return chosen, beyond


def _far_ranges(graph: Graph, inputs: Reals, most: float) -> Graph:
    return reach_far(widen_ranges(graph), inputs, most)


def choose_exact_set(c: Compilation) -> Compilation:
    """Chooses exact programs on all integers of the input's quantiser; where no set serves them, on those that samples have."""
    try:
        return _chosen(c, exact_programs(c))
    except (NoParameterSetError, PrecisionOverflowError) as refused:
        narrow = _as_sampled(c)
        if narrow is None:
            raise
        try:
            chosen = _chosen(narrow, exact_programs(narrow))
        except (NoParameterSetError, PrecisionOverflowError):
            raise refused from None
        assert narrow.seen is not None
        low, high = narrow.seen.input_range
        text = (
            f"inputs beyond those of the samples, {low:g} to {high:g}, count as the nearest of these, as no set serves all that the model's "
            f"quantiser takes: {refused}"
        )
        return replace(chosen, narrowed=text)


def _as_sampled(c: Compilation) -> Compilation | None:
    """The client keeps inputs within those of the samples, and says so. None where that is no narrower."""
    first = _own_quantiser(c)
    if first is None or c.samples is None:
        return None
    assert c.seen is not None
    ends = float(c.samples.min()), float(c.samples.max())
    if ends == (first.low, first.high):
        return None
    kept = replace(first, low=ends[0], high=ends[1], calibrated=True)
    return bound(replace(c, before=(kept, *c.before[1:]), seen=replace(c.seen, input_range=ends)))


def choose_layers(c: Compilation) -> Compilation:
    return _chosen(c, layered_programs(c))


def _chosen(c: Compilation, programs: Iterator[Program]) -> Compilation:
    accurate = first_accurate(programs, c.reference, c.options.accuracy, c.options.allow_loss)
    return replace(c, graph=accurate.program.graph, program=accurate.program, loss=accurate.loss, doubt=accurate.doubt)
