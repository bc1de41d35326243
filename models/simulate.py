"""Runs a program in clear on phases, with the noise of the noise model and the tables that the engine uses."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.encoding import centre
from cloakwork.fhe_core.lookup_tables import LookupTables
from cloakwork.models.interpreter import samples_at_once
from cloakwork.models.ir import Indices, Linear, Lookup, Reals, wires
from cloakwork.models.passes.levels import Level
from cloakwork.models.program import Program
from cloakwork.models.tables import level_tables, shift_coefficients


def simulate(program: Program, input_phases: Reals, seed: int | None = None, noisy: bool = True) -> Reals:
    """Phases of the output [samples, numbers] for phases of the input; without noise, tables and rounding still act.

    What is deterministic is drawn once: equal look-ups are one (Program.distinct), and those that read the same combination see the same
    noise of keyswitch and modulus switch. A seed stands for a key too: what is a constant of the key is one draw for all samples.
    """
    program = program.distinct
    wanted = program.graph.output.reshape(-1)
    random = _Noise(program, np.random.default_rng(seed)) if noisy else None
    parts = []
    for phases in _phases_of_wires(program, input_phases, random):
        out = phases[:, wanted]
        if random is not None:
            out = out + random.answer(len(out))
        parts.append(out - np.rint(out))
    return np.concatenate(parts) if parts else np.zeros((0, len(wanted)))


def simulate_wires(program: Program, input_phases: Reals, seed: int | None = None) -> Reals:
    """Phases of every wire of `program.distinct` [samples, wires + 1], sums not reduced modulo the torus; the last is the zero wire."""
    program = program.distinct
    random = _Noise(program, np.random.default_rng(seed))
    return np.concatenate(list(_phases_of_wires(program, input_phases, random)))


def _phases_of_wires(program: Program, input_phases: Reals, random: _Noise | None) -> Iterator[Reals]:
    """[samples, wires + 1] of some samples after the other."""
    tables = [
        _Tables(*level_tables(program.graph, level.lookups, program.parameters)) if level.lookups else None
        for level in program.levels
    ]
    size = samples_at_once(program.graph)
    for start in range(0, len(input_phases), size):
        yield _simulate(program, tables, input_phases[start : start + size], random)


class _Noise:
    """Draws what the noise model says."""

    def __init__(self, program: Program, random: np.random.Generator) -> None:
        self._params = program.parameters
        self._graph = program.graph
        self._random = random
        self._sources = program.sources
        self._rotation = math.sqrt(noise.blind_rotation_variance(self._params))
        constant = random.spawn(1)[0].normal(0.0, math.sqrt(noise.keyswitch_constant_variance(self._params)))
        self._offset = noise.keyswitch_offset(self._params) + constant

    def fresh(self, samples: int) -> Reals:
        deviation = math.sqrt(noise.fresh_variance(self._params))
        return self._random.normal(0.0, deviation, (samples, self._graph.input.size))

    def switching(self, level: Level, samples: int) -> list[Reals]:
        """[samples, E] for each look-up of a level: one draw of the keyswitch for each combination, with its sign, one of the modulus switch for
        each combination and sign."""
        gathers, own, params = [node.gather for node in level.lookups], self._sources, self._params
        read = np.concatenate(gathers)
        combination, turn = own.combination[read], own.turn[read]
        key = noise.keyswitch_variance(params) - noise.keyswitch_constant_variance(params)
        rounding = noise.modulus_switch_variance(params)
        if len(np.unique(combination)) == len(read):
            total = self._shared(combination, samples, key + rounding)
        else:
            total = turn * self._shared(combination, samples, key)
            total += self._shared(2 * combination + (turn > 0), samples, rounding)
        total += self._offset
        total[:, own.still[read]] = 0.0
        return np.split(total, np.cumsum([len(gather) for gather in gathers])[:-1], axis=1)

    def _shared(self, numbers: Indices, samples: int, variance: float) -> Reals:
        """[samples, len(numbers)]: one draw for each different number."""
        distinct, index = np.unique(numbers, return_inverse=True)
        drawn: Reals = self._random.normal(0.0, math.sqrt(variance), (samples, len(distinct)))[:, index.reshape(-1)]
        return drawn

    def answer(self, samples: int) -> Reals:
        """What re-randomisation adds to outputs [samples, numbers]."""
        deviation = math.sqrt(noise.rerandomisation_variance(self._params))
        return self._random.normal(0.0, deviation, (samples, self._graph.output.size))

    def rotation(self, node: Lookup, samples: int) -> Reals:
        """[samples, wires of the node]; outputs of one rotation are correlated as the model says."""
        drawn = self._random.normal(0.0, self._rotation, (samples, len(node.gather), node.size // len(node.gather)))
        coefficients = shift_coefficients(self._graph, node, self._params)
        if coefficients is not None:
            lags = np.abs(coefficients[:, None] - coefficients[None, :])
            correlation = np.vectorize(lambda lag: noise.rotation_correlation(self._params, int(lag)))(lags)
            drawn = drawn @ np.linalg.cholesky(correlation).T
        drawn[:, self._sources.still[node.gather]] = 0.0
        return drawn.reshape(samples, -1)


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


def _simulate(program: Program, tables: list[_Tables | None], input_phases: Reals, random: _Noise | None) -> Reals:
    graph, params, samples = program.graph, program.parameters, len(input_phases)
    phases = np.zeros((samples, graph.wire_count + 1))
    phases[:, wires(graph.input)] = input_phases
    if random is not None:
        phases[:, wires(graph.input)] += random.fresh(samples)
    for level, table in zip(program.levels, tables, strict=True):
        for linear in level.linears:
            phases[:, wires(linear)] = _linear(program, linear, phases)
        if table is None:
            continue
        switching = None if random is None else random.switching(level, samples)
        start = 0
        for i, node in enumerate(level.lookups):
            seen = phases[:, node.gather]
            if switching is not None:
                seen = seen + switching[i]
            elements = slice(start, start + node.bootstraps)
            looked_up = table(seen, elements, shift_coefficients(graph, node, params))
            phases[:, wires(node)] = looked_up if random is None else looked_up + random.rotation(node, samples)
            start += node.bootstraps
    return phases


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
