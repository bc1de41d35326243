"""Programs of networks of integers with more and more exact layers: those first whose rounding the output feels most, for a look-up.

An exact layer takes some ten look-ups for a number that an approximate one takes one for (wide_lookups). Behind an approximate one integers are a
step off now and then, as noise carries sums over the end of a step, and sums have the ranges of calibration, as in approximate programs. Layers
whose look-ups do not end in a quantiser are always exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, get_args

import numpy as np

from cloakwork.models.compile.compilation import Compilation
from cloakwork.models.compile.exact import exact_programs
from cloakwork.models.criteria.noise_limits import EXACT, NoiseLimits
from cloakwork.models.errors import CompileError, NoParameterSetError, PrecisionOverflowError
from cloakwork.models.graph.affine import is_output
from cloakwork.models.graph.ir import Graph, Linear, wires
from cloakwork.models.options import AccumulatorRanges
from cloakwork.models.passes.grids import Grids, after_lookup, rounds_itself
from cloakwork.models.passes.statistics import Statistics, statistics
from cloakwork.models.program import Program

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
