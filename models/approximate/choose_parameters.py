"""Chooses the cheapest approximate parameter set under which every look-up sees little enough noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.approximate.quantise_weights import WeightPlan, plan_scales
from cloakwork.models.approximate.row_scales import noise_behind
from cloakwork.models.approximate.statistics import Statistics
from cloakwork.models.criteria.choose_set import bootstrap_cost, check_room, fitting
from cloakwork.models.criteria.noise_limits import NoiseLimits
from cloakwork.models.errors import NoParameterSetError, PrecisionOverflowError
from cloakwork.models.graph.ir import Graph
from cloakwork.models.graph.merge_equal import merge_equal
from cloakwork.models.program.answers import phase_noise, weight_norms

_BETTER: Final = 0.95  # of the least error foreseen so far: what a dearer set has to bring
# Of the allowed noise, tried one after the other; the small ones are for rows that rounding has made equal.
_SHARES: Final = (1.0, 0.97, 0.94, 0.9, 0.8, 0.65, 0.5)


@dataclass(frozen=True, eq=False)
class Attempt:
    """A quantised graph, the set under which its noise is within the limits, and what was foreseen of it."""

    graph: Graph
    params: ParameterSet
    error: float  # variance of an output's error (Plan.error)


def attempts(
    graph: Graph,
    limits: NoiseLimits,
    least_bits: int,
    candidates: Sequence[ParameterSet],
    stats: Statistics | None = None,
    most_error: float = math.inf,
) -> Iterator[Attempt]:
    """Quantises for one set after the other, cheapest first, where the noise is within its limits and every layer's largest weight has at least
    `least_bits`.

    Args:
        limits: by the names of linear nodes.
        stats: of typical inputs.
        most_error: sets of which more is foreseen are left out, but for the best when there is no other; so are those that are foreseen to
            be no better than a cheaper one.

    Raises:
        NoParameterSetError: at the end, when there was none; names the layer whose weights are coarsest, what it needs and the nearest set.
    """
    quantised = _Quantised(graph, limits, least_bits, stats, most_error)
    any_fits = False
    for attempt in fitting(sorted(candidates, key=bootstrap_cost), quantised.under):
        any_fits = True
        yield attempt
    if any_fits:
        return
    last = quantised.least_hopeless()
    if last is None:
        raise quantised.refusal()
    yield last


class _Quantised:
    """A graph under one set after the other, and what was wrong with those that did not fit."""

    def __init__(
        self, graph: Graph, limits: NoiseLimits, least_bits: int, stats: Statistics | None, most_error: float
    ) -> None:
        self._graph, self._limits, self._least_bits, self._stats = graph, limits, least_bits, stats
        self._most_error = most_error
        self._least_error = math.inf
        self._hopeless: WeightPlan | None = None
        self._nearest: tuple[float, str, str] | None = None  # of whose coarsest layer the largest weight has most steps
        self._overflow: tuple[float, PrecisionOverflowError] | None = None  # of the set with least noise of its own

    def under(self, params: ParameterSet) -> Attempt | None:
        """Returns None where it does not fit, or is foreseen to be no better than what fitted before."""
        try:
            plan = plan_scales(self._graph, params, self._limits, self._least_bits, self._stats)
            largest, layer = plan.coarsest() or (math.inf, "")
            if _signed_bits(largest) < self._least_bits:
                coarsest = (largest, layer, params.name)
                self._nearest = max(self._nearest or (0.0, layer, params.name), coarsest, key=lambda each: each[0])
            elif plan.error > self._most_error:
                if self._hopeless is None or plan.error < self._hopeless.error:
                    self._hopeless = plan
            elif plan.given or plan.error < _BETTER * self._least_error:
                attempt = Attempt(_within_noise(plan, self._least_bits), params, plan.error)
                self._least_error = plan.error
                return attempt
        except PrecisionOverflowError as error:
            variance = noise_behind(params, output=False)
            if self._overflow is None or variance < self._overflow[0]:
                self._overflow = variance, error
        return None

    def least_hopeless(self) -> Attempt | None:
        """Finds, of the sets of which too much error is foreseen, that of the least."""
        plan = self._hopeless
        return None if plan is None else Attempt(_within_noise(plan, self._least_bits), plan.params, plan.error)

    def refusal(self) -> NoParameterSetError:
        if self._nearest is None:
            nearest = f"the nearest: {self._overflow[1]}" if self._overflow else "none is among the sets"
            return NoParameterSetError(f"no approximate parameter set fits; {nearest}")
        largest, layer, name = self._nearest
        limit = self._limits.layers.get(layer, self._limits.default)
        return NoParameterSetError(
            f"layer '{layer}' needs weights of at least {self._least_bits} bits under noise of {limit:.3g} % of the half torus; the nearest set, "
            f"'{name}', leaves room for {_signed_bits(largest):g}: use fewer weight_bits, a narrower layer, smaller weights or a precision with "
            "more noise"
        )


def least_error(
    variants: Sequence[tuple[Graph, Statistics]],
    limits: NoiseLimits,
    least_bits: int,
    candidates: Sequence[ParameterSet],
) -> tuple[Graph, Statistics]:
    """Returns the variant of a graph of which least error is foreseen, under a set of middling cost; the first where that says nothing."""
    if len(variants) == 1 or not candidates:
        return variants[0]
    for params in sorted(candidates, key=bootstrap_cost)[len(candidates) // 2 :]:
        errors = []
        for graph, stats in variants:
            try:
                errors.append(plan_scales(graph, params, limits, least_bits, stats).error)
            except PrecisionOverflowError:
                errors.append(math.inf)
        if min(errors) < math.inf:
            return variants[int(np.argmin(errors))]
    return variants[0]


def _signed_bits(largest: float) -> float:
    """Of integers up to this, sign included."""
    return math.inf if math.isinf(largest) else int(np.rint(largest)).bit_length() + 1


def approximate_sets(candidates: Sequence[ParameterSet]) -> list[ParameterSet]:
    """Returns what the candidates have for approximate look-ups (an exact set is one more row of noise figures)."""
    return [params for params in candidates if params.kind in ("approximate", "exact")]


def _within_noise(plan: WeightPlan, least_bits: int) -> Graph:
    """Returns quantised weights whose noise, counted after rounding, is within the limit; rounding may have made rows equal."""
    limits = plan.limits
    for share in _SHARES:
        if share < 1:
            plan = plan_scales(plan.graph, plan.params, limits.scaled(share), least_bits, plan.stats)
        distinct = merge_equal(plan.integers())
        norms_by_layer = zip(distinct.linears, weight_norms(distinct), strict=True)
        if all(phase_noise(plan.params, norms) <= limits.of(node) / 200 for node, norms in norms_by_layer):
            check_room(distinct)
            return distinct
    raise PrecisionOverflowError(f"rounded weights exceed the noise limit under parameter set '{plan.params.name}'")
