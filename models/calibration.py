"""Ranges that calibration data showed, small enough to travel with a model: what `cloakwork train` writes beside an ONNX file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.fhe_core.errors import SerializationError
from cloakwork.models import fields as typed
from cloakwork.models.arrays import Indices, Reals, real_numbers
from cloakwork.models.errors import CompileError, ShapeError
from cloakwork.models.graph.ir import Graph, Linear, Lookup, places, wires
from cloakwork.models.graph.schedule import LookUp, schedule
from cloakwork.models.graph.steps import apply_steps
from cloakwork.models.runtime.interpreter import samples_at_once, wire_values
from cloakwork.models.runtime.machines.clear import Clear
from cloakwork.models.runtime.machines.machine import execute_graph

# Estimates of where a row's values end beyond a few hundred samples: tails fitted beyond a high threshold.
#
# The excesses over a threshold are taken as generalised Pareto, fitted by their mean and variance.
#
# Source: [HW87] method of moments. Ours: the shape is bounded, and drawn to an exponential tail where values are few.

KEPT: Final = 64  # largest and least values of a row that are kept
BEYOND: Final = 1e-4  # of the values, that may lie beyond the end of a range
_SHARE = 0.1  # of the values that count as a tail at most
_FEWEST = 8  # values that make a tail
_SHORT = 0.25  # of the range, added to extremes where there are too few values to fit a tail
_SHAPES = (-0.5, 0.25)
_PRIOR = 60  # values that an exponential tail counts as, which few values are drawn to


def largest(values: Reals) -> Reals:
    """Returns the KEPT largest of each column of values [samples, R], in descending order [at most KEPT, R]."""
    kept = min(KEPT, len(values))
    top = values if kept == len(values) else np.partition(values, len(values) - kept, axis=0)[-kept:]
    return np.asarray(-np.sort(-top, axis=0))


def tail_end(top: Reals, count: int, width: Reals) -> Reals:
    """Returns [R]: what a value exceeds with a probability of BEYOND.

    Args:
        top: [kept, R], the largest values in descending order, of `count`.
        width: [R], of the range that was seen.
    """
    size = min(len(top) - 1, int(_SHARE * count))
    if size < _FEWEST:
        return np.asarray(top[0] + _SHORT * width)
    threshold = top[size]
    excess = top[:size] - threshold
    mean, variance = excess.mean(axis=0), excess.var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shape = np.clip(np.where(variance > 0, 0.5 * (1 - mean**2 / variance), 0.0), *_SHAPES)
    shape = shape * size / (size + _PRIOR)
    shape = np.where(np.abs(shape) < 1e-3, 1e-3, shape)
    ratio = size / count / BEYOND
    end = threshold + mean * (1 - shape) * (ratio**shape - 1) / shape
    return np.asarray(np.maximum(end, top[0]) if count * BEYOND < 1 else end)


_VERSION = 1
_DIGITS = 6


@dataclass(frozen=True, eq=False)
class Calibration:
    """Least and largest values: of the input, and of every row of weights [blocks, rows] over samples and positions, node by node."""

    input_range: tuple[float, float]
    rows: tuple[tuple[Reals, Reals], ...]
    reach: tuple[tuple[Reals, Reals], ...] | None = None  # like `rows`: ends of fitted tails (models/calibration.py)
    inputs: tuple[tuple[float, float], ...] | None = None  # the range of each of several inputs

    def check(self, graph: Graph) -> None:
        """Raises CompileError when it was taken from another model, or from this one before the passes changed."""
        expected = [node.bias.shape for node in graph.linears]
        if [low.shape for low, _ in self.rows] != expected:
            raise CompileError(
                f"samples: expected ranges of {len(expected)} linear layers of shapes {expected}, got {len(self.rows)} of shapes "
                f"{[low.shape for low, _ in self.rows]}; it belongs to another model: record them again"
            )

    def on(self, before: Graph, after: Graph) -> Calibration:
        """Returns the same for a graph of the same layers, whose blocks a pass has split."""

        def split(seen: tuple[tuple[Reals, Reals], ...]) -> tuple[tuple[Reals, Reals], ...]:
            return tuple((low[blocks], high[blocks]) for (low, high), blocks in zip(seen, old_blocks, strict=True))

        self.check(before)
        old_blocks = []
        for old, new in zip(before.linears, after.linears, strict=True):
            blocks = np.zeros(len(new.weights), dtype=np.int64)
            blocks[new.block] = old.block
            old_blocks.append(blocks)
        return replace(self, rows=split(self.rows), reach=None if self.reach is None else split(self.reach))

    def to_json(self) -> str:
        fields = {
            "cloakwork_calibration": _VERSION,
            "input_range": list(self.input_range),
            "rows": [{"low": _rounded(low), "high": _rounded(high)} for low, high in self.rows],
            **({} if self.reach is None else {"reach": [[_rounded(low), _rounded(high)] for low, high in self.reach]}),
            **({} if self.inputs is None else {"inputs": [list(ends) for ends in self.inputs]}),
        }
        return json.dumps(fields, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibration:
        """Raises SerializationError for anything that `to_json` does not write."""
        try:
            fields = typed.parsed_object(text)
            if fields["cloakwork_calibration"] != _VERSION:
                raise ValueError("its version is another")
            low, high = (typed.real(value) for value in typed.entries(fields["input_range"]))
            rows = tuple((_matrix(row["low"]), _matrix(row["high"])) for row in typed.entries(fields["rows"]))
            reach = None
            if "reach" in fields:
                pairs = [typed.entries(ends) for ends in typed.entries(fields["reach"])]
                if any(len(pair) != 2 for pair in pairs):
                    raise ValueError("tails have two ends")
                reach = tuple((_matrix(low_end), _matrix(high_end)) for low_end, high_end in pairs)
                if [a.shape for a, _ in reach] != [a.shape for a, _ in rows]:
                    raise ValueError("tails are of other rows")
            inputs = _ranges(fields["inputs"]) if "inputs" in fields else None
            if not (low <= high and all(a.shape == b.shape and (a <= b).all() for a, b in (*rows, *(reach or ())))):
                raise ValueError("a range is not one")
        except (KeyError, TypeError, ValueError) as error:
            raise SerializationError(
                f"samples: expected version {_VERSION} of its JSON; record them again ({error})"
            ) from error
        return cls((low, high), rows, reach, inputs)


def observe(graph: Graph, samples: ArrayLike) -> Calibration:
    """Runs samples [samples, ..] through the graph in clear."""
    array, size = real_numbers(samples), samples_at_once(graph)
    if array.ndim == 0 or len(array) == 0:
        raise ShapeError("samples: expected at least one sample, got none; pass a few hundred typical inputs")
    low, high = np.full(graph.input.size, math.inf), np.full(graph.input.size, -math.inf)
    rows = [_Rows(node) for node in graph.linears]
    for start in range(0, len(array), size):
        values = wire_values(graph, array[start : start + size])
        if not np.isfinite(values).all():
            raise CompileError(
                "samples: the model gives values that are not finite; check the data and the model's functions"
            )
        inputs = values[:, wires(graph.input)]
        low, high = np.minimum(low, inputs.min(axis=0)), np.maximum(high, inputs.max(axis=0))
        for each in rows:
            each.add(values)
    ends = tuple((float(low[place].min()), float(high[place].max())) for place in places(graph.inputs))
    return Calibration(
        (float(low.min()), float(high.max())),
        tuple(each.extremes() for each in rows),
        reach=tuple(each.reach() for each in rows),
        inputs=ends or None,
    )


class _Rows:
    """Rows of one linear node: extremes and tails of every row, over samples and over the positions that share a block."""

    def __init__(self, node: Linear) -> None:
        self._node = node
        self._blocks = np.unique(node.block)
        self._top: dict[int, Reals] = {}  # [kept, R] of each block
        self._bottom: dict[int, Reals] = {}  # negated
        self._count: dict[int, int] = dict.fromkeys(self._blocks.tolist(), 0)

    def add(self, values: Reals) -> None:
        seen = values[:, wires(self._node)].reshape(len(values), len(self._node.gather), -1)
        for block in self._blocks.tolist():
            block_values = seen[:, self._node.block == block].reshape(-1, seen.shape[2])
            self._count[block] += len(block_values)
            for kept, numbers in ((self._top, block_values), (self._bottom, -block_values)):
                kept[block] = largest(np.concatenate([kept[block], numbers]) if block in kept else numbers)

    def extremes(self) -> tuple[Reals, Reals]:
        """Returns [G, R]; a block without a position has range 0."""
        low, high = np.zeros_like(self._node.bias), np.zeros_like(self._node.bias)
        for block in self._blocks.tolist():
            low[block], high[block] = -self._bottom[block][0], self._top[block][0]
        return low, high

    def reach(self) -> tuple[Reals, Reals]:
        low, high = self.extremes()
        width = high - low
        for block in self._blocks.tolist():
            count = self._count[block]
            low[block] = -tail_end(self._bottom[block], count, width[block])
            high[block] = tail_end(self._top[block], count, width[block])
        return low, np.maximum(low, high)


def _rounded(values: Reals) -> list[list[float]]:
    """Six digits: far finer than the margin that the compiler adds."""
    return [[float(f"{value:.{_DIGITS}g}") for value in row] for row in values]


def _ranges(fields: Any) -> tuple[tuple[float, float], ...]:
    ranges = [tuple(typed.real(end) for end in typed.entries(ends, 2)) for ends in typed.entries(fields)]
    if any(len(ends) != 2 or ends[0] > ends[1] for ends in ranges):
        raise ValueError("a range of an input is none")
    return tuple((ends[0], ends[1]) for ends in ranges)


def _matrix(rows: Any) -> Reals:
    matrix = typed.reals(rows)
    if matrix.ndim != 2:
        raise ValueError("expected finite numbers [blocks, rows]")
    return matrix


# Ranges of answers for inputs far from all samples, which clients let through up to the ends of the input's range.
#
# Terms of an answer that have to do with each other reach their ends together there: the squares of a reconstruction error do for whatever the
# autoencoder has not seen, far beyond the answers to any calibration sample. Values of look-ups are those of their tables, beyond ranges too.

_SEED: Final = 20261128
_COUNT: Final = 32  # inputs of each kind
_MIXED: Final = 200  # of each kind
_AT_ENDS: Final = 0.2  # of the numbers
_TIMES: Final = (1.5, 2.0, 4.0)  # as far from the mean as samples are


def far_answers(graph: Graph, samples: Reals | None) -> tuple[Reals, Reals]:
    """Returns least and largest values [numbers of the output]. Args: graph: with ranges, levelled; samples: [samples, ..], None: only corners."""
    machine = _Tables(graph, far_inputs(graph, samples))
    answers = execute_graph(schedule(graph), machine).reshape(-1, graph.output.size)
    return answers.min(axis=0), answers.max(axis=0)


def far_inputs(graph: Graph, samples: Reals | None) -> Reals:
    """Returns [inputs, numbers]: every number at either end of the range, by chance; samples moved away from their mean, as far as the range lets
    them."""
    assert graph.lower is not None and graph.upper is not None
    input_wires, random = wires(graph.input), np.random.default_rng(_SEED)
    low, high = graph.lower[input_wires], graph.upper[input_wires]
    inputs = [np.where(random.random((_COUNT, len(low))) < 0.5, low, high)]
    if samples is not None:
        rows = samples.reshape(len(samples), -1)
        middle = rows.mean(axis=0)
        for times in _TIMES:
            chosen = rows[random.permutation(len(rows))[:_COUNT]]
            inputs.append(np.clip(middle + times * (chosen - middle), low, high))
    return np.concatenate(inputs)


def mixed_inputs(samples: Reals) -> Reals:
    """Returns [inputs, ..]: numbers of several samples together; and samples with some numbers at either end of what that number has. Each number
    is one of the samples', and what they are together is unlike any."""
    random = np.random.default_rng(_SEED)
    rows = samples[random.permutation(len(samples))[:_MIXED]]
    ends = np.where(random.random(rows.shape) < 0.5, samples.min(axis=0), samples.max(axis=0))
    moved = np.where(random.random(rows.shape) < _AT_ENDS, ends, rows)
    return np.concatenate([random.permuted(rows, axis=0), moved])


