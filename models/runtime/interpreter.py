"""The clear interpreter of a graph, the oracle of the compiler: its schedule on real numbers (models/runtime/machines/clear.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import Named, Tensors, run_output_steps
from cloakwork.models.graph.ir import Graph
from cloakwork.models.graph.schedule import Schedule, schedule
from cloakwork.models.program import Program
from cloakwork.models.runtime.machines.clear import Clear, input_rows
from cloakwork.models.runtime.machines.machine import execute, execute_graph
from cloakwork.models.runtime.machines.noisy import Noise, Noisy, Simulation

_WORKING_BYTES: Final = 1 << 26  # memory that is used again costs less than more of it at once


def interpret(graph: Graph, x: ArrayLike) -> Reals:
    """Returns values of the output [samples, ..] for inputs [samples, ..], before the client's steps."""
    samples, size, steps = np.asarray(x, dtype=np.float64), samples_at_once(graph), schedule(graph)
    parts = [_run(graph, steps, samples[i : i + size])[0] for i in range(0, max(1, len(samples)), size)]
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def wire_values(graph: Graph, x: ArrayLike) -> Reals:
    """Returns values of every wire [samples, wires + 1]; the last one is the zero wire."""
    return _run(graph, schedule(graph), x)[1]


def samples_at_once(graph: Graph) -> int:
    """Returns samples whose values, and the values gathered for any linear node, stay within some 64 MiB."""
    gathered = max((int(np.bincount(node.block).max()) * node.gather.shape[1] for node in graph.linears), default=0)
    return max(1, min(1000, _WORKING_BYTES // (8 * max(gathered, graph.wire_count))))


def _run(graph: Graph, steps: Schedule, x: ArrayLike) -> tuple[Reals, Reals]:
    """Returns values of the output, and of every wire."""
    machine = Clear(graph, input_rows(graph.input, x))
    return execute_graph(steps, machine), machine.wires


# An imported network in clear, in real numbers, from samples to answers.


def clear_answers(graph: Graph, x: Any) -> Any:
    """Returns an array, of several outputs arrays by name. Args: x: samples [samples, ..]; of several inputs a dict by name, or a tuple."""
    values = interpret(graph, Tensors.of(graph.inputs, graph.unused)(x) if graph.inputs else x)
    return Named.of(graph.outputs)(values) if graph.outputs else run_output_steps(graph.client_steps, values)


# Runs a program in clear on phases, with the noise of the noise model and the tables that the engine uses (models/runtime/machines/noisy.py).


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
