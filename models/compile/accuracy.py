"""Whether an encrypted model decides as the clear one does: the compiler's check of its own work, on the calibration samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import named_outputs
from cloakwork.models.errors import CompileError, some
from cloakwork.models.graph.ir import Graph, Linear, Part, places, source_nodes, wires
from cloakwork.models.graph.last_steps import ArgMax, Hardmax, LogSoftmax, Softmax, TopK, TopKIndices
from cloakwork.models.passes.statistics import output_weights
from cloakwork.models.program import Program
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime.interpreter import interpret, wire_values
from cloakwork.models.runtime.simulate import simulate, simulate_wires

Task: TypeAlias = Literal["classification", "regression"]
TASKS: Final = ("classification", "regression")
_DECIDING: Final = (ArgMax, Hardmax, LogSoftmax, Softmax, TopK, TopKIndices)
_SEED, _CENTRING_SEED = 20261122, 20261123
_MOST_LOOKUPS = 1 << 21  # samples times look-ups of one check
_FEWEST, _MOST = 200, 500  # samples
_FEW, _FAR = 60, 0.1  # samples that show a value so far from what is wanted that more would say the same
_QUANTITIES = 8  # numbers of a regression up to which each is a quantity of its own; more are one signal, of which parts hardly vary
_RARE = 0.02  # of the samples: what no second class reaches, is no classification
_COPIED = 0.5  # correlation of an output with the input in the same place
_QUARTER = 0.25  # of the torus, where a table ends
_CONFIDENCE = 1.96  # standard deviations of the upper end of a share


@dataclass(frozen=True)
class Verdict:
    """On one output: the share of samples with the same decision (agreement), or for regression the share of the output's variance that is right
    (determination, 1 - error^2 / variance, the least of any of its numbers, or of all together where they are many). `doubled` is the same under an
    error twice as large: calibration samples are mostly those of training, which a model decides more surely than new ones.
    """

    measure: Literal["agreement", "determination"]
    value: float
    doubled: float
    samples: int

    @property
    def at_least(self) -> float:
        """The value less a standard deviation of what so few samples say."""
        return self.value if self.measure == "determination" else _end(self.value, self.samples, -1.0)

    def leaves_no_doubt(self, accuracy: float) -> bool:
        """A third of the loss that is allowed, for certain, and under twice the error as well."""
        most = (1 - accuracy) / 3
        sure = self.at_least >= 1 - most
        return sure and (self.measure == "determination" or self.doubled >= 1 - most)

    @property
    def text(self) -> str:
        """What it would do on how many samples."""
        if self.measure == "agreement":
            return f"would decide as the clear one on {100 * self.value:.1f} % of {self.samples} calibration samples"
        return (
            f"would get {100 * self.value:.1f} % of its output's variance right on {self.samples} calibration samples"
        )


@dataclass(frozen=True)
class Check:
    """How a simulated program compares with the clear model, output by output."""

    outputs: dict[str, Verdict]  # by name; of one output under ""

    @property
    def worst(self) -> str:
        """The output that is furthest off."""
        return min(self.outputs, key=lambda name: self.outputs[name].value)

    @property
    def verdict(self) -> Verdict:
        """On the worst output."""
        return self.outputs[self.worst]

    @property
    def worth(self) -> tuple[float, float]:
        """Of two programs the one with more of it is the more accurate."""
        return self.verdict.value, min(verdict.doubled for verdict in self.outputs.values())

    def reaches(self, accuracy: float) -> bool:
        return self.verdict.value >= accuracy

    def leaves_no_doubt(self, accuracy: float) -> bool:
        return all(verdict.leaves_no_doubt(accuracy) for verdict in self.outputs.values())

    def is_far_from(self, accuracy: float) -> bool:
        return self.verdict.value < accuracy - _FAR


@dataclass(frozen=True)
class Losses:
    """Where a program loses: `layers`, the relative error of every linear layer's results, and `outside`, the share of samples of which a value lay
    beyond a table, with its upper end at 95 %."""

    layers: dict[str, float]
    outside: float
    outside_at_most: float

    @property
    def worst_layer(self) -> str:
        """Where the error grows most."""
        before, worst, most = 0.0, "", -math.inf
        for name, error in self.layers.items():
            if error - before > most:
                worst, most = name, error - before
            before = max(before, error)
        return worst


@dataclass(frozen=True)
class Head:
    """One output: its numbers among those of all, and what it is for."""

    name: str
    place: slice
    task: Task


@dataclass(frozen=True, eq=False)
class Reference:
    """The clear model on the samples that programs are checked with."""

    graph: Graph  # restructured, real
    samples: Reals  # [samples, ..] of its input
    outputs: Reals  # [samples, numbers]
    heads: tuple[Head, ...]

    @classmethod
    def of(cls, graph: Graph, samples: Reals, task: Task | Mapping[str, Task] | None) -> Reference:
        """Args: task: what the output is for, or each by its name; None: see `task_of`."""
        tasks = _tasks(graph, task)
        count = min(len(samples), max(_FEWEST, min(_MOST, _MOST_LOOKUPS // max(1, graph.bootstraps))))
        chosen = samples[np.sort(np.random.default_rng(_SEED).permutation(len(samples))[:count])]
        outputs = interpret(graph, chosen).reshape(len(chosen), -1)
        parts = graph.outputs or (Part("", graph.output.shape, graph.client_steps),)
        heads = tuple(
            Head(part.name, place, tasks.get(part.name) or task_of(part, outputs[:, place], chosen))
            for part, place in zip(parts, places(parts), strict=True)
        )
        return cls(graph, chosen, outputs, heads)

    def few(self) -> Reference | None:
        """With fewer samples, enough to see what is hopeless; None when they are few already."""
        if len(self.samples) <= 2 * _FEW:
            return None
        return replace(self, samples=self.samples[:_FEW], outputs=self.outputs[:_FEW])

    @property
    def variance(self) -> float:
        """Of the outputs together, in the units in which statistics.output_weights count them."""
        return float((self.outputs.var(axis=0) * np.square(output_weights(self.graph, self.outputs))).sum())


def check_accuracy(program: Program, reference: Reference) -> Check:
    """Simulates a program on the samples of a reference; one draw of the noise, always the same."""
    specification = ClientSpecification.of(program)
    phases = specification.quiet_phases(reference.samples)
    scale, offset = specification.output_scale.reshape(-1), specification.output_offset.reshape(-1)
    outputs = simulate(program, phases, _SEED) / scale + offset
    named = named_outputs(program.output_steps)
    outputs = outputs if named is None else outputs[:, named.spread]
    clear = reference.outputs
    if program.facts.encrypted_argmax:
        share = float((np.rint(outputs[:, 0]) == clear.argmax(axis=1)).mean())
        (head,) = reference.heads
        return Check({head.name: Verdict("agreement", share, share, len(clear))})
    return Check(
        {head.name: _verdict(head.task, outputs[:, head.place], clear[:, head.place]) for head in reference.heads}
    )


def _verdict(task: Task, outputs: Reals, clear: Reals) -> Verdict:
    error = outputs - clear
    if task == "classification":
        wanted = _decisions(clear, clear)
        value, doubled = (float((_decisions(clear + times * error, clear) == wanted).mean()) for times in (1, 2))
        return Verdict("agreement", value, doubled, len(clear))
    lost, variance = np.square(error).mean(axis=0), clear.var(axis=0)
    if len(variance) > _QUANTITIES:
        lost, variance = lost.sum(keepdims=True), variance.sum(keepdims=True)
    varies = variance > 1e-12 * max(float(variance.max(initial=0.0)), 1e-300)
    worst = float((lost[varies] / variance[varies]).max()) if varies.any() else 0.0
    return Verdict("determination", 1 - worst, 1 - 4 * worst, len(clear))


def centred(program: Program, reference: Reference) -> Program:
    """The program with the mean error of each output taken out of its bias: max-pools of noisy values, and functions that bend, are off on average.

    Noise is drawn differently from that of `check_accuracy`. Exact programs and shared rows stay as they are.
    """
    graph = program.graph
    assert graph.scale is not None and graph.offset is not None
    wanted = graph.output.reshape(-1)
    nodes = _centred_nodes(graph, len(reference.heads))
    if program.output_unit or not nodes or len(set(wanted)) < len(wanted):
        return program
    phases = ClientSpecification.of(program).quiet_phases(reference.samples)
    outputs = simulate(program, phases, _CENTRING_SEED) / graph.scale[wanted] + graph.offset[wanted]
    named = named_outputs(program.output_steps)
    clear = reference.outputs if named is None else reference.outputs[:, np.unique(named.spread, return_index=True)[1]]
    error = np.zeros(graph.wire_count)
    error[wanted] = np.median(outputs - clear, axis=0)  # whatever a few samples far outside bring
    changed = list(graph.nodes)
    for position in nodes:
        node = changed[position]
        assert isinstance(node, Linear)
        bias = node.bias.copy()
        bias[node.block[0]] -= error[wires(node)]
        changed[position] = replace(node, bias=bias)
    return replace(program, graph=replace(graph, nodes=tuple(changed)))


def _centred_nodes(graph: Graph, heads: int) -> list[int]:
    """Positions of the linear nodes of one position that the output reads; none where one output reads several nodes, or rows that are shared."""
    found = source_nodes(graph, graph.output)
    if heads == 1 and len(found) > 1:
        return []
    alone = [i for i in found if len(graph.nodes[i].gather) == 1]
    return alone if heads > 1 or len(alone) == len(found) else []


def _tasks(graph: Graph, task: Task | Mapping[str, Task] | None) -> dict[str, Task]:
    """What was said of outputs, by their names."""
    names = [part.name for part in graph.outputs] or [""]
    if task is None:
        return {}
    if isinstance(task, Mapping) and not graph.outputs:
        raise CompileError(f"task: expected one of {', '.join(TASKS)} for a model of one output, got a dict")
    said = dict(task) if isinstance(task, Mapping) else dict.fromkeys(names, task)
    unknown = [name for name in said if name not in names]
    if unknown:
        raise CompileError(
            f"task: the model has no output {some(map(repr, unknown))}; expected some of {some(map(repr, names))}"
        )
    for each in said.values():
        if each not in TASKS:
            raise CompileError(f"task: expected one of {', '.join(TASKS)}, got '{each}'")
    return said


def task_of(part: Part, outputs: Reals, samples: Reals) -> Task:
    """Classification where the client decides, or where the largest of several numbers is not always the same one.

    Regression otherwise, and for what mostly follows as many numbers of the input (a copy), and for one of several outputs that others are
    computed from: a representation. Args: outputs: [samples, numbers] of this part; samples: [samples, ..] of the input.
    """
    if any(isinstance(step, _DECIDING) for step in part.client_steps):
        return "classification"
    if (
        len(part.shape) != 1
        or outputs.shape[1] < 2
        or part.inner
        or _is_copy(outputs, samples.reshape(len(samples), -1))
    ):
        return "regression"
    shares = np.bincount(outputs.argmax(axis=1)) / len(outputs)
    return "classification" if int((shares > _RARE).sum()) > 1 else "regression"


def _is_copy(outputs: Reals, inputs: Reals) -> bool:
    """Whether most of what varies follows the number in the same place of the input."""
    if outputs.shape != inputs.shape:
        return False
    deviation = outputs.std(axis=0) * inputs.std(axis=0)
    varies = deviation > 0
    if not varies.any():
        return True
    together = ((outputs - outputs.mean(axis=0)) * (inputs - inputs.mean(axis=0))).mean(axis=0)
    return float(np.median(together[varies] / deviation[varies])) > _COPIED


def _decisions(outputs: Reals, clear: Reals) -> np.ndarray:
    """The largest number; of one number whether it is above 0, or 0.5 for probabilities."""
    if outputs.shape[1] > 1:
        return np.asarray(outputs.argmax(axis=1))
    middle = 0.0 if float(clear.min()) < 0 else 0.5
    return np.asarray(outputs[:, 0] > middle)


def losses(program: Program, reference: Reference) -> Losses:
    """Of a program, layer by layer, on some of the samples."""
    some = reference.samples[:_FEW]
    seen = simulate_wires(program, ClientSpecification.of(program).quiet_phases(some), _SEED)
    real = wire_values(reference.graph, some)
    clear = {(node.first_wire, node.origin): node for node in reference.graph.linears}
    graph = program.distinct.graph
    assert graph.scale is not None and graph.offset is not None
    read = np.zeros(graph.wire_count, dtype=bool)
    for lookup in graph.lookups:
        read[lookup.gather] |= not lookup.is_table
    errors: dict[str, tuple[float, float]] = {}
    for node in graph.linears:
        twin = clear.get((node.first_wire, node.origin))
        if twin is None or twin.size != node.size:
            continue
        own = wires(node)
        wanted = real[:, own]
        error = seen[:, own] / graph.scale[own] + graph.offset[own] - wanted
        before = errors.get(node.origin, (0.0, 0.0))
        errors[node.origin] = (before[0] + float(np.square(error).sum()), before[1] + _spread(wanted))
    outside = float((np.abs(seen[:, :-1][:, read]) > _QUARTER).any(axis=1).mean())
    relative = {name: math.sqrt(error / spread) if spread > 0 else 0.0 for name, (error, spread) in errors.items()}
    return Losses(relative, outside, _end(outside, len(some), _CONFIDENCE))


def _spread(values: Reals) -> float:
    return float(np.square(values - values.mean()).sum())


def _end(share: float, count: int, deviations: float) -> float:
    """End of Wilson's interval for a share, so many standard deviations off. Source: [Wil27]."""
    square = deviations**2
    middle = share + square / (2 * count)
    spread = deviations * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, min(1.0, (middle + spread) / (1 + square / count)))
