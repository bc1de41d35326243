"""Chooses the cheapest approximate parameter set under which every look-up sees little enough noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet, is_insecure, parameter_sets
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.ir import Graph
from cloakwork.models.passes.affine import is_output


@dataclass(frozen=True)
class Norms:
    """The largest L2 norms of a linear node's integer rows, by where their noise comes from."""

    origin: str
    on_input: float
    on_lookups: float
    is_output: bool


def weight_norms(graph: Graph) -> list[Norms]:
    result = []
    from_input = np.append(graph.owners()[:-1] == 0, False)
    for node in graph.linears:
        squares = np.square(node.weights.astype(np.float64))
        on_input = on_lookups = 0.0
        for block in range(len(node.weights)):
            gather = node.gather[node.block == block]
            if not len(gather):
                continue
            fresh = from_input[gather] & (gather >= 0)
            other = ~from_input[gather] & (gather >= 0)
            on_input = max(on_input, float((fresh @ squares[block].T).max()))
            on_lookups = max(on_lookups, float((other @ squares[block].T).max()))
        result.append(Norms(node.origin, math.sqrt(on_input), math.sqrt(on_lookups), is_output(graph, node)))
    return result


def phase_noise(params: ParameterSet, norms: Norms) -> float:
    """Standard deviation, as a fraction of the torus, that the look-ups (or the client) see after this linear node."""
    variance = noise.linear_variance(noise.fresh_variance(params), norms.on_input)
    variance += noise.linear_variance(noise.blind_rotation_variance(params), norms.on_lookups)
    if not norms.is_output:
        variance += noise.keyswitch_variance(params) + noise.modulus_switch_variance(params)
    return math.sqrt(variance)


def choose_parameters(
    graph: Graph, noise_percent: float, candidates: Sequence[ParameterSet] | None = None
) -> ParameterSet:
    """Args: noise_percent of the half torus; candidates: None for all shipped secure approximate sets.

    Raises:
        NoParameterSetError: names the layer with the most noise, what it needs and the nearest set.
    """
    sets = [p for p in parameter_sets() if not is_insecure(p)] if candidates is None else list(candidates)
    sets = sorted((p for p in sets if p.kind == "approximate"), key=bootstrap_cost)
    layers = weight_norms(graph)
    limit = noise_percent / 200
    worst = {p.name: max((phase_noise(p, layer), i) for i, layer in enumerate(layers)) for p in sets}
    for params in sets:
        if worst[params.name][0] <= limit:
            return params
    if not sets:
        raise NoParameterSetError("no approximate parameter set is available; use a shipped one")
    nearest = min(sets, key=lambda p: worst[p.name])
    found, position = worst[nearest.name]
    layer = layers[position]
    raise NoParameterSetError(
        f"layer '{layer.origin}' needs noise of at most {noise_percent:.3g} % of the half torus with integer weights of norm "
        f"{layer.on_lookups:.4g} on look-ups and {layer.on_input:.4g} on the input; the nearest set, '{nearest.name}', gives {200 * found:.3g} %: "
        "use fewer weight_bits, a narrower layer, smaller weights or a profile with more noise"
    )


def bootstrap_cost(params: ParameterSet) -> float:
    """Multiplications of one blind rotation, about: transforms of the digits and back, and the products with the key."""
    columns = params.glwe_dimension + 1
    transforms = (params.row_count + columns) * params.polynomial_size * math.log2(params.polynomial_size) / 2
    products = params.keys_per_step * params.row_count * columns * params.polynomial_size
    return params.step_count * params.limb_count * (transforms + products)
