"""The compiler's check that an encrypted model agrees with the clear one on the calibration samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.approximate.statistics import output_weights
from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import named_outputs
from cloakwork.models.criteria.verdicts import (
    TASKS,
    Task,
    Verdict,
    agreement,
    closeness,
    cosine,
    decisions,
    judged,
    labels,
    labels_kept,
    samples_for,
    wilson,
)
from cloakwork.models.errors import CompileError, some
from cloakwork.models.graph.ir import Graph, Linear, NamedTensor, places, source_nodes, wires
from cloakwork.models.graph.last_steps import (
    ArgMax,
    Functions,
    Hardmax,
    L2Normalization,
    LogSoftmax,
    Softmax,
    TopK,
    TopKIndices,
)
from cloakwork.models.passes.carry_lines import reachable
from cloakwork.models.program import Program
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime.interpreter import interpret, simulate, simulate_wires, wire_values

_DECIDING: Final = (ArgMax, Hardmax, LogSoftmax, Softmax, TopK, TopKIndices)
_SHARES: Final = frozenset(
    {"Equal", "Greater", "GreaterOrEqual", "HardSigmoid", "Less", "LessOrEqual", "Not", "Sigmoid"}
)  # functions that end in a share, or a decision
_SEED, _CENTRING_SEED = 20261122, 20261123
_MOST_LOOKUPS = 1 << 21  # samples times look-ups of one check
_MORE_LOOKUPS = 1 << 24  # of one that would be accurate enough, if so few samples could show it
_FEWEST, _MOST, _MANY = 200, 500, 2000  # samples
_FEW = 60  # samples that show a value so far from what is wanted that more would say the same
_RARE = 0.02  # of the samples: what no second class reaches, is no classification
_SIDE = 0.01  # of the samples on either side of the middle of a number that may be a logit
_COPIED = 0.5  # correlation of an output with the input in the same place
_UNIT = 1e-3  # of the length of embeddings, by which these differ at most
_ONE = 0.999  # of that length: a single number that holds it all is a choice of one
_QUARTER = 0.25  # of the torus, where a table ends
_POINTS = 33  # of the range of a number
_CONFIDENCE = 1.96  # standard deviations of the upper end of a share
_SHOWN = 3  # numbers of a sample in messages

Judge: TypeAlias = Callable[[Reals, Reals], Verdict]  # of outputs, and of the clear model's


@dataclass(frozen=True)
class Check:
    """Comparison of a simulated program with the clear model, output by output. Args: example: the first sample of the worst output that differs."""

    outputs: dict[str, Verdict]  # by name; of one output under ""
    example: str = ""

    @property
    def worst(self) -> str:
        """The output that is furthest off."""
        return min(self.outputs, key=lambda name: self.outputs[name].worth)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the worst output."""
        return self.outputs[self.worst]

    @property
    def worth(self) -> tuple[float, ...]:
        """Returns the worth by which programs are compared: of two the one with more of it is the more accurate."""
        doubled = (min(getattr(each, name) for each in self.outputs.values()) for name in ("rarest", "doubled"))
        return (*self.verdict.worth[:2], *doubled)

    def holds(self, accuracy: float) -> bool:
        return all(verdict.holds(accuracy) for verdict in self.outputs.values())

    def reaches(self, accuracy: float) -> bool:
        return all(verdict.reaches(accuracy) for verdict in self.outputs.values())

    def serves(self, accuracy: float) -> bool:
        """Whether no better program is needed: more samples are, if decisions are too few to show it."""
        every = self.outputs.values()
        return all(each.holds(accuracy) or (each.measure == "agreement" and each.reaches(accuracy)) for each in every)

    def reaches_otherwise(self, accuracy: float) -> bool:
        """Whether each output does so by one of its measures."""
        every = self.outputs.values()
        return all(any(each and each.reaches(accuracy) for each in (verdict, verdict.otherwise)) for verdict in every)

    def leaves_no_doubt(self, accuracy: float) -> bool:
        return all(verdict.leaves_no_doubt(accuracy) for verdict in self.outputs.values())

    def looks_accurate(self, accuracy: float) -> bool:
        """Whether the program looks accurate on these samples, which are too few to show it."""
        return not self.holds(accuracy) and all(verdict.value >= accuracy for verdict in self.outputs.values())

    def is_far_from(self, accuracy: float) -> bool:
        return any(verdict.is_far_from(accuracy) for verdict in self.outputs.values())


