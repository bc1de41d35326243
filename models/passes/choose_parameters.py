"""Chooses the cheapest approximate parameter set under which every look-up sees little enough noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet, is_insecure, parameter_sets
from cloakwork.models.errors import NoParameterSetError, PrecisionOverflowError
from cloakwork.models.ir import Graph, Indices, Linear, Reals, wire_numbers, wires
from cloakwork.models.passes.affine import is_output
from cloakwork.models.passes.merge_equal import merge_equal
from cloakwork.models.passes.noise_limits import NoiseLimits
from cloakwork.models.passes.quantise_weights import Plan, plan_scales
from cloakwork.models.passes.row_scales import noise_behind
from cloakwork.models.passes.statistics import Statistics

_BETTER: Final = 0.95  # of the least error foreseen so far: what a dearer set has to bring
# Of the allowed noise, tried one after the other; the small ones are for rows that rounding has made equal.
_SHARES: Final = (1.0, 0.97, 0.94, 0.9, 0.8, 0.65, 0.5)


@dataclass(frozen=True)
class Norms:
    """The largest L2 norms of a linear node's integer rows, by where their noise comes from; `within_rotations` is the largest sum of |v w| over
    pairs of weights v, w on different outputs of one rotation, which are correlated a little."""

    origin: str
    on_input: float
    on_lookups: float
    is_output: bool
    within_rotations: float = 0.0


def weight_norms(graph: Graph) -> list[Norms]:
    """Of each linear node. Wires are taken as independent: the graph has no equal look-ups (merge_equal)."""
    result = []
    rotation = _rotations(graph)
    for node in graph.linears:
        on_input, on_lookups = (float(squares.max()) for squares in squared_norms(graph, node))
        within = 0.0 if rotation is None else _within_rotations(node, rotation)
        result.append(Norms(node.origin, math.sqrt(on_input), math.sqrt(on_lookups), is_output(graph, node), within))
    return result


def squared_norms(graph: Graph, node: Linear) -> tuple[Reals, Reals]:
    """[P, R] each: of the integer rows, on the input and on results of look-ups."""
    from_input = np.append(graph.owners()[:-1] == 0, False)
    squares = np.square(node.weights.astype(np.float64))
    on_input, on_lookups = np.zeros((2, len(node.gather), squares.shape[1]))
    for block in np.unique(node.block):
        chosen = node.block == block
        gather = node.gather[chosen]
        fresh = from_input[gather] & (gather >= 0)
        on_input[chosen] = fresh @ squares[block].T
        on_lookups[chosen] = (~fresh & (gather >= 0)) @ squares[block].T
    return on_input, on_lookups


def _rotations(graph: Graph) -> Indices | None:
    """[wires + 1]: the first output of the rotation that a wire comes from, -1 for others; None when no rotation has several outputs."""
    shifted = [node for node in graph.lookups if node.shifts is not None and len(node.shifts) > 1]
    if not shifted:
        return None
    rotation = np.full(graph.wire_count + 1, -1, dtype=np.int64)
    for node in shifted:
        outputs = node.size // len(node.gather)
        rotation[wires(node)] = np.repeat(wire_numbers(node)[::outputs], outputs)
    return rotation


def _within_rotations(node: Linear, rotation: Indices) -> float:
    largest = 0.0
    for gather, block in zip(node.gather, node.block, strict=True):
        inside = np.flatnonzero(rotation[gather] >= 0)
        if len(inside) < 2:
            continue
        strength = np.abs(node.weights[block][:, inside].astype(np.float64))
        _, group = np.unique(rotation[gather[inside]], return_inverse=True)
        sums = np.zeros((int(group.max()) + 1, len(strength)))
        np.add.at(sums, group.reshape(-1), strength.T)
        largest = max(largest, float((np.square(sums).sum(axis=0) - np.square(strength).sum(axis=1)).max()))
    return largest


def phase_noise(params: ParameterSet, norms: Norms) -> float:
    """Standard deviation, as a fraction of the torus, that the look-ups (or the client) see after this linear node."""
    variance = noise.linear_variance(noise.fresh_variance(params), norms.on_input)
    variance += noise.linear_variance(noise.blind_rotation_variance(params), norms.on_lookups)
    correlated = norms.within_rotations * noise.rotation_correlation_bound(params) if norms.within_rotations else 0.0
    variance += correlated * noise.blind_rotation_variance(params)
    if norms.is_output:
        variance += noise.rerandomisation_variance(params)
    else:
        variance += noise.keyswitch_variance(params) + noise.modulus_switch_variance(params)
    return math.sqrt(variance)


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
    nearest: tuple[float, str, str] | None = None  # of whose coarsest layer the largest weight has most steps
    overflow: tuple[float, PrecisionOverflowError] | None = None  # of the set with least noise of its own
    found = False
    least_error = math.inf
    hopeless: Plan | None = None
    for params in sorted(candidates, key=bootstrap_cost):
        try:
            plan = plan_scales(graph, params, limits, least_bits, stats)
            largest, layer = plan.coarsest() or (math.inf, "")
            if _signed_bits(largest) < least_bits:
                nearest = max(nearest or (0.0, layer, params.name), (largest, layer, params.name), key=lambda f: f[0])
            elif plan.error > most_error:
                hopeless = plan if hopeless is None or plan.error < hopeless.error else hopeless
            elif plan.given or plan.error < _BETTER * least_error:
                graph_found = _within_noise(plan, least_bits)
                found, least_error = True, plan.error
                yield Attempt(graph_found, params, plan.error)
        except PrecisionOverflowError as error:
            own = noise_behind(params, output=False)
            overflow = (own, error) if overflow is None or own < overflow[0] else overflow
    if not found and hopeless is not None:
        found = True
        yield Attempt(_within_noise(hopeless, least_bits), hopeless.params, hopeless.error)
    if found:
        return
    if nearest is None:
        found_of_nearest = f"the nearest: {overflow[1]}" if overflow else "none is among the candidates"
        raise NoParameterSetError(f"no approximate parameter set fits; {found_of_nearest}")
    largest, layer, name = nearest
    raise NoParameterSetError(
        f"layer '{layer}' needs weights of at least {least_bits} bits under noise of {limits.layers.get(layer, limits.default):.3g} % of "
        f"the half torus; the nearest set, '{name}', leaves room for {_signed_bits(largest):g}: use fewer weight_bits, a narrower layer, smaller "
        "weights or a profile with more noise"
    )


def least_error(
    variants: Sequence[tuple[Graph, Statistics]],
    limits: NoiseLimits,
    least_bits: int,
    candidates: Sequence[ParameterSet],
) -> tuple[Graph, Statistics]:
    """The variant of a graph of which least error is foreseen, under a set of middling cost; the first where that says nothing."""
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


def approximate_sets(candidates: Sequence[ParameterSet] | None = None) -> list[ParameterSet]:
    """What the candidates have for approximate look-ups (an exact set is one more row of noise figures); None: all shipped approximate ones."""
    if candidates is not None:
        return [params for params in candidates if params.kind in ("approximate", "exact")]
    return [params for params in parameter_sets() if not is_insecure(params) and params.kind == "approximate"]


def _within_noise(plan: Plan, least_bits: int) -> Graph:
    """Quantised weights whose noise, counted after rounding, is within the limit; rounding may have made rows equal."""
    limits = plan.limits
    for share in _SHARES:
        if share < 1:
            plan = plan_scales(plan.graph, plan.params, limits.scaled(share), least_bits, plan.stats)
        distinct = merge_equal(plan.integers())
        found = zip(distinct.linears, weight_norms(distinct), strict=True)
        if all(phase_noise(plan.params, norms) <= limits.of(node) / 200 for node, norms in found):
            return distinct
    raise PrecisionOverflowError(f"rounded weights exceed the noise limit under parameter set '{plan.params.name}'")


def bootstrap_cost(params: ParameterSet) -> float:
    """Multiplications of one blind rotation, about: transforms of the digits and back, and the products with the key."""
    columns = params.glwe_dimension + 1
    transforms = (params.row_count + columns) * params.polynomial_size * math.log2(params.polynomial_size) / 2
    products = params.keys_per_step * params.row_count * columns * params.polynomial_size
    return params.step_count * params.limb_count * (transforms + products)
