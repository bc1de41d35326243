"""Whether an encrypted model decides as the clear one does: the compiler's check of its own work, on the calibration samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from cloakwork.models.client import ClientSpecification
from cloakwork.models.errors import CompileError
from cloakwork.models.interpreter import interpret, wire_values
from cloakwork.models.ir import Graph, Reals, wires
from cloakwork.models.program import Program
from cloakwork.models.simulate import simulate, simulate_wires

Task: TypeAlias = Literal["classification", "regression"]
TASKS: Final = ("classification", "regression")
_DECIDING: Final = frozenset({"ArgMax", "Hardmax", "LogSoftmax", "Sigmoid", "Softmax", "TopK", "TopKIndices"})
_SEED, _CENTRING_SEED = 20261122, 20261123
_MOST_LOOKUPS = 1 << 21  # samples times look-ups of one check
_FEWEST, _MOST = 200, 500  # samples
_FEW, _FAR = 60, 0.1  # samples that show a value so far from what is wanted that more would say the same
_QUANTITIES = 8  # outputs of a regression up to which each is a quantity of its own; more are one signal, of which parts hardly vary
_RARE = 0.02  # of the samples: what no second class reaches, is no classification
_QUARTER = 0.25  # of the torus, where a table ends
_CONFIDENCE = 1.96  # standard deviations of the upper end of a share


@dataclass(frozen=True)
class Check:
    """How a simulated program compares with the clear model.

    `value` is the share of samples with the same decision (agreement), or for regression the share of the outputs' variance that is right
    (determination, 1 - error^2 / variance, the least of any output, or of all together where they are many). `doubled` is the same under an
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

    def reaches(self, accuracy: float) -> bool:
        return self.value >= accuracy

    def leaves_no_doubt(self, accuracy: float) -> bool:
        """A third of the loss that is allowed, for certain, and half of it under twice the error."""
        sure = self.at_least >= 1 - (1 - accuracy) / 3
        return sure and (self.measure == "determination" or self.doubled >= 1 - (1 - accuracy) / 2)

    def is_far_from(self, accuracy: float) -> bool:
        return self.value < accuracy - _FAR


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


@dataclass(frozen=True, eq=False)
class Reference:
    """The clear model on the samples that programs are checked with."""

    graph: Graph  # restructured, real
    samples: Reals  # [samples, ..] of its input
    outputs: Reals  # [samples, numbers]
    task: Task

    @classmethod
    def of(cls, graph: Graph, samples: Reals, task: Task | None) -> Reference:
        """Args: task: what the output is for; None: classification where its largest number is not always the same."""
        if task is not None and task not in TASKS:
            raise CompileError(f"task: expected one of {', '.join(TASKS)}, got '{task}'")
        count = min(len(samples), max(_FEWEST, min(_MOST, _MOST_LOOKUPS // max(1, graph.bootstraps))))
        chosen = samples[np.sort(np.random.default_rng(_SEED).permutation(len(samples))[:count])]
        outputs = interpret(graph, chosen).reshape(len(chosen), -1)
        return cls(graph, chosen, outputs, task or _task_of(graph, outputs))

    def few(self) -> Reference | None:
        """With fewer samples, enough to see what is hopeless; None when they are few already."""
        if len(self.samples) <= 2 * _FEW:
            return None
        return replace(self, samples=self.samples[:_FEW], outputs=self.outputs[:_FEW])


def check_accuracy(program: Program, reference: Reference) -> Check:
    """Simulates a program on the samples of a reference; one draw of the noise, always the same."""
    specification = ClientSpecification.of(program)
    phases = specification.quiet_phases(reference.samples)
    scale, offset = specification.output_scale.reshape(-1), specification.output_offset.reshape(-1)
    clear = reference.outputs
    error = simulate(program, phases, _SEED) / scale + offset - clear
    if reference.task == "classification":
        wanted = _decisions(clear, clear)
        value, doubled = (float((_decisions(clear + share * error, clear) == wanted).mean()) for share in (1, 2))
        return Check("agreement", value, doubled, len(clear))
    lost, variance = np.square(error).mean(axis=0), clear.var(axis=0)
    if len(variance) > _QUANTITIES:
        lost, variance = lost.sum(keepdims=True), variance.sum(keepdims=True)
    varies = variance > 1e-12 * max(float(variance.max()), 1e-300)
    worst = float((lost[varies] / variance[varies]).max()) if varies.any() else 0.0
    return Check("determination", 1 - worst, 1 - 4 * worst, len(clear))


def centred(program: Program, reference: Reference) -> Program:
    """The program with the mean error of each output taken out of its bias: max-pools of noisy values, and functions that bend, are off on average.

    Noise is drawn differently from that of `check_accuracy`. Exact programs and shared rows stay as they are.
    """
    graph = program.graph
    assert graph.scale is not None and graph.offset is not None
    wanted = graph.output.reshape(-1)
    first, last = int(wanted.min()), int(wanted.max())
    node = next(n for n in graph.linears if n.first_wire <= first < n.first_wire + n.size)
    if (
        program.output_unit
        or last >= node.first_wire + node.size
        or len(node.gather) > 1
        or len(set(wanted)) < len(wanted)
    ):
        return program
    phases = ClientSpecification.of(program).quiet_phases(reference.samples)
    outputs = simulate(program, phases, _CENTRING_SEED) / graph.scale[wanted] + graph.offset[wanted]
    error = np.median(outputs - reference.outputs, axis=0)  # whatever a few samples far outside bring
    bias = node.bias.copy()
    bias[node.block[0], wanted - node.first_wire] -= error
    nodes = tuple(replace(n, bias=bias) if n is node else n for n in graph.nodes)
    return replace(program, graph=replace(graph, nodes=nodes))


def _task_of(graph: Graph, outputs: Reals) -> Task:
    if any(step.operator in _DECIDING for step in graph.client_steps):
        return "classification"
    if graph.output.ndim != 1 or outputs.shape[1] < 2 or outputs.shape[1] == graph.input.size:
        return "regression"  # as many numbers as come in are a copy
    shares = np.bincount(outputs.argmax(axis=1)) / len(outputs)
    return "classification" if int((shares > _RARE).sum()) > 1 else "regression"


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
        read[lookup.gather] = True
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
    """End of Wilson's interval for a share, so many standard deviations off. Source: Wilson, JASA 1927."""
    square = deviations**2
    middle = share + square / (2 * count)
    spread = deviations * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, min(1.0, (middle + spread) / (1 + square / count)))
