"""Chooses the cheapest parameter set at which every look-up of an exact program is right but for a stated probability."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Reals
from cloakwork.models.criteria.choose_set import bootstrap_cost, choose_set
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.exact.element_steps import refused
from cloakwork.models.exact.exact_graph import ExactGraph, is_extreme
from cloakwork.models.exact.gates import is_gate
from cloakwork.models.exact.step_functions import PART, large_weights
from cloakwork.models.exact.wide_lookups import widened
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, wires, wrong_distance
from cloakwork.models.graph.merge_equal import is_output, merge_equal
from cloakwork.models.program.answers import Norms, phase_noise, weight_norms

_FARTHEST, _HALVINGS = 2.0**60, 40


@dataclass(frozen=True)
class ExactChoice:
    parameters: ParameterSet
    output_unit: float  # phase between two values of the output; 0 when its noise is too large to tell them apart


@dataclass(frozen=True)
class _Demand:
    """Demands of a linear node on a set: noise below `margin` but for the allowed probability, or a noise limit."""

    node: Linear
    norms: Norms
    margin: float
    values: int
    limit: float | None


def choose_exact(
    exact: ExactGraph,
    p_fail_log2: float,
    approximate: Mapping[str, float],
    candidates: Sequence[ParameterSet],
) -> ExactChoice:
    """Chooses the exact program's set.

    Raises:
        NoParameterSetError: names the layer that asks for most, what it needs and the nearest set.
    """
    sets = sorted((p for p in candidates if p.kind == "exact"), key=bootstrap_cost)
    demands = _demands(exact, approximate)
    inner = [demand for demand in demands if not demand.norms.is_output]

    def serving(params: ParameterSet) -> ExactChoice | None:
        serves = all(_serves(params, demand, p_fail_log2) for demand in inner)
        return ExactChoice(params, _output_unit(exact, params, demands, p_fail_log2)) if serves else None

    if (chosen := choose_set(sets, serving)) is not None:
        return chosen
    if not sets:
        raise NoParameterSetError("no exact parameter set is among the sets; expected some of lut1 .. lut8")
    params, demand = _nearest(sets, inner, p_fail_log2)
    raise NoParameterSetError(
        f"layer '{demand.node.origin}' needs {_wanted(demand, p_fail_log2)}; the nearest set, '{params.name}', "
        f"{_offered(params, demand, p_fail_log2)} there: use fewer weight_bits or activation_bits, a narrower layer, or allow accumulator_bits"
    )


def choose_widened(
    ways: Iterable[ExactGraph],
    p_fail_log2: float,
    approximate: Mapping[str, float],
    candidates: Sequence[ParameterSet],
    winner: bool = False,
) -> tuple[ExactGraph, Graph, ExactChoice]:
    """Returns a graph that takes bits from accumulators which no look-up resolves, of the ways and under the set for which that costs least.

    Large weights are read in parts, which takes more look-ups, where there is no room for the noise under whole ones.

    Args:
        ways: of whole units, the same integers in each.
        approximate: noise limits of layers that need not be exact.
        winner: see `widened`.

    Raises:
        NoParameterSetError: what the set that is best for such sums has no room for, in the first of the ways; in parts where that was tried.
    """
    refused: NoParameterSetError | None = None
    sets = sorted((p for p in candidates if p.kind == "exact"), key=noise.blind_rotation_variance)
    ways = list(ways)
    in_parts = [way for way in ways if large_weights(way.graph)]
    for parts, tried in ((False, ways), (True, in_parts)):
        refused = None if tried else refused
        pending = list(product(tried, sets))
        while pending:
            fitting: list[tuple[float, ExactGraph, ParameterSet]] = []
            # Before anything is taken away already: tried where the cheaper ones are refused.
            dearer: list[tuple[ExactGraph, ParameterSet]] = []
            least = math.inf
            for exact, params in pending:
                if exact.graph.bootstraps * bootstrap_cost(params) >= least:
                    dearer.append((exact, params))
                    continue
                try:
                    check_floor(exact, params, p_fail_log2, parts)
                    graph = widened(exact, params, p_fail_log2, winner, parts)
                except NoParameterSetError as error:
                    refused = refused or error
                    continue
                fitting.append((graph.bootstraps * bootstrap_cost(params), exact, params))
                least = min(least, fitting[-1][0])
            # Equal look-ups are most of the work to find and about as many in every way, so they are looked for in the cheapest alone.
            for _, exact, params in sorted(fitting, key=lambda each: each[0]):
                try:
                    graph = merge_equal(widened(exact, params, p_fail_log2, winner, parts))
                    output_unit = _widened_output(exact, graph, params, p_fail_log2, approximate, winner)
                except NoParameterSetError as error:
                    refused = refused or error
                    continue
                return exact, graph, ExactChoice(params, output_unit)
            pending = dearer
    assert refused is not None
    raise refused


def _widened_output(
    exact: ExactGraph,
    graph: Graph,
    params: ParameterSet,
    p_fail_log2: float,
    approximate: Mapping[str, float],
    winner: bool,
) -> float:
    """Returns the output's unit. NoParameterSetError where a look-up sees more noise than was foreseen, of terms that turned out equal, or than its
    limit."""
    margin = np.full(graph.wire_count, math.inf)
    limited = np.zeros(graph.wire_count, dtype=bool)
    for lookup in graph.lookups:
        if lookup.is_exact:
            np.minimum.at(margin, lookup.gather, wrong_distance(graph, lookup))
        else:
            limited[lookup.gather] = True
    assert graph.scale is not None
    unit = next(2 * exact.of(node).margin for node in exact.graph.linears if is_output(exact.graph, node))
    if winner:
        unit = float(graph.scale[graph.output].min())  # numbers of classes
    variance = 0.0
    for node, norms in zip(graph.linears, weight_norms(graph), strict=True):
        least = float(margin[wires(node)].min())
        if norms.is_output:
            variance = max(variance, phase_noise(params, norms) ** 2)
        elif math.isfinite(least) and lookup_failure(params, norms, least) > p_fail_log2:
            raise NoParameterSetError(f"layer '{node.origin}': '{params.name}' is too noisy for what it adds up")
        elif limited[wires(node)].any() and 200 * phase_noise(params, norms) > approximate.get(node.origin, math.inf):
            raise NoParameterSetError(f"layer '{node.origin}': '{params.name}' is above the limit of its noise")
    decoded = variance == 0 or noise.p_fail_log2(unit / 2, variance) <= p_fail_log2
    if winner and not decoded:
        raise NoParameterSetError(
            f"tell='labels': '{params.name}' is too noisy for the number of a class to be decrypted"
        )
    return unit if decoded else 0.0


def _nearest(
    sets: Sequence[ParameterSet], demands: Sequence[_Demand], p_fail_log2: float
) -> tuple[ParameterSet, _Demand]:
    """Returns the set that falls short least, and the layer where it does so most."""
    worst = {p: max(demands, key=lambda demand: _shortfall(p, demand, p_fail_log2)) for p in sets}
    params = min(sets, key=lambda p: _shortfall(p, worst[p], p_fail_log2))
    return params, worst[params]


def lookup_failure(params: ParameterSet, norms: Norms, margin: float) -> float:
    """Returns log2 of the probability that a look-up after this linear node sees another value."""
    return noise.p_fail_log2(margin, phase_noise(params, norms) ** 2, noise.lookup_offset(params))


def _demands(exact: ExactGraph, approximate: Mapping[str, float]) -> list[_Demand]:
    result = []
    for node, norms in zip(exact.graph.linears, weight_norms(exact.graph), strict=True):
        accumulators = exact.of(node)
        result.append(_Demand(node, norms, accumulators.margin, accumulators.kept, approximate.get(node.origin)))
    return result


def _serves(params: ParameterSet, demand: _Demand, p_fail_log2: float) -> bool:
    if demand.limit is not None:
        return 200 * phase_noise(params, demand.norms) <= demand.limit
    return lookup_failure(params, demand.norms, demand.margin) <= p_fail_log2


def _shortfall(params: ParameterSet, demand: _Demand, p_fail_log2: float) -> float:
    """Returns how many times more room a layer would have to have under a set: more margin, or a higher limit of noise; at most 1 when it serves.

    Failure probabilities do not compare: of all sets that are far off they are 1.
    """
    if demand.limit is not None:
        return 200 * phase_noise(params, demand.norms) / demand.limit
    low, high = 0.0, 1.0
    while lookup_failure(params, demand.norms, high * demand.margin) > p_fail_log2 and high < _FARTHEST:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if lookup_failure(params, demand.norms, middle * demand.margin) > p_fail_log2:
            low = middle
        else:
            high = middle
    return high


def _wanted(demand: _Demand, p_fail_log2: float) -> str:
    norm = max(demand.norms.on_lookups, 0.0)
    if demand.limit is not None:
        return f"noise of at most {demand.limit:.3g} % of the half torus at a weight norm of {norm:.1f}"
    bits = math.log2(demand.values)
    return f"look-ups on {demand.values} values ({bits:.1f} bits) at a weight norm of {norm:.1f} with failure at most 2^{p_fail_log2:.0f}"


def _offered(params: ParameterSet, demand: _Demand, p_fail_log2: float) -> str:
    if demand.limit is not None:
        return f"has {200 * phase_noise(params, demand.norms):.3g} %"
    return f"resolves {_resolved(params, demand, p_fail_log2)}"


def _output_unit(exact: ExactGraph, params: ParameterSet, demands: list[_Demand], p_fail_log2: float) -> float:
    outputs = [demand for demand in demands if demand.norms.is_output]
    unit = exact.of(outputs[0].node).unit
    variance = max(phase_noise(params, demand.norms) for demand in outputs) ** 2
    return unit if variance == 0 or noise.p_fail_log2(unit / 2, variance) <= p_fail_log2 else 0.0


def _resolved(params: ParameterSet, demand: _Demand, p_fail_log2: float) -> str:
    """Returns the most values that a set tells apart at a layer's norm."""

    def tells_apart(values: int) -> bool:
        return lookup_failure(params, demand.norms, demand.margin * demand.values / values) <= p_fail_log2

    most = bisect.bisect_left(range(2, demand.values), True, key=lambda values: not tells_apart(values)) + 1
    return f"{most} values" if most >= 2 else "none"


