"""Instruments of a traced network, where encryption acts on it: modules for it behind the input, around layers, before and behind look-ups, before
the client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final, cast

from torch import fx

from cloakwork.models.errors import UnsupportedModuleError
from cloakwork.training.noisy_max_pool import NoisyMaxPool
from cloakwork.training.pytorch import Tensor, torch
from cloakwork.training.simulation import LookupNoise, LookupResult, RoundedLayer, RoundedOnes, RowsSeen, Way
from cloakwork.training.tracing import (
    Role,
    Steps,
    TracedStep,
    added,
    called,
    classified,
    never_falls,
    recorded,
)

_TRIED: Final = 8  # samples that the forward is tried on


def instrumented(module: fx.GraphModule, example: Tensor, noise: LookupNoise) -> fx.GraphModule:
    """Returns the same module (tracing.traced), changed. UnsupportedModuleError names every step that cannot be simulated."""
    _Instruments(module, example[:_TRIED], noise).insert()
    return module


class _Instruments:
    """Puts noise and rounding into a traced network."""

    def __init__(self, module: fx.GraphModule, example: Tensor, noise: LookupNoise) -> None:
        self._module, self._graph, self._noise = module, module.graph, noise
        classified(module, example)  # refuses what is not supported
        _pools_first(module, classified(module, example))
        self._steps: Steps = classified(module, example)
        self._example = example
        self._values: dict[fx.Node, Any] = {}
        self._made: dict[fx.Node, torch.nn.Module] = {}

    def insert(self) -> None:
        self._refuse_shared()
        for node in list(self._graph.nodes):
            if node in self._steps:
                self._around(node, self._steps[node])
        self._round_sums()
        self._graph.lint()
        self._module.recompile()
        with torch.no_grad():
            self._values = recorded(self._module.eval(), self._example)
            self._link()

    def _around(self, node: fx.Node, step: TracedStep) -> None:
        if step.role is Role.INPUT:
            self._after(node, LookupResult(self._channels(node), self._noise, self._axis_of(node), is_input=True))
        elif step.role is Role.LAYER:
            self._wrap(node, lambda inner: RoundedLayer(inner))
            if self._is_mixed(node.all_input_nodes[0]):
                self._refresh(node)
        elif step.role is Role.POOL:
            self._wrap(node, lambda inner: NoisyMaxPool(inner, self._channels(node), self._noise))
        if step.role is Role.FUNCTION and step.curved and self._is_read(node):
            self._after(node, LookupResult(self._channels(node), self._noise, self._axis_of(node)), self._readers(node))
        if (
            step.wire is node
            and step.role not in (Role.OUTPUT, Role.CLIENT, Role.NUMBER)
            and not self._is_outside(node)
        ):
            self._seen(node)

    def _seen(self, wire: fx.Node) -> None:
        """What look-ups and the client see of a wire."""
        functions = [n for n, s in self._steps.items() if s.wire is wire and s.role is Role.FUNCTION]
        lookups = [n for n in functions if self._leads_to_read(n)]
        if lookups:
            self._see(wire, lookups, is_output=False)
        if any(self._is_outside(user) for node in (wire, *functions) for user in node.users):
            linear_functions = [n for n in functions if n not in lookups]
            self._see(
                wire, [*linear_functions, *(user for user in wire.users if self._is_outside(user))], is_output=True
            )

    def _is_outside(self, node: fx.Node) -> bool:
        """Whether the client gets or does it: the output, what follows it in clear, and moves of numbers before."""
        step = self._steps.get(node)
        if step is None or step.role in (Role.OUTPUT, Role.CLIENT):
            return step is not None
        (source, *others) = node.all_input_nodes or [node]
        moves = step.role is Role.LINEAR and not others and math.prod(step.shape) == math.prod(self._shape(source))
        return moves and bool(node.users) and all(self._is_outside(user) for user in node.users)

    def _see(self, wire: fx.Node, readers: list[fx.Node], *, is_output: bool) -> None:
        source = self._latest(wire)
        seen = RowsSeen(self._channels(wire), self._noise, self._axis_of(wire), is_output)
        self._after(source, seen, [reader for reader in readers if source in reader.all_input_nodes])

    def _latest(self, node: fx.Node) -> fx.Node:
        """Returns the node, or the input with what follows it."""
        return next(
            (
                u
                for u in node.users
                if isinstance(self._made.get(u), LookupResult) and self._steps[node].role is Role.INPUT
            ),
            node,
        )

    def _leads_to_read(self, node: fx.Node) -> bool:
        """Whether a look-up that is read comes of this function of a wire."""
        step = self._steps[node]
        if step.curved and self._is_read(node):
            return True
        return any(
            self._leads_to_read(user) for user in node.users
            if user in self._steps and self._steps[user].wire is step.wire and self._steps[user].role is Role.FUNCTION
        )  # fmt: skip

    def _readers(self, node: fx.Node) -> list[fx.Node]:
        """Returns users that are no functions of the same wire, nor the client."""
        wire = self._steps[node].wire
        return [
            u
            for u in node.users
            if not self._is_outside(u) and (u not in self._steps or self._steps[u].wire is not wire)
        ]

    def _is_read(self, node: fx.Node) -> bool:
        return bool(self._readers(node))

    def _is_mixed(self, node: fx.Node) -> bool:
        """Whether values come of a layer without a look-up between."""
        step = self._steps.get(node)
        if step is None or step.role in (Role.INPUT, Role.NUMBER) or (step.role is Role.FUNCTION and step.curved):
            return False
        if step.role is Role.LAYER:
            return True
        return any(self._is_mixed(source) for source in node.all_input_nodes)

    def _refresh(self, layer: fx.Node) -> None:
        """A look-up of the identity, as the compiler puts it between layers that it does not compose."""
        source = layer.all_input_nodes[0]
        lookup = next((u for u in source.users if isinstance(self._made.get(u), LookupResult)), None)
        if lookup is None:
            seen = self._after(source, RowsSeen(self._channels(source), self._noise, self._axis_of(source)), [])
            lookup = self._after(seen, LookupResult(self._channels(source), self._noise, self._axis_of(source)), [])
        layer.replace_input_with(source, lookup)

    def _after(self, node: fx.Node, instrument: torch.nn.Module, readers: list[fx.Node] | None = None) -> fx.Node:
        """Returns a call of a new submodule behind a node, in its place for these readers; None: for all."""
        users = list(node.users) if readers is None else readers
        name = added(self._module, f"{node.name}_{type(instrument).__name__}", instrument)
        with self._graph.inserting_after(node):
            new = self._graph.call_module(name, (node,))
        for user in users:
            user.replace_input_with(node, new)
        self._made[new] = instrument
        return new

    def _wrap(self, node: fx.Node, wrapper: Any) -> None:
        name = cast(str, node.target)
        wrapped = wrapper(self._module.get_submodule(name))
        parent, _, child = name.rpartition(".")
        setattr(self._module.get_submodule(parent), child, wrapped)
        self._made[node] = wrapped

    def _refuse_shared(self) -> None:
        targets = [
            n.target for n, s in self._steps.items() if s.role in (Role.LAYER, Role.POOL) and n.op == "call_module"
        ]
        for node, step in list(self._steps.items()):
            if step.role is Role.POOL and targets.count(node.target) > 1:  # no weights: each use its own
                node.target = added(
                    self._module, node.name, deepcopy(self._module.get_submodule(cast(str, node.target)))
                )
        shared = sorted(
            {str(n.target) for n, s in self._steps.items() if s.role is Role.LAYER and targets.count(n.target) > 1}
        )
        if shared:
            raise UnsupportedModuleError(
                f"prepare: {', '.join(shared)}: layers that are called twice; use a copy for each call"
            )

    def _axis_of(self, node: fx.Node) -> int:
        """Returns the axis of the channels: the last one behind a linear layer on several positions."""
        step = self._steps[node]
        if step.role is Role.FUNCTION and step.wire is not node:
            return self._axis_of(step.wire)
        module = self._made.get(node)
        linear = isinstance(module, RoundedLayer) and isinstance(module.inner, torch.nn.Linear)
        return len(step.shape) - 1 if linear else 1

    def _channels(self, node: fx.Node) -> int:
        return self._steps[node].shape[self._axis_of(node)]

    def _round_sums(self) -> None:
        """Rounds what goes into sums as it is, without a layer."""
        for node, instrument in list(self._made.items()):
            if isinstance(instrument, LookupResult) and not instrument.is_input:
                users = [
                    user
                    for user in node.users
                    if any(isinstance(reader, RowsSeen) for reader, _ in self._ends(node, user))
                ]
                if users:
                    rows = [
                        reader for user in users for reader, _ in self._ends(node, user) if isinstance(reader, RowsSeen)
                    ]
                    ones = RoundedOnes(instrument)
                    ones.rows += rows
                    self._after(node, ones, users)

    def _link(self) -> None:
        """Tells results of look-ups who reads them, and layers whose range their rows have to fill."""
        for node, instrument in self._made.items():
            if isinstance(instrument, LookupResult):
                self._link_result(node, instrument)
            elif isinstance(instrument, RoundedLayer):
                instrument.targets += [reader for reader, _ in self._ends(node) if isinstance(reader, RowsSeen)]
            elif isinstance(instrument, NoisyMaxPool) and instrument.results:
                self._link_result(node, instrument.level_results[-1])
                instrument.level_ones[-1].rows += [
                    reader for reader, _ in self._ends(node) if isinstance(reader, RowsSeen)
                ]

    def _link_result(self, node: fx.Node, result: LookupResult) -> None:
        for reader, end in self._ends(node):
            way = Way(self._gain(node, end, reader), self._spread(node, end))
            result.readers.append((reader, way))
            if isinstance(reader, RoundedLayer):
                reader.sources.append((result, way))

    def _gain(self, source: fx.Node, end: fx.Node, reader: RowsSeen | RoundedLayer) -> Tensor:
        """Returns [channels of the reader]: by how much what it reads goes up with all results of a look-up."""
        values = {**self._values, source: self._values[source] + 1.0}
        between = self._between(source)
        with torch.no_grad():
            for node in self._graph.nodes:
                if node in between:
                    values[node] = called(self._module, node, values.__getitem__)
        rise: Tensor = values[end] - self._values[end]
        axis = reader.axis if isinstance(reader, RowsSeen) else reader.input_axis(rise.ndim)
        return rise.movedim(axis, 0).flatten(1).mean(dim=1)

    def _passes(self, node: fx.Node) -> bool:
        if node in self._made:
            return isinstance(self._made[node], RoundedOnes)
        return node in self._steps and self._steps[node].role is not Role.OUTPUT

    def _between(self, start: fx.Node) -> set[fx.Node]:
        """Returns what is behind a node before any layer, look-up or pool."""
        nodes: set[fx.Node] = set()
        waiting = [start]
        while waiting:
            for user in waiting.pop().users:
                if user not in nodes and self._passes(user):
                    nodes.add(user)
                    waiting.append(user)
        return nodes

    def _ends(self, start: fx.Node, first: fx.Node | None = None) -> Iterator[tuple[Any, fx.Node]]:
        """Yields layers and look-ups behind a node, and the node that they read. Args: first: the way goes through this user."""
        waiting, met = [start], {start}
        while waiting:
            node = waiting.pop()
            for user in node.users if first is None or node is not start else (first,):
                instrument = self._made.get(user)
                if isinstance(instrument, NoisyMaxPool) and instrument.seen:
                    yield instrument.level_seen[0], node
                elif isinstance(instrument, RowsSeen | RoundedLayer):
                    yield instrument, node
                elif user not in met and not isinstance(instrument, LookupResult):
                    met.add(user)
                    waiting.append(user)

    def _spread(self, source: fx.Node, end: fx.Node) -> float:
        """Returns how many numbers are averaged to one on the way."""
        return max(1.0, math.prod(self._shape(source)) / max(1, math.prod(self._shape(end))))

    def _shape(self, node: fx.Node) -> tuple[int, ...]:
        while node in self._made and node not in self._steps:
            node = node.all_input_nodes[0]
        return self._steps[node].shape


def _pools_first(module: fx.GraphModule, steps: Steps) -> None:
    """Max-pools before the functions that never fall, as the compiler has them: fewer look-ups."""
    for pool, step in list(steps.items()):
        while (
            step.role is Role.POOL
            and (function := pool.all_input_nodes[0]) in steps
            and _may_follow(module, function, steps[function])
        ):
            _swap(module, pool, function)
    module.graph.eliminate_dead_code()
    module.recompile()


def _may_follow(module: fx.GraphModule, function: fx.Node, step: TracedStep) -> bool:
    """Whether a node is a function of each number of the one before it, and never falls."""
    alone = step.role is Role.FUNCTION and step.curved and len(function.all_input_nodes) == 1
    one_for_all = step.wire is function.all_input_nodes[0] if alone else False
    return one_for_all and not _has_parameters(module, function) and never_falls(module, function)


def _has_parameters(module: fx.GraphModule, node: fx.Node) -> bool:
    """PReLU: a function for each channel."""
    return node.op == "call_module" and any(True for _ in module.get_submodule(cast(str, node.target)).parameters())


def _swap(module: fx.GraphModule, pool: fx.Node, function: fx.Node) -> None:
    source = function.all_input_nodes[0]
    readers = list(pool.users)
    pool.replace_input_with(function, source)
    with module.graph.inserting_after(pool):
        moved = module.graph.node_copy(function, lambda _: pool)
    for reader in readers:
        reader.replace_input_with(pool, moved)
