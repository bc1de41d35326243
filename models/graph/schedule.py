"""A graph lowered, once, to what a machine does for it in order: the schedule. models/runtime/machines/ carries it out, in clear and encrypted.

Between instructions lie *values*, [samples, columns] of whatever a machine computes with, numbered as they are written:

    Extract    writes value 0, the numbers of the input; only those that are read, where they are few
    Multiply   writes a linear node: at each of its positions a matrix of weights times what the position gathers
    LookUp     writes a batch of look-ups that run at once
    Operate    writes a Product, in graphs in the making; programs have none
    Drop       frees values that are not read again

Each value is written once, before it is read, and dropped after its last reader; what the output reads stays. Look-ups run level by level,
as early as they can: all of a level in one batch, but that those with shifts, which take several coefficients out of one rotation, have
batches of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices
from cloakwork.models.graph.ir import ZERO_WIRE, Graph, Input, Linear, Lookup, Product, wire_numbers, wires

# A level in tiles: some positions of its linear nodes, and the look-ups that read these, at a time.
#
# Of results of linear nodes, which look-ups read and nobody else, a machine then holds those of a tile alone; and positions that lie near each other
# read what lies near each other, so that the tiles of the level before are free as soon as the last of their neighbours is done.

Computed: TypeAlias = Sequence[Linear | Product]


def tiles(computed: Computed, looked_up: Sequence[Lookup], most: int) -> Iterator[tuple[Computed, Sequence[Lookup]]]:
    """Yields what is computed before look-ups and the look-ups, in tiles of about `most` look-ups; levels with shifts, with products in them, or with
    linear nodes on linear nodes, as one.

    Nodes keep their wires: those of a tile are some positions of a linear node, some rows where it has one position, some elements of a look-up.
    """
    linears = [node for node in computed if isinstance(node, Linear)]
    count = -(-sum(len(node.gather) for node in looked_up) // max(1, most))
    whole = len(linears) < len(computed) or _read_each_other(linears)
    if count < 2 or whole or any(node.shifts is not None for node in looked_up):
        yield computed, looked_up
        return
    end = max([*map(_end, linears), *map(_end, looked_up)])
    tile = np.full(1 + end, count - 1, dtype=np.int64)
    parts: list[list[Linear]] = [[] for _ in range(count)]
    for node in linears:
        for number, part in _cut(node, count):
            parts[number].append(part)
            tile[wires(part)] = number
    for number, part_of_linears in enumerate(parts):
        yield part_of_linears, [part for node in looked_up for part in _elements(node, tile[node.gather] == number)]


def _read_each_other(linears: Sequence[Linear]) -> bool:
    is_result = np.zeros(1 + max(map(_end, linears), default=0), dtype=bool)
    for node in linears:
        is_result[wires(node)] = True
    return any(bool(is_result[node.gather].any()) for node in linears)


def _end(node: Linear | Lookup) -> int:
    """Behind all wires that it has or reads."""
    return max(node.first_wire + node.size, int(node.gather.max()) + 1)


def _cut(node: Linear, count: int) -> Iterator[tuple[int, Linear]]:
    """Yields the parts of a node, and in which tile each is."""
    positions, rows = len(node.gather), node.weights.shape[1]
    if positions == 1:
        for number, (first, end) in _bounds(rows, count):
            weights, bias = node.weights[:, first:end], node.bias[:, first:end]
            yield number, replace(node, first_wire=node.first_wire + first, weights=weights, bias=bias)
        return
    for number, (first, end) in _bounds(positions, count):
        gather, block = node.gather[first:end], node.block[first:end]
        yield number, replace(node, first_wire=node.first_wire + first * rows, gather=gather, block=block)


def _bounds(size: int, count: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yields first and end of each part of `count` things, without the empty ones, by its tile."""
    for number in range(count):
        first, end = size * number // count, size * (number + 1) // count
        if first < end:
            yield number, (first, end)


def _elements(node: Lookup, chosen: NDArray[np.bool_]) -> list[Lookup]:
    """Returns look-ups of the elements that are chosen, one for each run of them: a node has wires that follow each other."""
    inside: Indices = np.flatnonzero(chosen)
    if not len(inside):
        return []
    runs = np.split(inside, np.flatnonzero(np.diff(inside) > 1) + 1)
    return [
        replace(
            node,
            first_wire=node.first_wire + int(run[0]),
            gather=node.gather[run[0] : run[-1] + 1],
            function=node.function[run[0] : run[-1] + 1],
        )
        for run in runs
    ]


INPUT: Final = 0  # the value of the graph's input
FEW: Final = 2  # one of so many numbers of the input is read, or less: then only those are extracted ..
_MANY: Final = 1 << 10  # .. of inputs of more numbers than this: smaller ones are a ciphertext or two