# The least noise of what look-ups of an exact graph add up under a set: what is refused by it is refused before any chain is made (wide_lookups).


def check_floor(exact: ExactGraph, params: ParameterSet, p_fail_log2: float, in_parts: bool) -> None:
    """Checks the noise floor: each result counts as one look-up's, those of extremes and choices, which may pass sums on, as none.

    Args:
        exact: of whole units.
        in_parts: see `widened`.

    Raises:
        NoParameterSetError: for a look-up of which not one bit can be read.
    """
    graph = exact.graph
    assert graph.scale is not None
    owner, brought = graph.owners(), _brought(graph, params)
    behind, offset = noise.lookup_variance(params, 0.0), noise.lookup_offset(params)
    for node in graph.lookups:
        if is_gate(node) or is_extreme(node) or not node.is_exact:
            continue
        spacing = node.spacing * graph.scale[node.gather]
        for position in np.unique(owner[node.gather]).tolist():
            linear = graph.nodes[position]
            assert isinstance(linear, Linear)
            inside = np.flatnonzero(owner[node.gather] == position)
            variance, norms = _variances(linear, brought, in_parts)
            read = node.gather[inside] - linear.first_wire
            # The lowest bit is read with half a turn between its values, the integers' distance being `spacing`.
            relative = variance[read] / np.square(spacing[inside])
            worst = int(np.argmax(relative))
            if noise.p_fail_log2(0.25, behind + float(relative[worst]) / 4, offset) > p_fail_log2:
                bits = round(-math.log2(spacing[inside[worst]]))
                why = (
                    f"the noise of what it adds up, under a weight norm of {norms[read[worst]]:.0f}, is too much for one bit of it: "
                    "make the layer narrower, or quantise its weights or what it reads to fewer bits"
                )
                raise refused(node, bits, params, why)


