"""The graph between import and execution, frozen, with an executable specification (`check`).

Every number that is computed per sample is a *wire* with a number of its own; wire -1 is the constant zero. A node owns a contiguous range
of wires and reads others by their numbers, so that reshaping, transposing, slicing, padding and concatenating are index arithmetic at import
and do not exist here. Four nodes are left:

    Input    the encrypted tensor
    Linear   y[p, r] = sum_k weights[block[p], r, k] * x[gather[p, k]] + bias[block[p], r]
    Lookup   y[e] = f[function[e]](x[gather[e]]), or with shifts y[e J + j] = f[function[e]](x[gather[e]] + shifts[j]) from one rotation
    Product  y[e] = operator(x[gather[e, 0]], x[gather[e, 1]], ..) of imported graphs; passes make look-ups of it

A matrix product is a Linear of one position, a convolution one position per output pixel and group; an addition is a Linear of width 2.

Passes turn a real graph into a quantised one: `scale` and `offset` say how the wires are encrypted, phase = (value - offset) * scale, and the
weights are integers that act on phases, y = (sum_k weights * phase) / scale + bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.functions import FUNCTIONS
from cloakwork.models.graph.last_steps import LAST_STEPS, LastStep
from cloakwork.models.graph.steps import Step, broken_rule

ZERO_WIRE = -1
TABLES: Final = ("Search", "Table")  # of indices on a circle; of the first, entries nearby are right as well
EXACT_STEPS: Final = ("Snap", *TABLES)  # first of a look-up
PRODUCTS: Final = {"Div": 2, "Max": 2, "Min": 2, "Mul": 2, "Where": 3}  # with their operands


@dataclass(frozen=True, eq=False)
class Input:
    """The tensor that the client encrypts, in C order; `shape` without the batch dimension."""

    first_wire: int
    shape: tuple[int, ...]
    origin: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def gather(self) -> Indices:
        return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Linear:
    """P positions of R rows over K wires; wire first_wire + p R + r holds y[p, r]."""

    first_wire: int
    gather: Indices  # [P, K]
    block: Indices  # [P], which weights a position uses
    weights: NDArray[Any]  # [G, R, K], float64, or int64 when quantised
    bias: Reals  # [G, R]
    origin: str

    @property
    def size(self) -> int:
        return len(self.gather) * len(self.bias[0])


@dataclass(frozen=True, eq=False)
class Lookup:
    """A function of one number, made of steps; their parameters hold one entry per distinct function."""

    first_wire: int
    gather: Indices  # [E]
    steps: tuple[Step, ...]
    function: Indices  # [E]
    origin: str
    shifts: Indices | None = None  # [J], at least 0; None: one output, unshifted

    @property
    def size(self) -> int:
        return len(self.gather) * (1 if self.shifts is None else len(self.shifts))

    @property
    def bootstraps(self) -> int:
        """One rotation gives all shifted outputs."""
        return len(self.gather)

    @property
    def is_exact(self) -> bool:
        """Whether it takes its argument for the nearest of finitely many values, so that little noise changes nothing."""
        return bool(self.steps) and self.steps[0].operator in EXACT_STEPS

    @property
    def is_table(self) -> bool:
        """Whether it takes its argument for one of the numbers of a circle, all of it."""
        return bool(self.steps) and self.steps[0].operator in TABLES

    @property
    def spacing(self) -> Reals:
        """[E], of an exact look-up: the distance between two values that each argument may have; twice what a search tolerates."""
        assert self.is_exact
        first = self.steps[0]
        if first.operator == "Search":
            return 2 * first.parameters[1][self.function]
        return np.ones(len(self.function)) if self.is_table else first.parameters[0][self.function]


@dataclass(frozen=True, eq=False)
class Product:
    """A product, quotient, choice or extreme of several wires, of an imported graph: passes/fuse_functions.py makes one look-up of it where all
    operands are functions of one wire, passes/lower_products.py squares elsewhere."""

    first_wire: int
    gather: Indices  # [E, operands]
    operator: str  # one of PRODUCTS
    origin: str

    @property
    def size(self) -> int:
        return len(self.gather)


Node: TypeAlias = Input | Linear | Lookup | Product


@dataclass(frozen=True, eq=False)
class NamedTensor:
    """One of several inputs or outputs: a named tensor whose numbers follow, in C order, those of the parts before it."""

    name: str
    shape: tuple[int, ...]  # without the batch dimension
    client_steps: tuple[LastStep, ...] = ()  # of an output
    inner: bool = False  # of an output: whether layers with weights, which lead to other outputs, read it

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def places(parts: Sequence[NamedTensor]) -> list[slice]:
    """Returns where the numbers of each part lie in those of all."""
    ends = np.cumsum([part.size for part in parts]).tolist()
    return [slice(end - part.size, end) for part, end in zip(parts, ends, strict=True)]


@dataclass(frozen=True, eq=False)
class Graph:
    nodes: tuple[Node, ...]
    output: Indices  # wires, in the output's shape without the batch dimension; of several outputs one after the other [numbers]
    client_steps: tuple[LastStep, ...] = ()  # none where there are several outputs: they have their own
    lower: Reals | None = None  # [wires] of values, after bound_ranges
    upper: Reals | None = None
    scale: Reals | None = None  # [wires], after quantise_weights
    offset: Reals | None = None
    inputs: tuple[NamedTensor, ...] = ()  # of the input [numbers], where the model has several; not kept in files
    outputs: tuple[NamedTensor, ...] = ()  # likewise
    unused: tuple[str, ...] = ()  # inputs of the model that no output depends on

    @cached_property
    def wire_count(self) -> int:
        return max(node.first_wire + node.size for node in self.nodes)

    @property
    def input(self) -> Input:
        node = self.nodes[0]
        assert isinstance(node, Input)
        return node

    @property
    def linears(self) -> list[Linear]:
        return [node for node in self.nodes if isinstance(node, Linear)]

    @property
    def lookups(self) -> list[Lookup]:
        return [node for node in self.nodes if isinstance(node, Lookup)]

    @property
    def bootstraps(self) -> int:
        return sum(node.bootstraps for node in self.lookups)

    def owners(self) -> Indices:
        """Returns [wires + 1]: the position in `nodes` of each wire's node; -1 for unused wires and, last, for the zero wire. Read-only."""
        return self._owners

    @cached_property
    def _owners(self) -> Indices:
        owner = np.full(self.wire_count + 1, -1, dtype=np.int64)
        for position, node in enumerate(self.nodes):
            owner[wires(node)] = position
        owner.flags.writeable = False
        return owner