@dataclass(frozen=True)
class Losses:
    """The losses of a program: `layers`, the relative error of every linear layer's results, and `outside`, the share of samples of which a value lay
    beyond a table, with its upper end at 95 %."""

    layers: dict[str, float]
    outside: float
    outside_at_most: float

    @property
    def worst_layer(self) -> str:
        """Names the layer where the error grows most."""
        before, worst, most = 0.0, "", -math.inf
        for name, error in self.layers.items():
            if error - before > most:
                worst, most = name, error - before
            before = max(before, error)
        return worst


@dataclass(frozen=True, eq=False)
class Head:
    """One output: its numbers among those of all, what the client makes of them, and what it is for.

    Args:
        answers: functions of single numbers that the client applies; None: none.
        is_said: whether the model or its owner says what it is for.
        unshown: how many of its numbers are the same for all samples, and may be others.
    """

    name: str
    place: slice
    task: Task
    answers: Functions | None = None
    is_said: bool = True
    unshown: int = 0

    def verdict(self, outputs: Reals, clear: Reals) -> Verdict:
        """Judges one output. Args: outputs, clear: numbers of this output [samples, numbers], as they are decrypted."""
        judge: dict[Task, Judge] = {
            "classification": self._decisions,
            "regression": lambda *values: closeness(*map(self.answers_of, values)),
            "embedding": lambda *values: cosine(*map(self.answers_of, values)),
        }
        judged_verdict = replace(judge[self.task](outputs, clear), unshown=self.unshown)
        if self.is_said or self.task == "embedding":
            return judged_verdict
        other: Task = "classification" if self.task == "regression" else "regression"
        if other == "classification" and not (self._gives_shares or _may_be_logit(clear)):
            return judged_verdict
        return replace(judged_verdict, otherwise=judge[other](outputs, clear))

    def _decisions(self, outputs: Reals, clear: Reals) -> Verdict:
        if self.answers is None or not self._gives_shares:
            return agreement(outputs, clear, lambda values: decisions(values, clear))
        answers, clear_answers = self.answers, self.answers(clear)
        return agreement(outputs, clear, lambda values: labels(answers(values), clear_answers))

    @property
    def _gives_shares(self) -> bool:
        return self.answers is not None and _gives_shares(self.answers)

    def answers_of(self, outputs: Reals) -> Reals:
        """Computes what the client makes of numbers of this output [samples, numbers]."""
        return outputs if self.answers is None else self.answers(outputs)

    def constants(self, outputs: Reals, possible: Callable[[], Reals]) -> int:
        """Counts the numbers that are the same for all samples, and may be others. Args: possible: of `_possible`, of all heads."""
        answers = self.answers_of(outputs)
        same = answers.max(axis=0) == answers.min(axis=0)
        if not same.any():
            return 0
        others = self.answers_of(possible()[:, self.place])
        return int((same & (others != answers[:1]).any(axis=0)).sum())

    def shown(self, outputs: Reals) -> str:
        """Returns the numbers of one sample [numbers], for messages."""
        answers = self.answers_of(outputs[None])[0]
        listed = ", ".join(f"{value:.3g}" for value in answers[:_SHOWN])
        return f"{listed}{', ..' if len(answers) > _SHOWN else ''}"


