"""Hand-made programs of odd shapes, shared by tests: what compiled ones rarely have, all in a few look-ups."""

from __future__ import annotations

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node, check
from cloakwork.models.graph.steps import Step
from cloakwork.models.program import Program

SCALE = 1 / 16384  # of every wire: a phase is the value times this
SHIFTS = (0, 64, 128)  # whole coefficients of every set whose polynomials have at least 64


class Builder:
    """Numbers wires in the order of the calls; weights are small integers drawn from a seed."""

    def __init__(self, inputs: int) -> None:
        self.nodes: list[Node] = [Input(0, (inputs,), "x")]
        self._rng = np.random.default_rng(17)

    def _next(self) -> int:
        return self.nodes[-1].first_wire + self.nodes[-1].size

    def linear(self, gather: list[list[int]], rows: int = 1, block: list[int] | None = None) -> Indices:
        """[P R] wires of positions that read `gather` [P, K]."""
        read = np.array(gather, dtype=np.int64)
        chosen = np.zeros(len(read), dtype=np.int64) if block is None else np.array(block, dtype=np.int64)
        weights = self._rng.integers(-3, 4, (int(chosen.max()) + 1, rows, read.shape[1]))
        bias = self._rng.integers(-40, 40, weights.shape[:2]).astype(np.float64)
        node = Linear(self._next(), read, chosen, weights, bias, f"linear{len(self.nodes)}")
        return self._add(node)

    def lookup(
        self, gather: list[int], functions: int = 1, shifts: tuple[int, ...] | None = None, operator: str = "Relu"
    ) -> Indices:
        """Wires of look-ups of so many functions in turn, operator(x) plus a constant."""
        constants = 16.0 * np.arange(functions)
        steps = (Step(operator), Step("Affine", (np.ones(functions), constants)))
        which = np.arange(len(gather), dtype=np.int64) % functions
        moved = None if shifts is None else np.array(shifts, dtype=np.int64)
        read = np.array(gather, dtype=np.int64)
        return self._add(Lookup(self._next(), read, steps, which, f"lookup{len(self.nodes)}", moved))

    def _add(self, node: Node) -> Indices:
        self.nodes.append(node)
        return np.arange(node.first_wire, node.first_wire + node.size)

    def graph(self, output: list[int]) -> Graph:
        ones = np.ones(self._next())
        facts = {"lower": -4096 * ones, "upper": 4096 * ones, "scale": SCALE * ones, "offset": 0 * ones}
        return check(Graph(tuple(self.nodes), np.array(output, dtype=np.int64), **facts))


def several_readers() -> Graph:
    """Two levels: three batches in the first, for shifts between look-ups without; values read by linear nodes of their own level and by later
    ones; zero wires; two blocks in no order; outputs that are an input, the zero wire, a look-up, and twice the same."""
    made = Builder(4)
    first = made.linear([[0, 1, 2], [2, -1, 3], [3, 0, 1]], rows=2, block=[1, 0, 1])
    mixed = made.linear([[int(first[0]), 0], [int(first[3]), -1]])
    plain = made.lookup([int(first[0]), int(first[1]), int(mixed[0]), int(first[0])], functions=2)
    shifted = made.lookup([int(mixed[1]), int(first[4])], shifts=SHIFTS)
    late = made.lookup([int(first[5]), int(first[1])], operator="Abs")
    again = made.linear([[int(plain[0]), int(shifted[1])], [int(late[1]), -1], [int(shifted[5]), 3]], block=[1, 0, 1])
    last = made.lookup([int(wire) for wire in again], operator="Abs")
    end = made.linear([[int(last[0]), int(last[2]), int(plain[3])]], rows=2)
    return made.graph([1, -1, int(plain[2]), int(end[1]), int(end[0]), int(end[1]), int(late[0])])


def side_by_side() -> Graph:
    """Look-ups read all of two values in order, the output all of another two."""
    made = Builder(3)
    left, right = made.linear([[0, 1, 2]], rows=2), made.linear([[2, 1, 0]])
    looked_up = made.lookup([*left.tolist(), *right.tolist()], functions=3)
    ends = [made.linear([looked_up.tolist()]), made.linear([looked_up.tolist()[::-1]], rows=2)]
    return made.graph(np.concatenate(ends).tolist())


def nothing_but_zeros() -> Graph:
    """A linear node that reads the zero wire alone, on which a look-up follows; the input is read by nothing."""
    made = Builder(2)
    zero = made.linear([[-1, -1], [-1, -1]])
    looked_up = made.lookup([int(zero[0])], operator="Abs")
    return made.graph([int(zero[1]), int(looked_up[0])])


def outputs_are_inputs() -> Graph:
    """Nothing is computed for the output."""
    made = Builder(3)
    made.linear([[0, 1, 2]])
    return made.graph([2, 0, 2])


def dead_ends() -> Graph:
    """A linear node and a look-up that nothing reads."""
    made = Builder(3)
    used = made.linear([[0, 1, 2]], rows=2)
    made.lookup([int(used[0])])
    made.linear([[2, 1]])
    return made.graph([int(used[1])])


def linear_only() -> Graph:
    """The input stays packed where that is possible; a chain of linear nodes after it."""
    made = Builder(5)
    first = made.linear([[0, 1, 2, 3, 4], [4, 3, -1, 1, 1]], rows=3, block=[1, 0])
    second = made.linear([[int(first[0]), int(first[5])]])
    return made.graph([int(second[0]), int(first[2])])


def windows() -> Graph:
    """Two levels as those of images: windows of neighbours in two channels, look-ups channel by channel, the input added in the second."""
    made, places, channels = Builder(20), 10, 2
    image = np.arange(channels * places).reshape(channels, places)

    def neighbours(read: Indices) -> Indices:
        """[places, 3 channels], zeros beyond the ends."""
        padded = np.pad(read, ((0, 0), (1, 1)), constant_values=-1)
        return np.stack([padded[:, i : i + 3].reshape(-1) for i in range(places)])

    def looked_up(rows: Indices) -> Indices:
        return made.lookup(rows.reshape(places, channels).T.reshape(-1).tolist(), functions=2).reshape(channels, places)

    first = looked_up(made.linear(neighbours(image).tolist(), rows=channels))
    both = np.concatenate([neighbours(first), image.T], axis=1)
    second = looked_up(made.linear(both.tolist(), rows=channels, block=[i % 2 for i in range(places)]))
    return made.graph(made.linear([second.reshape(-1).tolist()], rows=3).tolist())


ODD = {
    made.__name__: made
    for made in (several_readers, side_by_side, nothing_but_zeros, outputs_are_inputs, dead_ends, linear_only, windows)
}


def program(name: str, params: ParameterSet) -> Program:
    return Program(ODD[name](), params, 0.0)
