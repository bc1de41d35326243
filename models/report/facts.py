"""The report as plain values."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np

from cloakwork.fhe_core import noise, parameters
from cloakwork.models.answers import answer_bits, answer_bytes
from cloakwork.models.client_steps import named_inputs, named_outputs
from cloakwork.models.ir import Linear, Lookup, wires
from cloakwork.models.passes.choose_parameters import Norms, phase_noise, squared_norms, weight_norms
from cloakwork.models.passes.quantise_weights import row_bits, weight_bits
from cloakwork.models.program import Program
from cloakwork.models.report.timing import estimated_seconds
from cloakwork.models.steps import Step, formula

_QUARTER = 0.25  # of the torus: where the range of a look-up ends


def report(program: Program) -> dict[str, Any]:
    """Sizes in bytes, noise in per cent of the half torus, counts per sample, probabilities as log2.

    `failure_log2` is that of exact look-ups (None without any), `wrap_log2` that of approximate ones for a value at the end of its range: the
    noise carries it over the edge of the table. Both are the worst of any look-up; `failure_log2_program` is of all exact ones together.
    """
    params, layers = program.parameters, _layers(program)
    exact = [layer for layer in layers if layer["failure_log2"] is not None]
    inner = [layer for layer in layers if layer["bootstraps"]]
    return {
        **program.facts.to_fields(),
        "program_digest": program.digest.hex(),
        "parameter_set": params.name,
        "security_bits": params.security_bits,
        "noise_limit_percent": program.noise_percent,
        "bootstraps": program.bootstraps,
        "bootstraps_per_level": [level.bootstraps for level in program.levels if level.lookups],
        "upload_bytes": parameters.upload_bytes(params),
        "input_ciphertext_bytes": _packed_bytes(program),
        "output_ciphertext_bytes": answer_bytes(program),
        "failure_log2": max((layer["failure_log2"] for layer in exact), default=None),
        "failure_log2_program": _union([(layer["failure_log2"], _decisions(layer)) for layer in exact]),
        "wrap_log2": max((layer["wrap_log2"] for layer in layers if layer["wrap_log2"] is not None), default=None),
        "estimated_seconds": estimated_seconds(program),
        "costliest_layer": max(inner, key=lambda layer: int(layer["bootstraps"]))["name"] if inner else None,
        "client_steps": [step.title for step in program.graph.client_steps],
        **_tensors(program),
        "layers": layers,
    }


def _tensors(program: Program) -> dict[str, Any]:
    """Names and shapes (without the batch) of several inputs and outputs; empty lists where there is one."""
    inputs, outputs = named_inputs(program.input_steps), named_outputs(program.output_steps)
    return {
        "input_tensors": []
        if inputs is None
        else [{"name": name, "shape": list(shape)} for name, shape in zip(inputs.names, inputs.shapes, strict=True)],
        "unused_inputs": [] if inputs is None else list(inputs.unused),
        "output_tensors": []
        if outputs is None
        else [
            {"name": name, "shape": list(shape), "client_steps": [step.title for step in own]}
            for name, shape, own in zip(outputs.names, outputs.shapes, outputs.steps, strict=True)
        ],
    }


def report_json(program: Program) -> str:
    return json.dumps(report(program), indent=2)


def _layers(program: Program) -> list[dict[str, Any]]:
    program = program.distinct  # noise is counted over distinct sources
    graph, params = program.graph, program.parameters
    rows = []
    readers, bits = _readers(program), answer_bits(program)
    rounding = 0.0 if bits is None else noise.word_rounding_variance(params, bits)
    for node, norms in zip(graph.linears, weight_norms(graph), strict=True):
        positions, width = node.gather.shape
        variance = phase_noise(params, norms) ** 2 + (rounding if norms.is_output else 0.0)
        deviation = math.sqrt(variance)
        reading = readers.get(node.first_wire, [])
        failure, wrap, distance = _risks(program, node, norms, reading, variance)
        rows.append(
            {
                "name": norms.origin,
                "numbers": node.size,
                "bootstraps": sum(len(lookup.gather[inside]) for lookup, inside in reading),
                "functions": sorted({formula(_own_steps(lookup)) for lookup, _ in reading}),
                "multiplications": positions * node.weights.shape[1] * width,
                "weight_bits": weight_bits(node),
                "row_bits": dataclasses.asdict(row_bits(node)),
                "norm_on_input": norms.on_input,
                "norm_on_lookups": norms.on_lookups,
                "noise_percent": 200 * deviation,
                "noise_limit_percent": program.layer_noise.get(node.origin, program.noise_percent),
                "margin_deviations": distance,
                "failure_log2": failure,
                "wrap_log2": wrap,
                "is_output": norms.is_output,
            }
        )
    return rows


def _readers(program: Program) -> dict[int, list[tuple[Lookup, np.ndarray]]]:
    """By first wire of a linear node: the look-ups that read it, and which of their numbers do."""
    graph = program.graph
    owner = graph.owners()
    result: dict[int, list[tuple[Lookup, np.ndarray]]] = {}
    for lookup in graph.lookups:
        read = owner[lookup.gather]
        for position in np.unique(read).tolist():
            result.setdefault(graph.nodes[position].first_wire, []).append((lookup, read == position))
    return result


def _risks(
    program: Program, node: Linear, norms: Norms, reading: list[tuple[Lookup, np.ndarray]], variance: float
) -> tuple[float | None, float | None, float | None]:
    """log2 of the probability that an exact look-up fails, that an approximate one wraps at the end of its range, and the distance to either in
    standard deviations, None without noise. Args: variance: of the noisiest row."""
    graph, params = program.graph, program.parameters
    assert graph.scale is not None and graph.lower is not None and graph.upper is not None and graph.offset is not None
    exact = [
        float((_steps(lookup)[inside] * graph.scale[lookup.gather[inside]]).min()) / 2
        for lookup, inside in reading
        if _is_exact(lookup)
    ]
    failure = _failure(min(exact), variance, noise.lookup_offset(params)) if exact else None
    if norms.is_output and program.output_unit > 0:
        margin = program.output_unit / 2
        decoded = _failure(margin, variance, 0.0)
        worst = decoded if failure is None else max(decoded, failure)
        return worst, None, _distance(min([margin, *exact]), variance)
    distances = [_distance(margin, variance) for margin in exact]
    wrap = None
    if norms.is_output or not exact or any(not _is_exact(lookup) for lookup, _ in reading):
        edge, own = _nearest_edge(program, node, norms, variance)
        distances.append(_distance(edge, own))
        wrap = _failure(edge, own, 0.0) if norms.is_output or reading else None
    known = [distance for distance in distances if distance is not None]
    return failure, wrap, min(known, default=None)


def _distance(margin: float, variance: float) -> float | None:
    return margin / math.sqrt(variance) if variance > 0 else None


def _nearest_edge(program: Program, node: Linear, norms: Norms, variance: float) -> tuple[float, float]:
    """Of the row whose range ends nearest to the end of its table, in standard deviations: that distance in phase, and the row's variance."""
    graph, params = program.graph, program.parameters
    assert graph.scale is not None and graph.lower is not None and graph.upper is not None and graph.offset is not None
    own = wires(node)
    reach = np.maximum(np.abs(graph.upper[own] - graph.offset[own]), np.abs(graph.lower[own] - graph.offset[own]))
    edges = (0.5 if norms.is_output else _QUARTER) - reach * graph.scale[own]
    on_input, on_lookups = squared_norms(graph, node)
    squares = noise.fresh_variance(params) * on_input + noise.blind_rotation_variance(params) * on_lookups
    squares = squares.reshape(-1)
    variances = variance - float(squares.max()) + squares  # what comes behind the rows is the same for all
    worst = int(np.argmin(edges / np.sqrt(np.maximum(variances, 1e-300))))
    return float(edges[worst]), float(variances[worst])