def wires(node: Node) -> slice:
    return slice(node.first_wire, node.first_wire + node.size)


def wire_numbers(node: Node) -> Indices:
    return np.arange(node.first_wire, node.first_wire + node.size, dtype=np.int64)


def phase_bias(graph: Graph, node: Linear) -> Reals:
    """Returns [G, R] of a quantised graph: the fraction of the torus that a row adds, (bias - offset) * scale; equal for all positions of a block."""
    assert graph.scale is not None and graph.offset is not None
    shape = (len(node.gather), node.weights.shape[1])
    scale, offset = np.ones_like(node.bias), np.zeros_like(node.bias)
    scale[node.block] = graph.scale[wires(node)].reshape(shape)
    offset[node.block] = graph.offset[wires(node)].reshape(shape)
    bias: Reals = (node.bias - offset) * scale
    return bias


def wrong_distance(graph: Graph, lookup: Lookup) -> Reals:
    """Returns [E], of an exact look-up of a quantised graph: the phase, a fraction of the torus, from a value to where the next one begins."""
    assert graph.scale is not None
    distance: Reals = lookup.spacing * graph.scale[lookup.gather] / 2
    return distance


def identity_renaming(graph: Graph) -> Indices:
    renaming = np.arange(graph.wire_count + 1, dtype=np.int64)
    renaming[-1] = ZERO_WIRE
    return renaming


def without_dead_nodes(graph: Graph) -> Graph:
    """Leaves out nodes that nothing reads; the input stays."""
    owner = graph.owners()
    alive = {0} | set(owner[graph.output.reshape(-1)].tolist())
    for position in range(len(graph.nodes) - 1, 0, -1):
        if position in alive:
            alive |= set(np.unique(owner[graph.nodes[position].gather]).tolist())
    return replace(graph, nodes=tuple(node for i, node in enumerate(graph.nodes) if i in alive))


# --- the specification ---------------------------------------------------------------------------------------------------------------


class NotFiniteError(AssertionError):
    """Numbers that have overflown: the only thing that `check` finds which no pass has to answer for."""


