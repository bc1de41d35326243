"""Makes one look-up of every subgraph that is a function of one wire: x sigmoid(x), x / (1 + |x|), a(x) + b(x), g(f(x)).

wire_functions says which wires are functions of which, elementwise. Of those that somebody outside of such a subgraph reads

    look-ups and products            become one look-up of the source each,
    affine functions of the source   stay linear, without a bootstrap,
    sums of look-ups                 become one look-up where that saves as many: where what is outside needs no more sums than they have parts.

Products of several wires stay for lower_products. The order of the nodes, and a node that is replaced as a whole, keep their wires.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import ZERO_WIRE, Graph, Input, Linear, Lookup, Node, Product, wires
from cloakwork.models.graph.merge_equal import shrunk
from cloakwork.models.graph.steps import Step
from cloakwork.models.passes.wire_functions import CONSTANT, WireFunctions
from cloakwork.models.passes.wire_programs import WirePrograms


def fuse_functions(graph: Graph) -> Graph:
    functions = WireFunctions(graph)
    plan = _Plan(functions)
    return _Emission(plan).run(graph)


class _Plan:
    """The plan for each wire: [wires + 1] of bool.

    Attributes:
        needed: computed at all, and read by what is left.
        fused: computed by a look-up of its own program.
    """

    def __init__(self, functions: WireFunctions) -> None:
        self.functions = functions
        count = len(functions.source)
        self._as_one = np.zeros(count, dtype=bool)  # sums that become one look-up
        self.needed, self.fused = self._swept(undecided=True)
        self._as_one = self._sums_worth_a_lookup()
        self.needed, self.fused = self._swept()

    def _swept(self, undecided: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Sweeps from output to input. Args: undecided: sums read their source, whatever becomes of them."""
        functions, graph = self.functions, self.functions.graph
        needed, fused = np.zeros((2, len(functions.source)), dtype=bool)
        needed[graph.output.reshape(-1)] = True
        for node in reversed(graph.nodes):
            if isinstance(node, Input):
                continue
            varying = self._varying(node, needed)
            if undecided:
                is_sum = self._is_sum(varying)
                needed[functions.own_source[varying[is_sum]]] = True
                varying = varying[~is_sum]
            one = (functions.own_source[varying] != varying) & (~functions.is_linear[varying] | self._as_one[varying])
            fused[varying[one]] = True
            needed[self._bases(varying[one])] = True
            needed[self._read_as_they_are(node, varying[~one])] = True
        needed[ZERO_WIRE] = fused[ZERO_WIRE] = False
        return needed, fused

    def _varying(self, node: Node, needed: np.ndarray) -> Indices:
        """Returns wires of a node that are needed and no constants."""
        needed_wires: Indices = np.flatnonzero(needed[wires(node)]) + node.first_wire
        varying: Indices = needed_wires[self.functions.source[needed_wires] != CONSTANT]
        return varying

    def programs(self, node_wires: Indices) -> Iterator[WirePrograms]:
        """Yields programs of wires of one node, pattern by pattern."""
        pattern = self.functions.own_pattern[node_wires]
        for number in np.unique(pattern).tolist():
            yield WirePrograms(self.functions, node_wires[pattern == number])

    def _bases(self, node_wires: Indices) -> Indices:
        """Returns what the programs of wires of one node begin at."""
        pattern = self.functions.own_pattern[node_wires]
        plain = np.array([not self.functions.has_rows(number) for number in pattern.tolist()], dtype=bool)
        parts = [program.base for program in self.programs(node_wires[~plain])]
        return np.concatenate([self.functions.own_source[node_wires[plain]], *parts])

    def _is_sum(self, node_wires: Indices) -> np.ndarray:
        """Finds what is linear, but of look-ups."""
        functions = self.functions
        other = (functions.own_source[node_wires] == node_wires) | (
            functions.affine[node_wires] == functions.own_source[node_wires]
        )
        result: np.ndarray = functions.is_linear[node_wires] & ~other
        return result

    def _read_as_they_are(self, node: Node, node_wires: Indices) -> Indices:
        """Returns what wires of a node that is left read."""
        if isinstance(node, Product):
            linear = self.functions.is_linear[node_wires]
            return np.concatenate(
                [
                    self.functions.affine[node_wires[linear]],
                    node.gather[node_wires[~linear] - node.first_wire].reshape(-1),
                ]
            )
        smaller, _ = shrunk(node, np.isin(np.arange(node.first_wire, node.first_wire + node.size), node_wires))
        return np.zeros(0, dtype=np.int64) if smaller is None else smaller.gather.reshape(-1)

    def _sums_worth_a_lookup(self) -> np.ndarray:
        functions = self.functions
        rows, atoms = [], []  # pairs: a sum that is read, a look-up that it has as a part
        for node in functions.graph.nodes[1:]:
            varying = self._varying(node, self.needed)
            for program in self.programs(varying[self._is_sum(varying)]):
                parts = program.atoms()
                rows += [program.wire] * len(parts)
                atoms += parts
        result = np.zeros(len(functions.source), dtype=bool)
        if rows:
            row, atom = np.concatenate(rows), np.concatenate(atoms)
            missing = ~self.fused[atom]  # nobody else needs them
            row, atom = row[missing], atom[missing]
            source = functions.own_source[row]
            result[row] = (_distinct_by_source(source, row) <= _distinct_by_source(source, atom))[source]
        return result


