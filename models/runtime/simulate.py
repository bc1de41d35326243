"""Runs a program in clear on phases, with the noise of the noise model and the tables that the engine uses (models/runtime/machines/noisy.py)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.program import Program
from cloakwork.models.runtime.interpreter import samples_at_once
from cloakwork.models.runtime.machines.machine import execute
from cloakwork.models.runtime.machines.noisy import Noise, Noisy, Simulation


def simulate(program: Program, input_phases: Reals, seed: int | None = None, noisy: bool = True) -> Reals:
    """Returns phases of the output [samples, numbers] for phases of the input; without noise, tables and rounding still act.

    What is deterministic is drawn once: equal look-ups are one (Program.distinct), and those that read the same combination see the same
    noise of keyswitch and modulus switch. A seed stands for a key too: what is a constant of the key is one draw for all samples.
    """
    simulation = _simulation(program, seed, noisy)
    parts = []
    for output, _ in _runs(simulation, input_phases):
        if simulation.random is not None:
            output = output + simulation.random.answer(len(output))
        parts.append(output - np.rint(output))
    return np.concatenate(parts) if parts else np.zeros((0, program.graph.output.size))


def simulate_wires(program: Program, input_phases: Reals, seed: int | None = None) -> Reals:
    """Returns phases of every wire of `program.distinct` [samples, wires + 1], sums not reduced modulo the torus; the last is the zero wire."""
    return np.concatenate([wires.copy() for _, wires in _runs(_simulation(program, seed, noisy=True), input_phases)])


def _simulation(program: Program, seed: int | None, noisy: bool) -> Simulation:
    program = program.distinct
    return Simulation(program, Noise(program, np.random.default_rng(seed)) if noisy else None)


def _runs(simulation: Simulation, phases: Reals) -> Iterator[tuple[Reals, Reals]]:
    """Yields phases of the output, and of every wire, of some samples after the other; the next ones overwrite those of the wires."""
    program = simulation.program
    size = samples_at_once(program.graph)
    wires = np.zeros((min(size, len(phases)), program.graph.wire_count + 1))
    for start in range(0, len(phases), size):
        part = phases[start : start + size]
        machine = Noisy(simulation, part, wires[: len(part)])
        yield execute(program.schedule, machine), machine.wires
