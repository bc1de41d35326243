"""Runs a program in clear on phases, with the noise of the noise model and the tables that the engine uses."""

from __future__ import annotations

import math

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.encoding import centre
from cloakwork.fhe_core.lookup_tables import LookupTables
from cloakwork.models.interpreter import samples_at_once
from cloakwork.models.ir import Indices, Linear, Reals, wires
from cloakwork.models.program import Program
from cloakwork.models.tables import level_tables, shift_coefficients


def simulate(program: Program, input_phases: Reals, seed: int | None = None, noisy: bool = True) -> Reals:
    """Phases of the output [samples, numbers] for phases of the input; without noise, tables and rounding still act."""
    random = np.random.default_rng(seed)
    tables = [
        _Tables(*level_tables(program.graph, level.lookups, program.parameters)) if level.lookups else None
        for level in program.levels
    ]
    size = samples_at_once(program.graph)
    parts = [
        _simulate(program, tables, input_phases[start : start + size], random if noisy else None)
        for start in range(0, len(input_phases), size)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, program.graph.output.size))


class _Tables:
    """A level's tables over all 2N phases, as fractions of the torus."""

    def __init__(self, tables: LookupTables, index: Indices) -> None:
        half = centre(tables.parameters, tables.polynomials.astype(np.uint64)) / tables.parameters.modulus
        self._values = np.concatenate([half, -half], axis=1)
        self._index = index

    def __call__(self, phases: Reals, elements: slice, coefficients: Indices | None) -> Reals:
        """Phases [samples, E] of these elements of the level -> [samples, E J], J the number of coefficients, 1 without."""
        turn = self._values.shape[1]
        shifts = np.zeros(1, dtype=np.int64) if coefficients is None else coefficients
        step = (np.rint(phases * turn).astype(np.int64)[..., None] + shifts) % turn
        looked_up: Reals = self._values[self._index[elements][:, None], step]
        return looked_up.reshape(len(phases), -1)


def _simulate(
    program: Program, tables: list[_Tables | None], input_phases: Reals, random: np.random.Generator | None
) -> Reals:
    graph, params = program.graph, program.parameters

    def noised(phases: Reals, variance: float) -> Reals:
        return phases if random is None else phases + random.normal(0.0, math.sqrt(variance), phases.shape)

    phases = np.zeros((len(input_phases), graph.wire_count + 1))
    phases[:, wires(graph.input)] = noised(input_phases, noise.fresh_variance(params))
    switching = noise.keyswitch_variance(params) + noise.modulus_switch_variance(params)
    for level, table in zip(program.levels, tables, strict=True):
        for linear in level.linears:
            phases[:, wires(linear)] = _linear(program, linear, phases)
        if table is None:
            continue
        start = 0
        for node in level.lookups:
            seen = noised(phases[:, node.gather], switching)
            if random is not None:
                seen = seen + noise.keyswitch_offset(params)
            elements = slice(start, start + node.bootstraps)
            looked_up = table(seen, elements, shift_coefficients(graph, node, params))
            phases[:, wires(node)] = noised(looked_up, noise.blind_rotation_variance(params))
            start += node.bootstraps
    out = noised(phases[:, graph.output.reshape(-1)], noise.rerandomisation_variance(params))
    turned: Reals = out - np.rint(out)
    return turned


def _linear(program: Program, node: Linear, phases: Reals) -> Reals:
    bias, weights = program.phase_bias(node), node.weights.astype(np.float64)
    out = np.empty((len(phases), len(node.gather), node.weights.shape[1]))
    for block in range(len(node.weights)):
        chosen = np.flatnonzero(node.block == block)
        x = phases[:, node.gather[chosen]].reshape(
            -1, node.gather.shape[1]
        )  # one matrix product, not one for each sample
        out[:, chosen] = (x @ weights[block].T + bias[block]).reshape(len(phases), len(chosen), -1)
    return out.reshape(len(phases), -1)