class _Tables(Clear):
    """Values of a graph with ranges as its tables have them: a table holds its range and continues with the opposite sign, about the middle of the
    values at both ends (passes/equalise_lookups.py)."""

    def look_up(self, step: LookUp) -> None:
        for node in step.nodes:
            self.wires[:, wires(node)] = _read(self._graph, node, self.wires[:, node.gather])


def _read(graph: Graph, node: Lookup, x: Reals) -> Reals:
    """Returns [inputs, look-ups]"""
    assert graph.lower is not None and graph.upper is not None and node.shifts is None
    low, high = (np.append(ends, 0.0)[node.gather] for ends in (graph.lower, graph.upper))
    middle, width = (low + high) / 2, np.where(high > low, high - low, 1.0)
    turns = (x - middle) / (2 * width)
    turns -= np.rint(turns)
    beyond = np.abs(turns) > 0.25
    turns -= np.where(beyond, np.sign(turns) / 2, 0.0)
    inside = np.clip(middle + 2 * width * turns, low, high)
    values, first, last = (_values(node, each) for each in (inside, low[None], high[None]))
    return np.asarray(np.where(beyond, first + last - values, values))


def _values(node: Lookup, x: Reals) -> Reals:
    function: Indices = node.function
    return np.asarray(apply_steps(node.steps, x, function))