def _brought(graph: Graph, params: ParameterSet) -> Reals:
    """Returns [wires + 1]: the least variance of each wire that rows read; the last is the zero wire's."""
    assert graph.lower is not None and graph.upper is not None
    variance = np.zeros(graph.wire_count + 1)
    for node in graph.nodes:
        if isinstance(node, Input):
            variance[wires(node)] = noise.fresh_variance(params)
        elif isinstance(node, Lookup) and not (is_gate(node) or is_extreme(node)):
            node_wires = wires(node)
            varies = graph.upper[node_wires] > graph.lower[node_wires]
            variance[node_wires] = np.where(varies, noise.blind_rotation_variance(params), 0.0)
    return variance


def _variances(node: Linear, brought: Reals, in_parts: bool) -> tuple[Reals, Reals]:
    """Returns [rows] of all positions: variance, and norm of the weights."""
    weights = node.weights.astype(np.float64)
    squares = np.square(weights)
    norms = np.sqrt(squares.sum(axis=2))
    if in_parts:
        times = np.rint(weights / PART)
        squares = np.minimum(squares, np.square(times) + np.square(weights - times * PART))
    variance = np.empty((len(node.gather), weights.shape[1]))
    for block in range(len(weights)):
        chosen = node.block == block
        variance[chosen] = brought[node.gather[chosen]] @ squares[block].T
    return variance.reshape(-1), norms[node.block].reshape(-1)