@dataclass(frozen=True, eq=False)
class Reference:
    """The clear model on the samples that programs are checked with.

    Args:
        graph: restructured, real.
        samples: [samples, ..] of its input.
        outputs: [samples, numbers].
        numbers: of these samples among those that were given [samples].
        unseen: which of them ranges and roundings have not seen [samples].
        fitted: samples that these have seen, and their outputs.
        wider: the same with more samples; None: there are no more.
    """

    graph: Graph
    samples: Reals
    outputs: Reals
    heads: tuple[Head, ...]
    numbers: NDArray[np.int64]
    unseen: NDArray[np.bool_]
    fitted: tuple[Reals, Reals]
    wider: Callable[[], Reference] | None = None

    @classmethod
    def of(
        cls,
        graph: Graph,
        samples: Reals,
        task: Task | Mapping[str, Task] | None,
        accuracy: float = 0.0,
        unseen: NDArray[np.bool_] | None = None,
        most_lookups: int = _MOST_LOOKUPS,
    ) -> Reference:
        """Makes the reference.

        Args:
            task: what the output is for, or each by its name; None: see `task_of`.
            accuracy: that the samples are to show.
            unseen: of the samples, those that ranges and roundings do not see; None: they see all.
            most_lookups: of one check, if it has more than 200 samples.
        """
        tasks = _tasks(graph, task)
        held = np.zeros(len(samples), dtype=bool) if unseen is None else unseen
        enough = max(_FEWEST, samples_for(accuracy))
        is_wide = most_lookups > _MOST_LOOKUPS
        most = max(_FEWEST, min(max(_MANY if is_wide else _MOST, enough), most_lookups // max(1, graph.bootstraps)))
        mixed = np.random.default_rng(_SEED).permutation(len(samples))
        mixed = mixed[np.argsort(~held[mixed], kind="stable")]  # unseen ones first
        count = int(held.sum()) if enough <= int(held.sum()) and not is_wide else len(samples)
        chosen = np.sort(mixed[: min(most, count)])
        fitted = np.sort(mixed[held.sum() :][:most])
        every = np.union1d(chosen, fitted)
        outputs = interpret(graph, samples[every]).reshape(len(every), -1)
        checked, seen = (np.searchsorted(every, each) for each in (chosen, fitted))
        wider = cache(lambda: cls.of(graph, samples, task, accuracy, unseen, _MORE_LOOKUPS))
        parts = graph.outputs or (NamedTensor("", graph.output.shape, graph.client_steps),)
        possible = cache(lambda: _possible(graph, samples[every]))
        heads = tuple(
            _head(part, place, tasks.get(part.name), outputs[:, place], samples[every], possible)
            for part, place in zip(parts, places(parts), strict=True)
        )
        return cls(
            graph,
            samples[chosen],
            outputs[checked],
            heads,
            chosen,
            held[chosen],
            (samples[fitted], outputs[seen]),
            None if is_wide or len(chosen) == len(samples) else wider,
        )

    def few(self) -> Reference | None:
        """Returns the check with fewer samples, enough to see what is hopeless; None when they are few already."""
        if len(self.samples) <= 2 * _FEW:
            return None
        return replace(
            self,
            samples=self.samples[:_FEW],
            outputs=self.outputs[:_FEW],
            numbers=self.numbers[:_FEW],
            unseen=np.zeros(_FEW, dtype=bool),
            wider=None,
        )

    @property
    def decides(self) -> bool:
        """Whether any output is judged by its decisions."""
        return any(head.task == "classification" for head in self.heads)

    @property
    def variance(self) -> float:
        """Returns the variance of the outputs together, in the units in which statistics.output_weights count them."""
        return float((self.outputs.var(axis=0) * np.square(output_weights(self.graph, self.outputs))).sum())


def check_accuracy(program: Program, reference: Reference) -> Check:
    """Simulates a program on the samples of a reference; one draw of the noise, always the same."""
    outputs, clear = simulated(program, reference.samples), reference.outputs
    if program.facts.tell == "labels":
        (head,) = reference.heads
        program_labels, clear_labels = np.rint(outputs[:, 0]).astype(np.int64), clear.argmax(axis=1)
        return Check(
            {head.name: _parted(lambda rows: labels_kept(program_labels[rows], clear_labels[rows]), reference.unseen)}
        )
    verdicts = {}
    for head in reference.heads:
        head_outputs, head_clear = outputs[:, head.place], clear[:, head.place]
        verdicts[head.name] = _parted(partial(_on_some, head, head_outputs, head_clear), reference.unseen)
    check = Check(verdicts)
    return replace(check, example=_example(check, reference, outputs))


def simulated(program: Program, samples: Reals, noisy: bool = True) -> Reals:
    """Returns numbers of all outputs [samples, numbers], as they are decrypted."""
    specification = ClientSpecification.of(program)
    scale, offset = specification.output_scale.reshape(-1), specification.output_offset.reshape(-1)
    outputs = simulate(program, specification.quiet_phases(samples), _SEED, noisy) / scale + offset
    named = named_outputs(program.output_steps)
    return outputs if named is None else outputs[:, named.spread]


def _on_some(head: Head, outputs: Reals, clear: Reals, some: NDArray[np.bool_]) -> Verdict:
    return head.verdict(outputs[some], clear[some])


def _parted(verdict_on: Callable[[NDArray[np.bool_]], Verdict], unseen: NDArray[np.bool_]) -> Verdict:
    """On all samples, and on the unseen ones by themselves if they are some of them."""
    on_all = verdict_on(np.ones(len(unseen), dtype=bool))
    if not unseen.any():
        return on_all
    return replace(on_all, unseen=len(unseen)) if unseen.all() else judged(on_all, verdict_on(unseen))


def _example(check: Check, reference: Reference, outputs: Reals) -> str:
    """Returns the first sample whose decision differs, or that whose values differ most."""
    differs = check.verdict.differs
    if differs is None:
        return ""
    head = next(head for head in reference.heads if head.name == check.worst)
    clear, computed = (head.shown(values[differs, head.place]) for values in (reference.outputs, outputs))
    return f"sample {reference.numbers[differs]} is {computed} instead of {clear}"


def centred(program: Program, reference: Reference) -> Program:
    """Returns the program with the mean error of each output taken out of its bias: max-pools of noisy values, and functions that bend, are off on
    average.

    Noise is drawn differently from that of `check_accuracy`. Exact programs and shared rows stay as they are.
    """
    graph = program.graph
    assert graph.scale is not None and graph.offset is not None
    output_wires = graph.output.reshape(-1)
    nodes = _centred_nodes(graph, len(reference.heads))
    if program.output_unit or not nodes or len(set(output_wires)) < len(output_wires):
        return program
    samples, clear = reference.fitted
    phases = ClientSpecification.of(program).quiet_phases(samples)
    outputs = simulate(program, phases, _CENTRING_SEED) / graph.scale[output_wires] + graph.offset[output_wires]
    named = named_outputs(program.output_steps)
    clear = clear if named is None else clear[:, np.unique(named.spread, return_index=True)[1]]
    error = np.zeros(graph.wire_count)
    error[output_wires] = np.median(outputs - clear, axis=0)  # whatever a few samples far outside bring
    changed = list(graph.nodes)
    for position in nodes:
        node = changed[position]
        assert isinstance(node, Linear)
        bias = node.bias.copy()
        bias[node.block[0]] -= error[wires(node)]
        changed[position] = replace(node, bias=bias)
    return replace(program, graph=replace(graph, nodes=tuple(changed)))


def _centred_nodes(graph: Graph, heads: int) -> list[int]:
    """Returns positions of the linear nodes of one position that the output reads; none where one output reads several nodes, or rows that are
    shared."""
    positions = source_nodes(graph, graph.output)
    if heads == 1 and len(positions) > 1:
        return []
    alone = [i for i in positions if len(graph.nodes[i].gather) == 1]
    return alone if heads > 1 or len(alone) == len(positions) else []


def _tasks(graph: Graph, task: Task | Mapping[str, Task] | None) -> dict[str, Task]:
    """Returns what was said of outputs, by their names."""
    names = [part.name for part in graph.outputs] or [""]
    if task is None:
        return {}
    if isinstance(task, Mapping) and not graph.outputs:
        raise CompileError(f"task: expected one of {', '.join(TASKS)} for a model of one output, got a dict")
    tasks = dict(task) if isinstance(task, Mapping) else dict.fromkeys(names, task)
    unknown = [name for name in tasks if name not in names]
    if unknown:
        raise CompileError(
            f"task: the model has no output {some(map(repr, unknown))}; expected some of {some(map(repr, names))}"
        )
    for each in tasks.values():
        if each not in TASKS:
            raise CompileError(f"task: expected one of {', '.join(TASKS)}, got '{each}'")
    return tasks


def _possible(graph: Graph, samples: Reals) -> Reals:
    """Returns [points, numbers]: values from end to end of what each number of the output may be, by interval arithmetic."""
    lower, upper = np.full(graph.wire_count, np.inf), np.full(graph.wire_count, -np.inf)
    lower[wires(graph.input)], upper[wires(graph.input)] = samples.min(), samples.max()
    low, high = (
        np.append(np.nan_to_num(ends), 0.0)[graph.output.reshape(-1)]
        for ends in reachable(replace(graph, lower=lower, upper=upper))
    )
    return np.linspace(low, high, _POINTS)


def _head(
    part: NamedTensor,
    place: slice,
    given_task: Task | None,
    outputs: Reals,
    samples: Reals,
    possible: Callable[[], Reals],
) -> Head:
    """Args: possible: of `_possible`, of all parts."""
    functions = part.client_steps[0] if part.client_steps and isinstance(part.client_steps[0], Functions) else None
    decides = any(isinstance(step, _DECIDING) for step in part.client_steps)
    shares = functions is not None and _gives_shares(functions)
    task = given_task or task_of(part, outputs, samples)
    head = Head(
        part.name,
        place,
        task,
        None if decides else functions,
        given_task is not None or decides or (shares and task == "classification"),
    )
    return head if task != "regression" else replace(head, unshown=head.constants(outputs, possible))


def task_of(part: NamedTensor, outputs: Reals, samples: Reals) -> Task:
    """Returns classification if the client decides or applies a logistic function that decides differently for some samples, or if the largest of
    several numbers is not always the same one.

    Embedding if the numbers of each sample have the same length together. Regression otherwise, and for what mostly follows as many numbers of the
    input (a copy), and for one of several outputs that others are computed from: a representation.

    Args: outputs: [samples, numbers] of this part; samples: [samples, ..] of the input.
    """
    if any(isinstance(step, _DECIDING) for step in part.client_steps):
        return "classification"
    for step in part.client_steps:
        if isinstance(step, Functions) and _gives_shares(step):
            decided = labels(step(outputs), step(outputs))
            return "classification" if (decided != decided[:1]).any() else "regression"
    if any(isinstance(step, L2Normalization) for step in part.client_steps):
        return "embedding"
    if len(part.shape) == 1 and _has_one_length(outputs):
        return "embedding"
    if (
        len(part.shape) != 1
        or outputs.shape[1] < 2
        or part.inner
        or _is_copy(outputs, samples.reshape(len(samples), -1))
    ):
        return "regression"
    shares = np.bincount(outputs.argmax(axis=1)) / len(outputs)
    return "classification" if int((shares > _RARE).sum()) > 1 else "regression"


def _gives_shares(functions: Functions) -> bool:
    """Whether each number ends in a logistic function or a comparison."""
    return all(steps and steps[-1].operator in _SHARES for steps in functions.functions)


def _may_be_logit(clear: Reals) -> bool:
    """Whether numbers lie on either side of 0, or of a half if all are between 0 and 1. Of several numbers no."""
    if clear.shape[1] > 1:
        return False
    middle = 0.0 if float(clear.min()) < 0 or float(clear.max()) > 1 else 0.5
    return _SIDE <= float((clear > middle).mean()) <= 1 - _SIDE


def _has_one_length(outputs: Reals) -> bool:
    """Whether it is an embedding: of several numbers that change, with the same length for all samples."""
    if outputs.shape[1] < 2 or len(outputs) < 2:
        return False
    lengths = np.linalg.norm(outputs, axis=1)
    middle = float(np.median(lengths))
    chosen = float((np.abs(outputs).max(axis=1) > _ONE * middle).mean())
    return middle > 0 and bool((np.abs(lengths - middle) <= _UNIT * middle).all()) and chosen < 1 - _COPIED


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


def losses(program: Program, reference: Reference) -> Losses:
    """Measures the losses of a program, layer by layer, on some of the samples."""
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
        node_wires = wires(node)
        expected = real[:, node_wires]
        error = seen[:, node_wires] / graph.scale[node_wires] + graph.offset[node_wires] - expected
        before = errors.get(node.origin, (0.0, 0.0))
        errors[node.origin] = (before[0] + float(np.square(error).sum()), before[1] + _spread(expected))
    outside = float((np.abs(seen[:, :-1][:, read]) > _QUARTER).any(axis=1).mean())
    relative = {name: math.sqrt(error / spread) if spread > 0 else 0.0 for name, (error, spread) in errors.items()}
    return Losses(relative, outside, wilson(outside, len(some), _CONFIDENCE))


def _spread(values: Reals) -> float:
    return float(np.square(values - values.mean()).sum())
