"""Compiles a graph for the precisions `exact` and `exact_64`: every look-up right on integers, but for a stated probability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, get_args

import numpy as np

from cloakwork.models.approximate.statistics import Statistics, statistics
from cloakwork.models.client_steps import Quantise
from cloakwork.models.compile.compilation import Compilation, distinct_outputs
from cloakwork.models.compile.labels import check_argmax, labels_of
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.criteria.choose_set import bootstrap_cost
from cloakwork.models.criteria.noise_limits import EXACT, NoiseLimits
from cloakwork.models.errors import (
    CompileError,
    NoParameterSetError,
    PrecisionOverflowError,
    RoundedIntegersWarning,
    warn_user,
)
from cloakwork.models.exact.choose_exact import ExactChoice, choose_exact, choose_widened
from cloakwork.models.exact.exact_graph import ExactGraph, ExactOptions, is_excess, is_extreme
from cloakwork.models.exact.exact_integers import exact_integers, in_units
from cloakwork.models.exact.exact_units import Grids, after_lookup, rounds_itself
from cloakwork.models.exact.gates import is_gate
from cloakwork.models.graph.ir import Graph, Linear, wires
from cloakwork.models.graph.merge_equal import is_output, merge_equal
from cloakwork.models.options import AccumulatorRanges
from cloakwork.models.program import Program
from cloakwork.models.program.facts import ExactFacts, Facts

# Bits of input, activations and weights, tried one after the other.
_LADDER: Final = ((4, 3, 5), (4, 4, 5), (5, 4, 6), (6, 4, 6), (6, 5, 7), (8, 6, 8))

_FINER: Final = (None, 0, 1, 2)  # bits, of units of sums that are read with noise beside them
_ON_GRID: Final = 1e-6  # of a step
_COARSER: Final = (1, 2, 4, 8)  # times the step of scores that weight_bits ask for


def exact_programs(c: Compilation) -> Iterator[Program]:
    """Yields programs in more and more bits, where settings and weight_bits leave that open. NoParameterSetError when there is none.

    Args:
        c: with ranges (bound_ranges).
    """
    refused: CompileError | None = None
    has_program = False
    for input_bits, activation_bits, weight_bits in _choices(c.options):
        chosen = replace(c.options, input_bits=input_bits, activation_bits=activation_bits)
        try:
            program = _exact_program(c, chosen, weight_bits)
        except (NoParameterSetError, PrecisionOverflowError) as error:
            refused = refused or error
            if c.grid is not None:
                break  # the model says its bits: finer ones of the rest need more room
            continue
        has_program = True
        yield program
    if not has_program:
        assert refused is not None
        raise refused


def _choices(options: NetworkOptions) -> list[tuple[int, int, int]]:
    """Bits of input, activations and weights, each as given or growing."""
    choices = [
        (options.input_bits or input_bits, options.activation_bits or activation_bits, options.weight_bits or bits)
        for input_bits, activation_bits, bits in _LADDER
    ]
    return list(dict.fromkeys(choices))


def _exact_program(c: Compilation, settings: NetworkOptions, weight_bits: int) -> Program:
    limits = c.limits
    assert limits.p_fail_log2 is not None and settings.input_bits is not None and settings.activation_bits is not None
    entry = _input_quantiser(c.graph, settings.input_bits) if c.grid is None else None
    approximate = limits.approximate(c.graph)
    options = ExactOptions(
        weight_bits, settings.activation_bits, settings.accumulator_bits, approximate, given=entry is None
    )
    unit = c.grid if entry is None else entry.unit
    assert unit is not None
    calibrated = settings.accumulator_ranges == "calibrated"
    labels = settings.tell == "labels"
    if labels:
        check_argmax(c, settings, approximate)
        exact_graph, graph, chosen = _labels(c, unit, options, calibrated)
    else:
        exact_graph, graph, chosen = _on_integers(c, unit, options, calibrated)
    program = Program(
        graph,
        chosen.parameters,
        limits.default,
        limits.layers,
        input_steps=c.before if entry is None else (*c.before, entry),
        output_steps=labels_of(c) if labels else c.after,
        output_unit=chosen.output_unit,
        facts=Facts(
            exact=_facts(exact_graph, limits.p_fail_log2, settings.activation_bits),
            tell="labels" if labels else "scores",
        ),
    )
    return distinct_outputs(program)


def _on_integers(
    c: Compilation, unit: float, options: ExactOptions, calibrated: bool
) -> tuple[ExactGraph, Graph, ExactChoice]:
    """Keeps what is integer already, where a set serves that; RoundedIntegersWarning where none does."""
    if options.accumulator_bits is not None:
        return _narrow(c, unit, options, calibrated)
    if c.grid is None and not _on_grid(c, unit):
        return _narrow_or_widened(c, unit, options, calibrated)
    integers = replace(options, integers=True)
    kept = exact_integers(c.graph, unit, integers, calibrated).kept
    try:
        return _narrow_or_widened(c, unit, integers, calibrated)
    except NoParameterSetError as refused:
        if not kept:
            raise
        try:
            choice = _narrow_or_widened(c, unit, options, calibrated)
        except NoParameterSetError:
            raise refused from None
        names = ", ".join(f"'{name}'" for name in dict.fromkeys(kept))
        rounded = f"results of {names} are rounded to {options.activation_bits} bits, as no set serves their integers: {refused}"
        warn_user(rounded, RoundedIntegersWarning)
        return choice


def _on_grid(c: Compilation, unit: float) -> bool:
    """Whether the client rounds no sample."""
    if c.samples is None:
        return False
    integers = c.samples / unit
    return bool((np.abs(integers - np.rint(integers)) < _ON_GRID).all())


def _narrow(
    c: Compilation, unit: float, options: ExactOptions, calibrated: bool
) -> tuple[ExactGraph, Graph, ExactChoice]:
    """Returns each look-up by itself."""
    assert c.limits.p_fail_log2 is not None
    integers = exact_integers(c.graph, unit, options, calibrated)
    integers = replace(integers, graph=merge_equal(integers.graph))
    return (
        integers,
        integers.graph,
        choose_exact(integers, c.limits.p_fail_log2, options.approximate, c.options.offered),
    )


def _narrow_or_widened(
    c: Compilation, unit: float, options: ExactOptions, calibrated: bool
) -> tuple[ExactGraph, Graph, ExactChoice]:
    """Returns each look-up by itself where a set serves that; else by comparisons, extremes beside their operands or apart, what costs less."""
    try:
        return _narrow(c, unit, options, calibrated)
    except NoParameterSetError as error:
        narrow = wide = error
    candidates: list[tuple[ExactGraph, Graph, ExactChoice]] = []
    for apart in (False, True) if _has_parts(c.graph, options) else (False,):
        try:
            candidates.append(_widened(c, unit, replace(options, apart=apart), calibrated))
        except NoParameterSetError as error:
            wide = error
    if not candidates:
        raise NoParameterSetError(f"{narrow}. By comparisons: {wide}") from wide
    return min(candidates, key=lambda each: each[1].bootstraps * bootstrap_cost(each[2].parameters))


def _has_parts(graph: Graph, options: ExactOptions) -> bool:
    """Whether something may be put together of bits."""
    gates = [node for node in graph.lookups if is_gate(node)]
    others = any(is_extreme(node) or (options.integers and is_excess(node)) for node in graph.lookups)
    return (others or bool(gates)) and all(len(node.steps) == 1 for node in gates)


def _widened(
    c: Compilation, unit: float, options: ExactOptions, calibrated: bool
) -> tuple[ExactGraph, Graph, ExactChoice]:
    """With comparisons of what no look-up resolves, in the units for which that costs least."""
    assert c.limits.p_fail_log2 is not None
    ways = in_units(c.graph, unit, replace(options, whole=True), calibrated, _FINER)
    merged = (replace(way, graph=merge_equal(way.graph)) for way in ways)
    offered = c.options.offered_for_comparisons
    return choose_widened(merged, c.limits.p_fail_log2, options.approximate, offered, winner=options.compared > 0)


def _labels(
    c: Compilation, unit: float, options: ExactOptions, calibrated: bool
) -> tuple[ExactGraph, Graph, ExactChoice]:
    """With scores as fine as they can be compared."""
    refused: NoParameterSetError | None = None
    for coarser in _COARSER:
        try:
            return _widened(c, unit, replace(options, compared=coarser), calibrated)
        except NoParameterSetError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _facts(exact_graph: ExactGraph, p_fail_log2_limit: float, activation_bits: int) -> ExactFacts:
    layers = exact_graph.graph.linears
    rounded = {each.origin for each in layers if exact_graph.of(each).kept < exact_graph.of(each).values}
    calibrated = {each.origin for each in layers if exact_graph.of(each).is_calibrated}
    values = {each.origin: exact_graph.of(each).values for each in layers}
    facts = ExactFacts(p_fail_log2_limit, values, tuple(sorted(rounded)), tuple(sorted(calibrated)))
    if not exact_graph.rounded:
        return facts
    return replace(facts, results_rounded=tuple(sorted(set(exact_graph.rounded))), activation_bits=activation_bits)


def _input_quantiser(graph: Graph, bits: int) -> Quantise:
    """Returns the calibrated range of the input, zero included, in 2^bits - 1 steps."""
    assert graph.lower is not None and graph.upper is not None
    input_wires = wires(graph.input)
    low, high = min(0.0, float(graph.lower[input_wires].min())), max(0.0, float(graph.upper[input_wires].max()))
    unit = max(high - low, 1e-9) / (2**bits - 1)
    lowest, highest = (float(np.floor(end / unit + 0.5)) * unit for end in (low, high))
    return Quantise(unit, lowest, highest, calibrated=True)


# Programs of networks of integers with more and more exact layers: those first whose rounding the output feels most, for a look-up.
#
# An exact layer takes some ten look-ups for a number that an approximate one takes one for (wide_lookups). Behind an approximate one integers are a
# step off now and then, as noise carries sums over the end of a step, and sums have the ranges of calibration, as in approximate programs. Layers
# whose look-ups do not end in a quantiser are always exact.

_BITS: Final = 8  # of what the model does not round itself
_NOISE: Final = 1.0  # per cent of the half torus, of approximate layers: sets that serve exact ones have much less


def layered_programs(c: Compilation) -> Iterator[Program]:
    """Yields programs without an exact layer, with one, two, four and so on, and with all of them: the cheapest first.

    Args:
        c: with ranges (bound_ranges).

    Raises:
        NoParameterSetError, PrecisionOverflowError: there is none; of the last.
        CompileError: the model does not round its input.
    """
    if c.grid is None:
        raise CompileError("expected a network of integers: a model whose input goes into a QuantizeLinear node")
    names = by_worth(c.graph, statistics(c.graph, c.fitted))
    refused: CompileError | None = None
    has_program = False
    for count in _counts(len(names)):
        try:
            program = _program(c, names[count:])
        except (NoParameterSetError, PrecisionOverflowError) as error:
            refused = error
            continue
        has_program = True
        yield program
    if not has_program:
        assert refused is not None
        raise refused


def _counts(most: int) -> list[int]:
    powers = [1 << k for k in range(most.bit_length())]
    return sorted({0, *powers, most})


def _program(c: Compilation, approximate: Sequence[str]) -> Program:
    """Exact layers have the ranges of interval arithmetic, in which nothing wraps, or where no set serves these, of calibration."""
    options, limits = c.options, NoiseLimits(EXACT, dict.fromkeys(approximate, _NOISE), c.limits.p_fail_log2)
    given = (options.accumulator_ranges,) if options.bounds_integers else ()
    for ranges in given or get_args(AccumulatorRanges):
        bits = options.weight_bits or _BITS
        tried = replace(
            options,
            input_bits=_BITS,
            activation_bits=_BITS,
            accumulator_bits=None,
            accumulator_ranges=ranges,
            weight_bits=bits,
        )
        try:
            return next(exact_programs(replace(c, options=tried, limits=limits)))
        except (NoParameterSetError, PrecisionOverflowError) as error:
            refused = error
    raise refused


def by_worth(graph: Graph, stats: Statistics) -> list[str]:
    """Sorts the layers that may be approximate, that first which is worth most to be exact: error of the output for each of its look-ups.

    Noise that is a part r of a layer's range carries about r of its values times its steps over the end of one; that is squared error
    r range step at every look-up.
    """
    assert graph.lower is not None and graph.upper is not None
    owner = graph.owners()
    error: dict[str, float] = {}
    count: dict[str, int] = {}
    fixed = {node.origin for node in graph.linears if is_output(graph, node)}
    for node in graph.lookups:
        node_wires, nowhere = wires(node), np.zeros(node.size)
        step = after_lookup(node, Grids(nowhere, nowhere)).step
        felt = np.square(stats.sensitivity[node_wires]) * step * (graph.upper[node_wires] - graph.lower[node_wires])
        for position in np.unique(owner[node.gather]).tolist():
            linear, inside = graph.nodes[position], owner[node.gather] == position
            assert isinstance(linear, Linear)
            if not rounds_itself(node):
                fixed.add(linear.origin)
            error[linear.origin] = error.get(linear.origin, 0.0) + float(felt[inside].sum())
            count[linear.origin] = count.get(linear.origin, 0) + int(inside.sum())
    free = [name for name in error if name not in fixed]
    return sorted(free, key=lambda name: error[name] / count[name], reverse=True)
