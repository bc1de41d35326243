"""The program of wires that are functions of one wire: steps of a look-up that read results of steps before (models/graph/steps.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Linear, Lookup, Node, Product
from cloakwork.models.graph.steps import Step
from cloakwork.models.passes.wire_functions import CONSTANT, WireFunctions

_ARGUMENT: Final = -1  # as an operand: what the program is a function of
_COMMUTATIVE: Final = ("Max", "Min", "Mul")


@dataclass(frozen=True, eq=False)
class _Column:
    """One wire of each of n programs that do the same, or one constant where `wire` is None."""

    wire: Indices | None
    operands: tuple[int, ...]  # columns before, or _ARGUMENT
    value: Reals | None = None


class WirePrograms:
    """Programs of wires [n] of one pattern, of which each is a function of its own `base`; subexpressions once."""

    def __init__(self, functions: WireFunctions, wire: Indices) -> None:
        self._functions = functions
        self._columns: list[_Column] = []
        self.wire, self.base = wire, functions.own_source[wire]
        self._collect(wire)
        self._begin_at_linear_node()

    def atoms(self) -> list[Indices]:
        """Returns the wires [n] each that the last ones are linear combinations of, and which take a bootstrap: look-ups and products."""
        functions, atoms, waiting = self._functions, [], [len(self._columns) - 1]
        seen = set(waiting)
        while waiting:
            column = self._columns[waiting.pop()]
            if column.wire is None:
                continue
            if not functions.is_linear[column.wire[0]]:
                atoms.append(column.wire)
                continue
            fresh = {operand for operand in column.operands if operand != _ARGUMENT} - seen
            seen |= fresh
            waiting += sorted(fresh)
        return atoms

    def _begin_at_linear_node(self) -> None:
        """Leaves to a linear node what it computes of the source alone: `base` becomes the last of its wires that all the rest is a function of."""
        least = len(self._columns)
        for number in range(len(self._columns) - 1, 0, -1):
            least = min(least, *self._columns[number].operands, number)
            before = self._columns[number - 1]
            if least >= number - 1 and before.wire is not None and self._is_affine_row(before.wire):
                self.base = before.wire
                rest = self._columns[number:]
                self._columns = [
                    _Column(c.wire, tuple(max(o - number, _ARGUMENT) for o in c.operands), c.value) for c in rest
                ]
                return

    def _is_affine_row(self, wire: Indices) -> bool:
        functions = self._functions
        return isinstance(self._node(wire), Linear) and bool(
            (functions.affine[wire] == functions.own_source[wire]).all()
        )

    def steps(self) -> tuple[tuple[Step, ...], Indices]:
        """Returns the steps, with one entry in their parameters for each distinct function, and the function [n] of each program."""
        parameters = [self._parameters(column) for column in self._columns]
        flat = np.concatenate([np.zeros((len(self.base), 1)), *parameters], axis=1)
        distinct, function = np.unique(flat, axis=0, return_inverse=True)
        steps: list[Step] = []
        place = {_ARGUMENT: 0}  # the result [0, 1, ..] of each column
        start = 1
        for number, (column, column_parameters) in enumerate(zip(self._columns, parameters, strict=True)):
            chosen = distinct[:, start : start + column_parameters.shape[1]]
            start += column_parameters.shape[1]
            steps += self._steps_of(column, chosen, [place[operand] for operand in self._operands(column)], len(steps))
            place[number] = len(steps)
        return tuple(steps), function.reshape(-1).astype(np.int64)

    # --- columns ---

    def _collect(self, last: Indices) -> None:
        """Every wire after its operands."""
        functions, number = self._functions, dict[bytes, int]()
        waiting = [last]
        while waiting:
            wire = waiting[-1]
            if wire.tobytes() in number:
                waiting.pop()
                continue
            reads = functions.reads(wire)
            missing = [r for r in reads if self._is_inner(r) and r.tobytes() not in number]
            if missing:
                waiting += missing[::-1]
                continue
            operands = tuple(self._operand(read, number) for read in reads)
            number[wire.tobytes()] = len(self._columns)
            self._columns.append(_Column(wire, operands))
            waiting.pop()

    def _is_inner(self, read: Indices) -> bool:
        return int(self._functions.source[read[0]]) not in (CONSTANT, int(read[0]))

    def _operand(self, read: Indices, number: dict[bytes, int]) -> int:
        if self._is_inner(read):
            return number[read.tobytes()]
        if self._functions.source[read[0]] != CONSTANT:
            return _ARGUMENT
        self._columns.append(_Column(None, (), self._functions.offset[read]))
        return len(self._columns) - 1

    # --- steps ---

    def _parameters(self, column: _Column) -> Reals:
        """Returns [n, numbers] of what distinguishes the functions of a column."""
        if column.wire is None:
            assert column.value is not None
            return column.value[:, None]
        node = self._node(column.wire)
        if isinstance(node, Lookup):
            return node.function[column.wire - node.first_wire, None].astype(np.float64)
        if isinstance(node, Product):
            return np.zeros((len(column.wire), 0))
        weights, bias = self._functions.linear_row(column.wire)
        operands = np.array(column.operands)
        added = [weights[:, operands == operand].sum(axis=1) for operand in sorted(set(column.operands))]
        return np.stack([*added, bias], axis=1)

    def _operands(self, column: _Column) -> Sequence[int]:
        """Returns a sum reads every operand once; those that may change places are in order, so that what is equal is written the same."""
        node = None if column.wire is None else self._node(column.wire)
        if isinstance(node, Linear):
            return sorted(set(column.operands))
        return (
            sorted(column.operands) if isinstance(node, Product) and node.operator in _COMMUTATIVE else column.operands
        )

    def _node(self, wire: Indices) -> Node:
        return self._functions.graph.nodes[int(self._functions.owner[wire[0]])]

    def _steps_of(self, column: _Column, chosen: Reals, operands: Sequence[int], done: int) -> list[Step]:
        """Args: chosen [functions, numbers]; operands: the results that the column reads; done: steps before."""
        back = tuple(done + 1 - operand for operand in operands)
        if column.wire is None:
            return [Step("Affine", (np.zeros(len(chosen)), chosen[:, 0].copy()), (done + 1,))]
        node = self._node(column.wire)
        if isinstance(node, Product):
            return [Step(node.operator, (), back)]
        if isinstance(node, Lookup):
            return _moved([step.select(chosen[:, 0].astype(np.int64)) for step in node.steps], back[0])
        numbers = tuple(np.ascontiguousarray(parameter) for parameter in chosen.T)
        return [Step("Affine" if len(operands) == 1 else "Sum", numbers, back)]


def _moved(steps: list[Step], back: int) -> list[Step]:
    """Returns steps whose argument lies `back` results before the first, instead of one."""
    return [
        Step(step.operator, step.parameters, tuple(q if q <= i else q + back - 1 for q in step.reads))
        for i, step in enumerate(steps)
    ]