def _distinct_by_source(source: Indices, wire: Indices) -> Indices:
    """Returns [largest source + 1]: how many different wires each has."""
    pairs = np.unique(np.stack([source, wire], axis=1), axis=0)
    counts: Indices = np.bincount(pairs[:, 0], minlength=int(source.max(initial=0)) + 1)
    return counts


class _Emission:
    """The nodes that are left, and the wire that each old one has among theirs."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        functions = plan.functions
        self._functions = functions
        self._renaming = np.arange(len(functions.source), dtype=np.int64)
        self._renaming[-1] = ZERO_WIRE
        self._next_wire = functions.graph.wire_count
        self._nodes: list[Node] = []

    def run(self, graph: Graph) -> Graph:
        for node in graph.nodes:
            if isinstance(node, Input):
                self._nodes.append(node)
                continue
            needed_wires = np.flatnonzero(self._plan.needed[wires(node)]) + node.first_wire
            constant = self._functions.source[needed_wires] == CONSTANT
            fused = self._plan.fused[needed_wires]
            self._left(node, needed_wires[~fused & ~constant])
            self._constants(needed_wires[constant], node.origin)
            self._fused(node, needed_wires[fused])
        return replace(graph, nodes=tuple(self._nodes), output=self._renaming[graph.output])

    def _placed(self, node: Node, old: Indices, whole: int) -> None:
        """The node at wires of its own; at the old ones where it replaces all `whole` wires of one."""
        first = int(old[0])
        if len(old) != whole or bool((old != np.arange(first, first + whole)).any()):
            first = self._next_wire
            self._next_wire += len(old)
            self._renaming[old] = np.arange(first, first + len(old))
        self._nodes.append(replace(node, first_wire=first))

    def _constants(self, node_wires: Indices, origin: str) -> None:
        value = self._functions.offset[node_wires]
        self._renaming[node_wires[value == 0]] = ZERO_WIRE
        node_wires, value = node_wires[value != 0], value[value != 0]
        if not len(node_wires):
            return
        distinct, block = np.unique(value, return_inverse=True)
        nowhere = np.full((len(node_wires), 1), ZERO_WIRE, dtype=np.int64)
        weights = np.zeros((len(distinct), 1, 1))
        node = Linear(0, nowhere, block.reshape(-1).astype(np.int64), weights, distinct[:, None], origin)
        self._placed(node, node_wires, len(node_wires))

    def _left(self, node: Node, node_wires: Indices) -> None:
        if not len(node_wires):
            return
        if isinstance(node, Product):
            linear = self._functions.is_linear[node_wires]
            self._scaled(node, node_wires[linear])
            node_wires = node_wires[~linear]
        smaller, old = shrunk(node, np.isin(np.arange(node.first_wire, node.first_wire + node.size), node_wires))
        if smaller is not None and not isinstance(smaller, Input):
            self._placed(replace(smaller, gather=self._renaming[smaller.gather]), old, node.size)

    def _scaled(self, node: Product, node_wires: Indices) -> None:
        """Adds products with constants."""
        if not len(node_wires):
            return
        functions = self._functions
        parameters: Reals = np.stack([functions.scale[node_wires], functions.offset[node_wires]], axis=1)
        distinct, function = np.unique(parameters, axis=0, return_inverse=True)
        step = Step("Affine", (distinct[:, 0].copy(), distinct[:, 1].copy()))
        gather = self._renaming[functions.affine[node_wires]]
        lookup = Lookup(0, gather, (step,), function.reshape(-1).astype(np.int64), node.origin)
        self._placed(lookup, node_wires, node.size)

    def _fused(self, node: Node, node_wires: Indices) -> None:
        for program in self._plan.programs(node_wires):
            steps, function = program.steps()
            lookup = Lookup(0, self._renaming[program.base], steps, function, node.origin)
            self._placed(lookup, program.wire, node.size)
