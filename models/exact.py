"""Compiles a graph for the profiles `exact` and `exact_64`: every look-up right on integers, but for a stated probability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.client_steps import InputStep, OutputStep, Quantise
from cloakwork.models.distinct_outputs import distinct_outputs
from cloakwork.models.errors import CompileError, NoParameterSetError, PrecisionOverflowError
from cloakwork.models.facts import ExactFacts, Facts
from cloakwork.models.ir import Graph, wires
from cloakwork.models.passes.choose_exact import choose_exact
from cloakwork.models.passes.exact_integers import ExactGraph, ExactOptions, exact_integers
from cloakwork.models.passes.merge_equal import merge_equal
from cloakwork.models.passes.noise_limits import NoiseLimits
from cloakwork.models.program import Program

# Bits of input, activations and weights, tried one after the other.
_LADDER: Final = ((4, 3, 5), (4, 4, 5), (5, 4, 6), (6, 4, 6), (6, 5, 7), (8, 6, 8))

Ranges = Literal["interval", "calibrated"]


@dataclass(frozen=True)
class ExactSettings:
    """Args:
    input_bits, activation_bits: of the input and of results of look-ups, where the model does not say where it rounds (QDQ); None: from 4 and 3
        on, as many as the accuracy asks for.
    rounded_bits: accumulators that have more values are rounded to this many bits before their look-up, and weights that the model gives
        in more bits to weight_bits; None: no set, no program.
    ranges: of accumulators: "interval" what weights and integers allow, nothing ever wraps; "calibrated" what calibration data showed.
    """

    input_bits: int | None = None
    activation_bits: int | None = None
    rounded_bits: int | None = None
    ranges: Ranges = "interval"

    def check(self) -> None:
        for name in ("input_bits", "activation_bits", "rounded_bits"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 12:
                raise CompileError(f"{name}: expected 1 to 12, got {value}")
        if self.ranges not in ("interval", "calibrated"):
            raise CompileError(f"ranges: expected 'interval' or 'calibrated', got '{self.ranges}'")


@dataclass(frozen=True, eq=False)
class Ends:
    """What the client does before encryption and after decryption.

    Args:
        grid: unit of the values that the model's own quantisers make of the input; None where it does not round all of it.
    """

    given: tuple[InputStep, ...] = ()
    wanted: tuple[OutputStep, ...] = ()
    grid: float | None = None


def exact_programs(
    bounded: Graph,
    limits: NoiseLimits,
    settings: ExactSettings,
    weight_bits: int | None,
    ends: Ends,
    candidates: Sequence[ParameterSet] | None,
) -> Iterator[Program]:
    """Programs in more and more bits, where settings and weight_bits leave that open.

    Args:
        bounded: with ranges (bound_ranges).

    Raises:
        NoParameterSetError: when there is none.
    """
    settings.check()
    refused: CompileError | None = None
    found = False
    for input_bits, activation_bits, bits in _choices(settings, weight_bits):
        chosen = replace(settings, input_bits=input_bits, activation_bits=activation_bits)
        try:
            program = _exact_program(bounded, limits, chosen, bits, ends, candidates)
        except (NoParameterSetError, PrecisionOverflowError) as error:
            refused = refused or error
            continue
        found = True
        yield program
    if not found:
        assert refused is not None
        raise refused


def _choices(settings: ExactSettings, weight_bits: int | None) -> list[tuple[int, int, int]]:
    """Bits of input, activations and weights, each as given or growing."""
    choices = [
        (settings.input_bits or input_bits, settings.activation_bits or activation_bits, weight_bits or bits)
        for input_bits, activation_bits, bits in _LADDER
    ]
    return list(dict.fromkeys(choices))


def _exact_program(
    bounded: Graph,
    limits: NoiseLimits,
    settings: ExactSettings,
    weight_bits: int,
    ends: Ends,
    candidates: Sequence[ParameterSet] | None,
) -> Program:
    assert limits.failure_log2 is not None and settings.input_bits is not None and settings.activation_bits is not None
    entry = _input_quantiser(bounded, settings.input_bits) if ends.grid is None else None
    approximate = limits.approximate(bounded)
    options = ExactOptions(
        weight_bits, settings.activation_bits, settings.rounded_bits, approximate, given=entry is None
    )
    unit = ends.grid if entry is None else entry.unit
    assert unit is not None
    found = exact_integers(bounded, unit, options, settings.ranges == "calibrated")
    found = replace(found, graph=merge_equal(found.graph))
    chosen = choose_exact(found, limits.failure_log2, approximate, candidates)
    program = Program(
        found.graph,
        chosen.parameters,
        limits.default,
        limits.layers,
        input_steps=ends.given if entry is None else (*ends.given, entry),
        output_steps=ends.wanted,
        output_unit=chosen.output_unit,
        facts=Facts(exact=_facts(found, limits.failure_log2)),
    )
    return distinct_outputs(program)


def _facts(found: ExactGraph, p_fail_log2_limit: float) -> ExactFacts:
    layers = found.graph.linears
    rounded = {each.origin for each in layers if found.of(each).kept < found.of(each).values}
    calibrated = {each.origin for each in layers if found.of(each).is_calibrated}
    values = {each.origin: found.of(each).values for each in layers}
    return ExactFacts(p_fail_log2_limit, values, tuple(sorted(rounded)), tuple(sorted(calibrated)))


def _input_quantiser(graph: Graph, bits: int) -> Quantise:
    """The calibrated range of the input, zero included, in 2^bits - 1 steps."""
    assert graph.lower is not None and graph.upper is not None
    own = wires(graph.input)
    low, high = min(0.0, float(graph.lower[own].min())), max(0.0, float(graph.upper[own].max()))
    unit = max(high - low, 1e-9) / (2**bits - 1)
    lowest, highest = (float(np.floor(end / unit + 0.5)) * unit for end in (low, high))
    return Quantise(unit, lowest, highest, calibrated=True)