def check(graph: Graph) -> Graph:
    """Returns the graph, or raises AssertionError naming what a pass has broken."""
    inputs = [node for node in graph.nodes if isinstance(node, Input)]
    _demand(inputs == list(graph.nodes[:1]), "graph: has one input, which comes first")
    _demand(min(node.first_wire for node in graph.nodes) >= 0, "graph: numbers wires from 0")
    for facts in (graph.lower, graph.upper, graph.scale, graph.offset):
        if facts is not None:
            _demand(facts.shape == (graph.wire_count,), "graph: has one fact for each wire")
            if not np.isfinite(facts).all():
                raise NotFiniteError("graph: has finite facts")
    defined = np.zeros(graph.wire_count + 1, dtype=bool)
    defined[ZERO_WIRE] = True
    for node in graph.nodes:
        _require(node.size > 0, node, "owns wires")
        _require(not defined[wires(node)].any(), node, "owns wires of its own")
        _require(_reads(node.gather, defined), node, "reads wires computed before")
        if isinstance(node, Linear):
            _check_linear(node, quantised=graph.scale is not None)
        elif isinstance(node, Lookup):
            _check_lookup(node)
        elif isinstance(node, Product):
            operands = PRODUCTS.get(node.operator, -1)
            _require(
                node.gather.ndim == 2 and node.gather.shape[1] == operands, node, "has the operands of its operator"
            )
        defined[wires(node)] = True
    _demand(_reads(graph.output, defined), "output: reads wires that exist")
    _demand(all(isinstance(step, LAST_STEPS) for step in graph.client_steps), "client: has steps that exist")
    return graph


def _reads(gather: Indices, defined: NDArray[np.bool_]) -> bool:
    inside = (gather >= ZERO_WIRE) & (gather < len(defined) - 1)
    return bool(inside.all()) and bool(defined[gather].all())


def _check_linear(node: Linear, quantised: bool) -> None:
    _require(node.weights.ndim == 3 and node.gather.ndim == 2, node, "has weights [G, R, K] and gathers [P, K]")
    blocks, rows, width = node.weights.shape
    _require(
        node.gather.ndim == 2 and node.gather.shape[1] == width, node, "gathers as many wires as a row has weights"
    )
    _require(node.block.shape == node.gather.shape[:1], node, "has a block for each position")
    _require(0 <= int(node.block.min()) and int(node.block.max()) < blocks, node, "names blocks that exist")
    _require(node.bias.shape == (blocks, rows), node, "has a bias for each row")
    if not (np.isfinite(node.weights).all() and np.isfinite(node.bias).all()):
        raise NotFiniteError(f"Linear '{node.origin}': has finite weights")
    _require(not quantised or node.weights.dtype == np.int64, node, "has integer weights")


def _check_lookup(node: Lookup) -> None:
    _require(node.gather.ndim == 1 and node.function.shape == node.gather.shape, node, "has a function for each wire")
    _require(int(node.function.min()) >= 0, node, "numbers functions from 0")
    if node.shifts is not None:
        _require(node.shifts.ndim == 1 and len(node.shifts) > 0, node, "has shifts, where it has any")
        _require(int(node.shifts.min()) >= 0, node, "has shifts of at least 0")
    for step in node.steps:
        _require(step.operator in FUNCTIONS, node, f"has steps that exist, not '{step.operator}'")
        for parameter in step.parameters:
            _require(int(node.function.max()) < len(parameter), node, "names functions that exist")
        if step.operator == "Search":
            _require(len(step.parameters) == 2, node, "searches a table with a tolerance")
            tolerance = step.parameters[1]
            _require(bool(np.isfinite(tolerance).all() and (tolerance > 0).all()), node, "tolerates what is positive")
    broken = broken_rule(node.steps)
    _require(broken is None, node, str(broken))


def check_levelled(graph: Graph) -> Graph:
    """Checks a graph after separate_levels: look-ups read linears; linears read the input and look-ups; the output reads linears."""
    check(graph)
    kinds = np.array([type(node).__name__ for node in graph.nodes])
    owner = graph.owners()
    for node in graph.nodes[1:]:
        _require(not isinstance(node, Product), node, "is a look-up or a linear node")
        allowed = ("Input", "Lookup") if isinstance(node, Linear) else ("Linear",)
        sources = _kinds(kinds, owner, node.gather)
        _require(sources <= set(allowed), node, f"reads {' and '.join(allowed)} only, not {sources}")
    _demand(_kinds(kinds, owner, graph.output) == {"Linear"}, "output: reads linears only")
    return graph


def _kinds(kinds: NDArray[Any], owner: Indices, gather: Indices) -> set[str]:
    sources = np.unique(owner[gather[gather >= 0]])
    return set(kinds[sources].tolist())


def _demand(condition: bool, rule: str) -> None:
    """An assertion that stays under python -O: files are checked with it too."""
    if not condition:
        raise AssertionError(rule)


def _require(condition: bool, node: Node, rule: str) -> None:
    _demand(condition, f"{type(node).__name__} '{node.origin}': {rule}")


def source_nodes(graph: Graph, gather: Indices, owner: Indices | None = None) -> Sequence[int]:
    """Returns positions in `nodes` of what a gather reads."""
    owner = graph.owners() if owner is None else owner
    result: list[int] = np.unique(owner[gather[gather >= 0]]).tolist()
    return result
