"""Compiles a graph for the profiles `exact` and `exact_64`: every look-up right on integers, but for a stated probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.client_steps import Quantise
from cloakwork.models.errors import CompileError
from cloakwork.models.ir import Graph, wires
from cloakwork.models.passes.choose_exact import choose_exact
from cloakwork.models.passes.exact_integers import ExactOptions, exact_integers
from cloakwork.models.passes.merge_equal import merge_equal
from cloakwork.models.passes.noise_limits import NoiseLimits
from cloakwork.models.program import Program

Ranges = Literal["interval", "calibrated"]


@dataclass(frozen=True)
class ExactSettings:
    """Args:
    input_bits, activation_bits: of the input and of results of look-ups, where the model does not say where it rounds (QDQ).
    rounded_bits: accumulators that have more values are rounded to this many bits before their look-up, and weights that the model gives
        in more bits to weight_bits; None: no set, no program.
    ranges: of accumulators: "interval" what weights and integers allow, nothing ever wraps; "calibrated" what calibration data showed.
    """

    input_bits: int = 4
    activation_bits: int = 3
    rounded_bits: int | None = None
    ranges: Ranges = "interval"

    def check(self) -> None:
        for name in ("input_bits", "activation_bits", "rounded_bits"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 12:
                raise CompileError(f"{name}: expected 1 to 12, got {value}")
        if self.ranges not in ("interval", "calibrated"):
            raise CompileError(f"ranges: expected 'interval' or 'calibrated', got '{self.ranges}'")


def compile_exact(
    bounded: Graph,
    limits: NoiseLimits,
    settings: ExactSettings,
    weight_bits: int,
    ends: tuple[Quantise | None, Quantise | None],
    candidates: Sequence[ParameterSet] | None,
) -> Program:
    """Args:
    bounded: with ranges (bound_ranges).
    ends: quantisers of input and output that the model has and the client applies.
    """
    assert limits.failure_log2 is not None
    settings.check()
    given, wanted = ends
    entry = given or _input_quantiser(bounded, settings.input_bits)
    approximate = limits.approximate(bounded)
    options = ExactOptions(
        weight_bits, settings.activation_bits, settings.rounded_bits, approximate, given=given is not None
    )
    found = exact_integers(bounded, entry.unit, options, settings.ranges == "calibrated")
    found = replace(found, graph=merge_equal(found.graph))
    chosen = choose_exact(found, limits.failure_log2, approximate, candidates)
    return Program(
        found.graph,
        chosen.parameters,
        limits.default,
        limits.layers,
        input_steps=(entry,),
        output_steps=() if wanted is None else (wanted,),
        output_unit=chosen.output_unit,
        facts={
            "failure_log2_limit": limits.failure_log2,
            "values": {node.origin: found.values[node.first_wire] for node in found.graph.linears},
            "rounded": sorted(
                {n.origin for n in found.graph.linears if found.kept[n.first_wire] < found.values[n.first_wire]}
            ),
            "calibrated_ranges": sorted({n.origin for n in found.graph.linears if n.first_wire in found.calibrated}),
        },
    )


def _input_quantiser(graph: Graph, bits: int) -> Quantise:
    """The calibrated range of the input, zero included, in 2^bits - 1 steps."""
    assert graph.lower is not None and graph.upper is not None
    own = wires(graph.input)
    low, high = min(0.0, float(graph.lower[own].min())), max(0.0, float(graph.upper[own].max()))
    unit = max(high - low, 1e-9) / (2**bits - 1)
    lowest, highest = (float(np.floor(end / unit + 0.5)) * unit for end in (low, high))
    return Quantise(unit, lowest, highest, calibrated=True)