def _own_steps(lookup: Lookup) -> tuple[Step, ...]:
    """Without the offset and the factor that its readers undo."""
    steps = lookup.steps
    return steps[:-1] if len(steps) > 1 and steps[-1].operator == "Affine" and steps[-1].reads == (1,) else steps


def _is_exact(lookup: Lookup) -> bool:
    return bool(lookup.steps) and lookup.steps[0].operator in ("Snap", "Table")


def _steps(lookup: Lookup) -> np.ndarray:
    """Distance between two values of every argument."""
    if lookup.steps[0].operator == "Table":
        return np.ones(len(lookup.function))
    return np.asarray(lookup.steps[0].parameters[0][lookup.function])


def _failure(margin: float, variance: float, offset: float) -> float:
    """No noise never fails; -10,000 stands for that. No margin is more than half a turn."""
    if margin <= 0:
        return 0.0
    return noise.failure_log2(min(margin, 0.5), variance, offset) if variance > 0 else -1e4


def _decisions(layer: dict[str, Any]) -> int:
    return max(1, int(layer["numbers"] if layer["is_output"] else layer["bootstraps"]))


def _union(risks: list[tuple[float, int]]) -> float | None:
    """log2 of the sum of count 2^log2."""
    if not risks:
        return None
    largest = max(log2 for log2, _ in risks)
    return min(0.0, largest + math.log2(sum(count * 2.0 ** (log2 - largest) for log2, count in risks)))


def _packed_bytes(program: Program) -> int:
    """One sample, seeded: whole polynomials of body words."""
    params = program.parameters
    polynomials = -(-program.graph.input.size // params.polynomial_size)
    return polynomials * params.polynomial_size * parameters.word_bytes(params)
