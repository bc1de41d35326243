"""Costs of each linear layer, and the effect of its noise on its readers: look-ups, or the client."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import noise
from cloakwork.models.approximate.quantise_weights import RowBits, row_bits, weight_bits
from cloakwork.models.graph.ir import Linear, Lookup, wires, wrong_distance
from cloakwork.models.graph.steps import Step, formula
from cloakwork.models.program import Program
from cloakwork.models.program.answers import Norms, answer_bits, phase_noise, squared_norms, weight_norms

_QUARTER = 0.25  # of the torus: where the range of a look-up ends
_NEVER = -1e4  # log2 of the probability of what noise cannot do because there is none


@dataclass(frozen=True)
class Risk:
    """The risk of the noisiest row. Probabilities: log2, None where a layer has nothing that could go wrong so."""

    p_fail_log2: float | None  # that an exact look-up, or the decoding of an exact output, takes a value for another
    p_wrap_log2: float | None  # that noise carries a real value at the end of its range over the edge of the table
    deviations: float | None  # of the noise to the nearer of both, None without noise


@dataclass(frozen=True, eq=False)
class Layer:
    """A linear node with the look-ups that read it."""

    name: str
    numbers: int
    bootstraps: int
    functions: tuple[str, ...]  # that the look-ups compute
    multiplications: int
    weight_bits: int
    row_bits: RowBits
    norm_on_input: float
    norm_on_lookups: float
    noise_percent: float  # standard deviation, of the half torus
    noise_limit_percent: float
    risk: Risk
    is_output: bool

    @property
    def decisions(self) -> int:
        """Counts the values of a sample that may be wrong."""
        return max(1, self.numbers if self.is_output else self.bootstraps)

    def to_fields(self) -> dict[str, Any]:
        """Returns plain values under the names of the public report."""
        return {
            "name": self.name,
            "numbers": self.numbers,
            "bootstraps": self.bootstraps,
            "functions": list(self.functions),
            "multiplications": self.multiplications,
            "weight_bits": self.weight_bits,
            "row_bits": dataclasses.asdict(self.row_bits),
            "norm_on_input": self.norm_on_input,
            "norm_on_lookups": self.norm_on_lookups,
            "noise_percent": self.noise_percent,
            "noise_limit_percent": self.noise_limit_percent,
            "margin_deviations": self.risk.deviations,
            "failure_log2": self.risk.p_fail_log2,
            "wrap_log2": self.risk.p_wrap_log2,
            "is_output": self.is_output,
        }


def layers_of(program: Program) -> tuple[Layer, ...]:
    """Lists layers in the order of the graph."""
    program = program.distinct  # noise is counted over distinct sources
    graph, params = program.graph, program.parameters
    readers, bits = _readers(program), answer_bits(program)
    rounding = 0.0 if bits is None else noise.word_rounding_variance(params, bits)
    layers = []
    for node, norms in zip(graph.linears, weight_norms(graph), strict=True):
        variance = phase_noise(params, norms) ** 2 + (rounding if norms.is_output else 0.0)
        reading = readers.get(node.first_wire, [])
        positions, width = node.gather.shape
        layers.append(
            Layer(
                name=norms.origin,
                numbers=node.size,
                bootstraps=sum(len(each.inside) for each in reading),
                functions=tuple(sorted({formula(own_steps(each.lookup)) for each in reading})),
                multiplications=positions * node.weights.shape[1] * width,
                weight_bits=weight_bits(node),
                row_bits=row_bits(node),
                norm_on_input=norms.on_input,
                norm_on_lookups=norms.on_lookups,
                noise_percent=200 * math.sqrt(variance),
                noise_limit_percent=program.layer_noise.get(node.origin, program.noise_percent),
                risk=_risk(program, node, norms, reading, variance),
                is_output=norms.is_output,
            )
        )
    return tuple(layers)


@dataclass(frozen=True, eq=False)
class _Reader:
    """A look-up, and which of its numbers read a node."""

    lookup: Lookup
    inside: NDArray[np.int64]


def _readers(program: Program) -> dict[int, list[_Reader]]:
    """Returns the readers by first wire of a linear node."""
    graph = program.graph
    owner = graph.owners()
    result: dict[int, list[_Reader]] = {}
    for lookup in graph.lookups:
        read = owner[lookup.gather]
        for position in np.unique(read).tolist():
            reader = _Reader(lookup, np.flatnonzero(read == position))
            result.setdefault(graph.nodes[position].first_wire, []).append(reader)
    return result


def own_steps(lookup: Lookup) -> tuple[Step, ...]:
    """Returns the steps of a look-up without the offset and the factor that its readers undo; none of a look-up that is only a refresh."""
    steps = lookup.steps
    return steps[:-1] if len(steps) > 1 and steps[-1].operator == "Affine" and steps[-1].reads == (1,) else steps


def _risk(program: Program, node: Linear, norms: Norms, reading: list[_Reader], variance: float) -> Risk:
    """Args: variance: of the noisiest row."""
    graph, params = program.graph, program.parameters
    exact = [each for each in reading if each.lookup.is_exact]
    margins = [float(wrong_distance(graph, each.lookup)[each.inside].min()) for each in exact]
    p_fail = _probability(min(margins), variance, noise.lookup_offset(params)) if margins else None
    if norms.is_output and program.output_unit > 0:
        half_unit = program.output_unit / 2
        decoded = _probability(half_unit, variance, 0.0)
        worst = decoded if p_fail is None else max(decoded, p_fail)
        return Risk(worst, None, _deviations(min([half_unit, *margins]), variance))
    distances = [_deviations(margin, variance) for margin in margins]
    p_wrap = None
    if norms.is_output or len(exact) < len(reading) or not reading:
        edge, edge_variance = _nearest_edge(program, node, norms, variance)
        distances.append(_deviations(edge, edge_variance))
        p_wrap = _probability(edge, edge_variance, 0.0) if norms.is_output or reading else None
    return Risk(p_fail, p_wrap, min((each for each in distances if each is not None), default=None))


def _nearest_edge(program: Program, node: Linear, norms: Norms, variance: float) -> tuple[float, float]:
    """Returns the nearest edge of the row whose range ends nearest to the end of its table, in standard deviations: that distance in phase, and the
    row's variance."""
    graph, params = program.graph, program.parameters
    assert graph.scale is not None and graph.lower is not None and graph.upper is not None and graph.offset is not None
    node_wires = wires(node)
    reach = np.maximum(
        np.abs(graph.upper[node_wires] - graph.offset[node_wires]),
        np.abs(graph.lower[node_wires] - graph.offset[node_wires]),
    )
    edges = (0.5 if norms.is_output else _QUARTER) - reach * graph.scale[node_wires]
    on_input, on_lookups = squared_norms(graph, node)
    squares = noise.fresh_variance(params) * on_input + noise.blind_rotation_variance(params) * on_lookups
    squares = squares.reshape(-1)
    variances = variance - float(squares.max()) + squares  # what comes behind the rows is the same for all
    worst = int(np.argmin(edges / np.sqrt(np.maximum(variances, 1e-300))))
    return float(edges[worst]), float(variances[worst])


def _deviations(margin: float, variance: float) -> float | None:
    return margin / math.sqrt(variance) if variance > 0 else None


def _probability(margin: float, variance: float, offset: float) -> float:
    """Returns log2 that noise leaves a margin, which is half a turn at most."""
    if margin <= 0:
        return 0.0
    return noise.p_fail_log2(min(margin, 0.5), variance, offset) if variance > 0 else _NEVER
