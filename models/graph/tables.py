"""The look-ups of a level as engine tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.session.lookup_tables import LookupTables
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.ir import Graph, Lookup, wires
from cloakwork.models.graph.schedule import Schedule
from cloakwork.models.graph.steps import apply_steps

PhaseFunction = Callable[[Reals], Reals]
_WHOLE = 1e-6


@dataclass(frozen=True, eq=False)
class BatchTables:
    """Tables of a batch of look-ups."""

    tables: LookupTables  # of its level, the distinct ones
    index: Indices  # [E], which of them each look-up uses
    coefficients: Indices | None  # [J] to extract for its shifts


def batch_tables(graph: Graph, schedule: Schedule, params: ParameterSet) -> dict[int, BatchTables]:
    """Builds tables by the value that a `LookUp` writes."""
    tables_by_value: dict[int, BatchTables] = {}
    for level in schedule.levels:
        tables, index = _level_tables(graph, [node for step in level for node in step.nodes], params)
        for step in level:
            coefficients = shift_coefficients(graph, step.nodes[0], params)
            tables_by_value[step.writes] = BatchTables(tables, index[step.elements], coefficients)
    return tables_by_value


def _level_tables(graph: Graph, lookups: Sequence[Lookup], params: ParameterSet) -> tuple[LookupTables, Indices]:
    """Returns one table per distinct function of phases, and which of them each look-up uses, in order."""
    functions: list[PhaseFunction] = []
    index: list[Indices] = []
    known: dict[
        tuple[int, bytes], int
    ] = {}  # by the steps, which parts of a node share (graph/schedule.py), and the row of facts
    for node in lookups:
        rows, chosen = function_rows(graph, node)
        place = np.empty(len(rows), dtype=np.int64)
        for i, row in enumerate(rows):
            place[i] = known.setdefault((id(node.steps), row.tobytes()), len(functions))
            if place[i] == len(functions):
                functions.append(_phase_function(node, row))
        index.append(place[chosen])
    return LookupTables.of_activations(params, functions), np.concatenate(index)


def shift_coefficients(graph: Graph, node: Lookup, params: ParameterSet) -> Indices | None:
    """Returns the coefficients [J] to extract for a look-up's shifts: a shift of the argument by 1 / (scale 2 nu N) is one coefficient."""
    if node.shifts is None:
        return None
    assert graph.scale is not None
    steps = node.shifts * float(graph.scale[node.gather[0]]) * 2 * params.table_size
    coefficients: Indices = np.rint(steps).astype(np.int64)
    if np.abs(steps - coefficients).max() > _WHOLE or int(coefficients.max()) >= params.table_size:
        raise CompileError(
            f"look-up '{node.origin}': its shifts are not whole coefficients of parameter set '{params.name}'; compile the model again"
        )
    return coefficients


def phase_functions(graph: Graph, node: Lookup) -> tuple[list[PhaseFunction], Indices]:
    """Returns functions phase -> value -> f(value) -> phase, and which of them each look-up uses; values beyond the calibrated range count as its
    end."""
    rows, index = function_rows(graph, node)
    return [_phase_function(node, row) for row in rows], index


def function_rows(graph: Graph, node: Lookup) -> tuple[Reals, Indices]:
    """Returns the distinct functions of phases as rows: the function of values, then scale, offset and range of what is read, and the result's
    scale."""
    assert graph.scale is not None and graph.offset is not None and graph.lower is not None and graph.upper is not None
    facts = [graph.scale, graph.offset, graph.lower, graph.upper]
    result_scale = graph.scale[wires(node)].reshape(len(node.gather), -1)[:, 0]
    rows = np.stack([node.function.astype(np.float64), *(fact[node.gather] for fact in facts), result_scale], axis=1)
    distinct, index = np.unique(rows, axis=0, return_inverse=True)
    return distinct, index.reshape(-1).astype(np.int64)


def _phase_function(node: Lookup, row: Reals) -> PhaseFunction:
    number, scale, offset, lower, upper, scale_out = (float(v) for v in row)

    def function(phase: Reals) -> Reals:
        x = np.clip(phase / scale + offset, lower, upper)
        y = apply_steps(node.steps, x, np.full(x.shape, int(number)))
        turns = y * scale_out
        wrapped: Reals = turns - np.rint(turns)  # integer weights act on it: whole turns do not matter
        return wrapped

    return function
