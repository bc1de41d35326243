"""Chooses the cheapest parameter set at which every look-up of an exact program is right but for a stated probability."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet, is_insecure, parameter_sets
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.ir import Linear
from cloakwork.models.passes.choose_parameters import Norms, bootstrap_cost, phase_noise, weight_norms
from cloakwork.models.passes.exact_integers import ExactGraph


@dataclass(frozen=True)
class ExactChoice:
    parameters: ParameterSet
    output_unit: float  # phase between two values of the output; 0 when its noise is too large to tell them apart


@dataclass(frozen=True)
class _Demand:
    """What a linear node asks of a set: noise below `margin` but for the allowed probability, or a noise limit."""

    node: Linear
    norms: Norms
    margin: float
    values: int
    limit: float | None


def choose_exact(
    exact: ExactGraph,
    failure_log2: float,
    approximate: Mapping[str, float],
    candidates: Sequence[ParameterSet] | None = None,
) -> ExactChoice:
    """Raises:
    NoParameterSetError: names the layer that asks for most, what it needs and the nearest set.
    """
    sets = [p for p in parameter_sets() if not is_insecure(p)] if candidates is None else list(candidates)
    sets = sorted((p for p in sets if p.kind == "exact"), key=bootstrap_cost)
    demands = _demands(exact, approximate)
    inner = [demand for demand in demands if not demand.norms.is_output]
    nearest: tuple[float, _Demand, str] | None = None
    for params in sets:
        failing = [(_excess(params, demand, failure_log2), demand) for demand in inner]
        worst = max(failing, key=lambda found: found[0], default=(0.0, None))
        if worst[1] is None or worst[0] <= 0:
            return ExactChoice(params, _output_unit(exact, params, demands, failure_log2))
        if nearest is None or worst[0] < nearest[0]:
            nearest = (worst[0], worst[1], params.name)
    if nearest is None:
        raise NoParameterSetError("no exact parameter set is among the candidates; expected some of lut1 .. lut5")
    _, demand, name = nearest
    raise NoParameterSetError(
        f"layer '{demand.node.origin}' needs look-ups on {demand.values} values ({math.log2(demand.values):.1f} bits) at a weight norm of "
        f"{max(demand.norms.on_lookups, 0.0):.1f} with failure at most 2^{failure_log2:.0f}; the nearest set, '{name}', resolves "
        f"{_resolved(next(p for p in sets if p.name == name), demand, failure_log2)} there: use fewer weight_bits or activation_bits, a "
        "narrower layer, or allow rounded_bits"
    )


def lookup_failure(params: ParameterSet, norms: Norms, margin: float) -> float:
    """log2 of the probability that a look-up after this linear node sees another value."""
    return noise.failure_log2(margin, phase_noise(params, norms) ** 2, noise.lookup_offset(params))


def _demands(exact: ExactGraph, approximate: Mapping[str, float]) -> list[_Demand]:
    result = []
    for node, norms in zip(exact.graph.linears, weight_norms(exact.graph), strict=True):
        first = node.first_wire
        result.append(_Demand(node, norms, exact.margin[first], exact.kept[first], approximate.get(node.origin)))
    return result


def _excess(params: ParameterSet, demand: _Demand, failure_log2: float) -> float:
    """How far a set is from what a layer needs; at most 0 when it serves."""
    if demand.limit is not None:
        return math.log2(200 * phase_noise(params, demand.norms) / demand.limit)
    return lookup_failure(params, demand.norms, demand.margin) - failure_log2


def _output_unit(exact: ExactGraph, params: ParameterSet, demands: list[_Demand], failure_log2: float) -> float:
    outputs = [demand for demand in demands if demand.norms.is_output]
    unit = exact.unit[outputs[0].node.first_wire]
    variance = max(phase_noise(params, demand.norms) for demand in outputs) ** 2
    return unit if variance == 0 or noise.failure_log2(unit / 2, variance) <= failure_log2 else 0.0


def _resolved(params: ParameterSet, demand: _Demand, failure_log2: float) -> str:
    """The most values that a set tells apart at a layer's norm."""
    fitting = [
        v
        for v in range(2, demand.values)
        if lookup_failure(params, demand.norms, demand.margin * demand.values / v) <= failure_log2
    ]
    return f"{max(fitting)} values" if fitting else "none"
