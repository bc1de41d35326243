"""The machine on phases: the tables that the engine uses, with the noise of the noise model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.arrays.encoding import centre
from cloakwork.fhe_core.session.lookup_tables import LookupTables
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Lookup, wires
from cloakwork.models.graph.schedule import Extract, Gather, LookUp, Multiply
from cloakwork.models.graph.tables import BatchTables, batch_tables
from cloakwork.models.program import Program
from cloakwork.models.runtime.machines.clear import AllWires


class Noise:
    """Draws what the noise model says. A seed stands for a key too: what is a constant of the key is one draw for all samples."""

    def __init__(self, program: Program, random: np.random.Generator) -> None:
        self._params = program.parameters
        self._inputs, self._outputs = program.graph.input.size, program.graph.output.size
        self._random = random
        self._sources = program.sources
        self._rotation = math.sqrt(noise.blind_rotation_variance(self._params))
        constant = random.spawn(1)[0].normal(0.0, math.sqrt(noise.keyswitch_constant_variance(self._params)))
        self._offset = noise.keyswitch_offset(self._params) + constant

    def fresh(self, samples: int) -> Reals:
        deviation = math.sqrt(noise.fresh_variance(self._params))
        return self._random.normal(0.0, deviation, (samples, self._inputs))

    def switching(self, read: Indices, samples: int) -> Reals:
        """Returns [samples, E] for the wires that the look-ups of a level read: one draw of the keyswitch for each combination, with its sign, one
        of the modulus switch for each combination and sign."""
        sources, params = self._sources, self._params
        combination, turn = sources.combination[read], sources.turn[read]
        key = noise.keyswitch_variance(params) - noise.keyswitch_constant_variance(params)
        rounding = noise.modulus_switch_variance(params)
        if len(np.unique(combination)) == len(read):
            total = self._shared(combination, samples, key + rounding)
        else:
            total = turn * self._shared(combination, samples, key)
            total += self._shared(2 * combination + (turn > 0), samples, rounding)
        total += self._offset
        total[:, sources.still[read]] = 0.0
        return total

    def _shared(self, numbers: Indices, samples: int, variance: float) -> Reals:
        """[samples, len(numbers)]: one draw for each different number."""
        distinct, index = np.unique(numbers, return_inverse=True)
        drawn: Reals = self._random.normal(0.0, math.sqrt(variance), (samples, len(distinct)))[:, index.reshape(-1)]
        return drawn

    def rotation(self, node: Lookup, coefficients: Indices | None, samples: int) -> Reals:
        """Returns [samples, wires of the node]; outputs of one rotation are correlated as the model says."""
        drawn = self._random.normal(0.0, self._rotation, (samples, len(node.gather), node.size // len(node.gather)))
        if coefficients is not None:
            lags = np.abs(coefficients[:, None] - coefficients[None, :])
            correlation = np.vectorize(lambda lag: noise.rotation_correlation(self._params, int(lag)))(lags)
            drawn = drawn @ np.linalg.cholesky(correlation).T
        drawn[:, self._sources.still[node.gather]] = 0.0
        return drawn.reshape(samples, -1)

    def answer(self, samples: int) -> Reals:
        """Adds what re-randomisation adds to outputs [samples, numbers]."""
        deviation = math.sqrt(noise.rerandomisation_variance(self._params))
        return self._random.normal(0.0, deviation, (samples, self._outputs))


class PhaseTables:
    """Tables of a batch over all 2N phases, as fractions of the torus."""

    def __init__(self, batch: BatchTables, values: Reals) -> None:
        """Args: values: of the batch's tables (`table_values`), which those of its level share."""
        self._values, self._index = values, batch.index
        self.coefficients = batch.coefficients
        self._shifts = np.zeros(1, dtype=np.int64) if batch.coefficients is None else batch.coefficients

    def __call__(self, phases: Reals) -> Reals:
        """Returns phases [samples, E] -> [samples, E J], J the number of coefficients, 1 without."""
        turn = self._values.shape[1]
        step = (np.rint(phases * turn).astype(np.int64)[..., None] + self._shifts) % turn
        looked_up: Reals = self._values[self._index[:, None], step]
        return looked_up.reshape(len(phases), -1)


def table_values(tables: LookupTables) -> Reals:
    """Returns [tables, 2N]"""
    half = centre(tables.parameters, tables.polynomials.astype(np.uint64)) / tables.parameters.modulus
    return np.concatenate([half, -half], axis=1)


@dataclass(frozen=True, eq=False)
class NoisyProgram:
    """Data of a program that all its simulations share, by the value that an instruction writes."""

    bias: dict[int, Reals]
    tables: dict[int, PhaseTables]

    @classmethod
    def of(cls, program: Program) -> NoisyProgram:
        """Prepares a program, once."""
        if program not in _PREPARED:
            tables: dict[int, PhaseTables] = {}
            batches = batch_tables(program.graph, program.schedule, program.parameters)
            for level in program.schedule.levels:
                values = table_values(batches[level[0].writes].tables)
                tables |= {step.writes: PhaseTables(batches[step.writes], values) for step in level}
            bias = {step.writes: program.phase_bias(step.node) for step in program.schedule.products}
            _PREPARED[program] = cls(bias, tables)
        return _PREPARED[program]


_PREPARED: Final[WeakKeyDictionary[Program, NoisyProgram]] = WeakKeyDictionary()


class Simulation:
    """A program ready to be simulated; it has no equal look-ups (Program.distinct)."""

    def __init__(self, program: Program, random: Noise | None) -> None:
        """Args: random: None: tables and rounding still act."""
        self.program, self.random = program, random
        prepared = NoisyProgram.of(program)
        self.bias, self.tables = prepared.bias, prepared.tables


class Noisy(AllWires):
    """Phases of some samples, before re-randomisation. Sums are not reduced modulo the torus."""

    def __init__(self, simulation: Simulation, phases: Reals, wires: Reals) -> None:
        """Args: phases: of the input, [samples, numbers]; wires: see AllWires."""
        super().__init__(wires)
        self._held, self._random = simulation, simulation.random
        self._phases = phases
        self._switching: dict[int, Reals] = {}  # of the present level

    def extract(self, step: Extract) -> None:
        node_wires = wires(step.node)
        self.wires[:, node_wires] = self._phases
        if self._random is not None:
            self.wires[:, node_wires] += self._random.fresh(len(self.wires))

    def _bias(self, step: Multiply) -> Reals:
        return self._held.bias[step.writes]

    def look_up(self, step: LookUp) -> None:
        tables, seen, first = self._held.tables[step.writes], self.wires[:, step.reads.wires], 0
        if self._random is not None:
            seen += self._switched(step, self._random)[:, step.elements]
        looked_up = tables(seen)
        for node in step.nodes:
            node_values = looked_up[:, first : first + node.size]
            if self._random is not None:
                node_values = node_values + self._random.rotation(node, tables.coefficients, len(seen))
            self.wires[:, wires(node)] = node_values
            first += node.size

    def _switched(self, step: LookUp, random: Noise) -> Reals:
        """Returns [samples, E] of the whole level, drawn at its first batch: equal combinations are read in one level, by whichever of its
        batches."""
        if step.level not in self._switching:
            (level,) = (level for level in self._held.program.schedule.levels if level[0].level == step.level)
            read = np.concatenate([batch.reads.wires for batch in level])
            self._switching = {step.level: random.switching(read, len(self.wires))}
        return self._switching[step.level]

    def output(self, reads: Gather) -> Reals:
        """Returns [samples, numbers]"""
        return self.wires[:, reads.flat.wires]