class Layout:
    """The value and column that hold each wire: [wires + 1] each, -1 for wires without a value and, last, for the zero wire."""

    def __init__(self, wire_count: int) -> None:
        self.value: Indices = np.full(wire_count + 1, -1, dtype=np.int64)
        self.column: Indices = np.full(wire_count + 1, -1, dtype=np.int64)
        self.widths: list[int] = []  # by value

    def place(self, nodes: Sequence[Linear | Lookup | Product]) -> int:
        """Returns the number of a new value that holds the wires of these nodes, one node after the other."""
        return self.place_wires(np.concatenate([wire_numbers(node) for node in nodes]))

    def place_wires(self, chosen: Indices) -> int:
        """Returns the number of a new value that holds these wires."""
        value = len(self.widths)
        self.value[chosen] = value
        self.column[chosen] = np.arange(len(chosen))
        self.widths.append(len(chosen))
        return value


@dataclass(frozen=True, eq=False)
class Gather:
    """The wires that an instruction reads."""

    wires: Indices  # [..], -1: the zero wire
    layout: Layout = field(repr=False)

    @cached_property
    def values(self) -> tuple[int, ...]:
        """The values that hold these wires, each once, in ascending order; none where all are the zero wire."""
        read = np.zeros(len(self.layout.widths) + 1, dtype=bool)
        read[self.layout.value[self.wires]] = True
        return tuple(np.flatnonzero(read[:-1]).tolist())

    @cached_property
    def columns(self) -> NDArray[np.int32]:
        """[..]: where the wires are when `values` lie side by side; -1: the zero wire."""
        first = np.zeros(len(self.layout.widths) + 1, dtype=np.int64)
        held = list(self.values)
        first[held] = np.cumsum([0, *(self.layout.widths[value] for value in held)])[:-1]
        columns = self.layout.column[self.wires] + first[self.layout.value[self.wires]]
        return np.where(self.wires == ZERO_WIRE, -1, columns).astype(np.int32)

    @cached_property
    def distinct(self) -> tuple[Indices, Indices]:
        """Every wire once, -1 first where it is read, and [..] which of them each is."""
        read, index = np.unique(self.wires, return_inverse=True)
        return read, index.reshape(self.wires.shape)

    @property
    def width(self) -> int:
        """Columns of `values` side by side."""
        return sum(self.layout.widths[value] for value in self.values)

    @cached_property
    def is_everything(self) -> bool:
        """All columns of its values, in order."""
        return np.array_equal(self.columns, np.arange(self.width))

    @property
    def copied(self) -> int:
        """Columns that are written so that these wires, a vector, lie side by side."""
        return self.width * (len(self.values) != 1) + (0 if self.is_everything else len(self.wires))

    @property
    def flat(self) -> Gather:
        """The same as a vector of wires."""
        return self if self.wires.ndim == 1 else Gather(self.wires.reshape(-1), self.layout)


# --- instructions ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Extract:
    node: Input
    columns: Indices  # of the input, ascending: what value 0 holds
    writes: int

    @property
    def is_everything(self) -> bool:
        return len(self.columns) == self.node.size


@dataclass(frozen=True, eq=False)
class Block:
    """Positions of a linear node that have the weights `number`."""

    number: int
    positions: Indices  # [p], ascending
    reads: Gather  # [p, K]


@dataclass(frozen=True, eq=False)
class Multiply:
    node: Linear
    reads: Gather  # [P, K]
    writes: int  # P R columns
    blocks: tuple[Block, ...]  # every position in one of them

    @property
    def rows(self) -> int:
        return int(self.node.weights.shape[1])


@dataclass(frozen=True, eq=False)
class LookUp:
    """An instruction for look-ups: any number of nodes without shifts, or one with them."""

    nodes: tuple[Lookup, ...]
    reads: Gather  # [E], of the nodes one after the other
    writes: int  # as many columns as the nodes have wires
    level: int
    elements: slice  # of all look-ups of the level


@dataclass(frozen=True, eq=False)
class Operate:
    node: Product
    reads: Gather  # [E, operands]
    writes: int


@dataclass(frozen=True, eq=False)
class Drop:
    values: tuple[int, ...]


Reader: TypeAlias = Multiply | LookUp | Operate
Instruction: TypeAlias = Extract | Reader | Drop


@dataclass(frozen=True, eq=False)
class Schedule:
    steps: tuple[Instruction, ...]
    output: Gather  # in the graph's shape, read when all steps are done

    @property
    def products(self) -> list[Multiply]:
        return [step for step in self.steps if isinstance(step, Multiply)]

    @property
    def lookups(self) -> list[LookUp]:
        return [step for step in self.steps if isinstance(step, LookUp)]

    @property
    def levels(self) -> list[list[LookUp]]:
        """The batches of each level that has look-ups."""
        return [list(batches) for _, batches in itertools.groupby(self.lookups, key=lambda step: step.level)]

    @property
    def bootstraps_per_level(self) -> list[int]:
        """Counts the bootstraps of one sample, in levels with look-ups."""
        return [sum(len(step.reads.wires) for step in level) for level in self.levels]

    @cached_property
    def most_columns(self) -> int:
        """Ciphertexts of a sample that lie side by side at the worst moment: values, what is put together of them to be read, and the result."""
        widths = self.output.layout.widths
        held = most = 0
        for step in self.steps:
            if isinstance(step, Drop):
                held -= sum(widths[value] for value in step.values)
                continue
            written = widths[step.writes]
            read = step.node.size * (not step.is_everything) if isinstance(step, Extract) else _put_together(step)
            held += written
            most = max(most, held + read)
        return max(most, held + self.output.flat.copied)

    def readers(self, value: int) -> list[Reader]:
        """Returns instructions that read a value; the output is none."""
        return [step for step in self.steps if not isinstance(step, Extract | Drop) and value in step.reads.values]


def _put_together(step: Reader) -> int:
    """Returns columns that are written so that an instruction can read them; products gather within the engine."""
    if isinstance(step, LookUp):
        return step.reads.copied
    return step.reads.width * (len(step.reads.values) != 1)


# --- lowering ----------------------------------------------------------------------------------------------------------------------------


def schedule(graph: Graph, most_lookups: int | None = None) -> Schedule:
    """Orders a graph's work. Args: most_lookups: of a batch, about: levels of more come in tiles, each of them products of some positions and the
    look-ups that read these; None: levels as they are."""
    layout = Layout(graph.wire_count)
    steps = list(_in_order(graph, layout, most_lookups))
    output = Gather(graph.output, layout)
    return Schedule(tuple(_with_drops(steps, output)), output)


def _in_order(graph: Graph, layout: Layout, most_lookups: int | None) -> Iterator[Extract | Reader]:
    """Yields the input, then level by level what comes before look-ups and the look-ups."""
    columns = _read_columns(graph)
    yield Extract(graph.input, columns, layout.place_wires(graph.input.first_wire + columns))
    for number, level in enumerate(_levels(graph)):
        start = 0
        for computed, looked_up in [level] if most_lookups is None else tiles(*level, most_lookups):
            for node in computed:
                reads, writes = Gather(node.gather, layout), layout.place([node])
                if isinstance(node, Linear):
                    yield Multiply(node, reads, writes, _blocks(node.block, reads))
                else:
                    yield Operate(node, reads, writes)
            for batch in _batches(looked_up):
                gather = np.concatenate([node.gather for node in batch]) if len(batch) > 1 else batch[0].gather
                elements = slice(start, start + len(gather))
                yield LookUp(tuple(batch), Gather(gather, layout), layout.place(batch), number, elements)
                start = elements.stop


def _read_columns(graph: Graph) -> Indices:
    """Returns the numbers of the input that are worth extracting: those that something reads, where they are few, else all."""
    size, first = graph.input.size, graph.input.first_wire
    read = np.zeros(graph.wire_count + 1, dtype=bool)
    for node in graph.nodes[1:]:
        read[node.gather] = True
    read[graph.output] = True
    columns = np.flatnonzero(read[first : first + size])
    return columns if size > _MANY and 0 < len(columns) * FEW <= size else np.arange(size)


def _levels(graph: Graph) -> Iterator[tuple[list[Linear | Product], list[Lookup]]]:
    """As early as possible; a level's look-ups come last, and a program's last level has none."""
    depth = np.zeros(graph.wire_count + 1, dtype=np.int64)  # look-ups behind a wire
    computed: dict[int, list[Linear | Product]] = {}
    looked_up: dict[int, list[Lookup]] = {}
    for node in graph.nodes[1:]:
        behind = int(depth[node.gather].max(initial=0))
        if isinstance(node, Lookup):
            looked_up.setdefault(behind, []).append(node)
            behind += 1
        elif isinstance(node, Linear | Product):
            computed.setdefault(behind, []).append(node)
        depth[wires(node)] = behind
    for number in range(max((*computed, *looked_up), default=-1) + 1):
        yield computed.get(number, []), looked_up.get(number, [])


def _batches(nodes: Sequence[Lookup]) -> list[list[Lookup]]:
    """Look-ups of one output that follow each other share a batch."""
    batches: list[list[Lookup]] = []
    for node in nodes:
        if batches and node.shifts is None and batches[-1][0].shifts is None:
            batches[-1].append(node)
        else:
            batches.append([node])
    return batches


def _blocks(block: Indices, reads: Gather) -> tuple[Block, ...]:
    order = np.argsort(block, kind="stable")
    numbers = block[order]
    starts = (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()
    if not starts:
        return (Block(int(numbers[0]), order, reads),)
    return tuple(
        Block(int(numbers[first]), order[first:end], Gather(reads.wires[order[first:end]], reads.layout))
        for first, end in itertools.pairwise([0, *starts, len(order)])
    )


def _with_drops(steps: Sequence[Extract | Reader], output: Gather) -> Iterator[Instruction]:
    """A value goes after its last reader, or at once when it has none; never what the output reads."""
    last = {step.writes: i for i, step in enumerate(steps)}
    for i, step in enumerate(steps):
        if not isinstance(step, Extract):
            last.update(dict.fromkeys(step.reads.values, i))
    for value in output.values:
        last[value] = len(steps)
    after: dict[int, list[int]] = {}
    for value, i in last.items():
        after.setdefault(i, []).append(value)
    for i, step in enumerate(steps):
        yield step
        if i in after:
            yield Drop(tuple(sorted(after[i])))
