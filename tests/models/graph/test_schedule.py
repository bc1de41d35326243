"""The schedule: each value is written once before it is read, dropped after its last reader, and gathers find their wires."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from odd_programs import ODD
from onnx import helper
from onnx_models import mlp, model, residual_images
from test_encrypted_networks import RNG, convolutional, residual

import cloakwork as cw
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models import zoo
from cloakwork.models.arrays import Indices
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.graph.ir import Graph, Node, wire_numbers
from cloakwork.models.graph.schedule import Drop, Extract, Gather, LookUp, Multiply, Operate, Schedule, schedule
from cloakwork.models.graph.tables import batch_tables
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret
from cloakwork.models.runtime.machines.clear import Clear
from cloakwork.models.runtime.machines.host import packed_products
from cloakwork.models.runtime.machines.machine import execute, execute_graph


class WireNumbers:
    """A machine whose values are the numbers of their wires, and which checks what machines rely on."""

    def __init__(self, steps: Schedule) -> None:
        self.held: dict[int, Indices] = {}
        self.written: list[Node] = []
        self._kept = set(steps.output.values)
        self._ever: set[int] = set()

    def _write(self, value: int, *nodes: Node) -> None:
        assert value not in self._ever, "a value is written once"
        self._ever.add(value)
        self.written += nodes
        self.held[value] = np.concatenate([wire_numbers(node) for node in nodes])

    def read(self, reads: Gather) -> None:
        assert set(reads.values) <= set(self.held), "what is read has been written and not dropped"
        assert reads.width == sum(len(self.held[value]) for value in reads.values)
        side_by_side = np.concatenate([*(self.held[value] for value in reads.values), [-1]])
        np.testing.assert_array_equal(side_by_side[reads.columns], reads.wires)
        assert reads.is_everything == np.array_equal(side_by_side[:-1], reads.wires)
        assert reads.flat.values == reads.values and np.array_equal(reads.flat.columns, reads.columns.reshape(-1))

    def extract(self, step: Extract) -> None:
        self._write(step.writes, step.node)
        self.held[step.writes] = step.node.first_wire + step.columns

    def multiply(self, step: Multiply) -> None:
        self.read(step.reads)
        np.testing.assert_array_equal(step.reads.wires, step.node.gather)
        chosen = np.full(len(step.node.block), -1)
        for block in step.blocks:
            assert len(block.positions) and (np.diff(block.positions) > 0).all()
            assert (chosen[block.positions] == -1).all(), "every position is in one block"
            chosen[block.positions] = block.number
            np.testing.assert_array_equal(block.reads.wires, step.reads.wires[block.positions])
            self.read(block.reads)
        np.testing.assert_array_equal(chosen, step.node.block)
        self._write(step.writes, step.node)

    def look_up(self, step: LookUp) -> None:
        self.read(step.reads)
        assert len(step.nodes) == 1 or all(node.shifts is None for node in step.nodes)
        np.testing.assert_array_equal(step.reads.wires, np.concatenate([node.gather for node in step.nodes]))
        assert step.elements.stop - step.elements.start == len(step.reads.wires)
        self._write(step.writes, *step.nodes)

    def operate(self, step: Operate) -> None:
        self.read(step.reads)
        self._write(step.writes, step.node)

    def drop(self, step: Drop) -> None:
        assert step.values and not self._kept & set(step.values), "what the output reads stays"
        for value in step.values:
            del self.held[value]

    def output(self, reads: Gather) -> set[int]:
        self.read(reads)
        return set(self.held)


def product_of_wires() -> Graph:
    """In the making: a product of two wires, and a look-up on a look-up."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Sigmoid", ["h"], ["s"]),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node("Mul", ["h", "t"], ["m"]),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    return import_onnx(model(nodes, [3], {"w": np.eye(3, dtype=np.float32)}))


def compiled(make: Callable[[], object], shape: tuple[int, ...]) -> Graph:
    return cw.compile(make(), RNG.uniform(-1, 1, (400, *shape))).program.graph  # type: ignore[arg-type]


def image_graph() -> Graph:
    return restructure(import_onnx(residual_images()))


GRAPHS: dict[str, Callable[[], Graph]] = {
    **ODD,
    "convolutional": lambda: compiled(convolutional, (1, 4, 4)),
    "residual": lambda: compiled(residual, (4,)),
    "trees": lambda: zoo.load_model("breast-cancer-forest").program.graph,
    "product_of_wires": product_of_wires,
    "float_graph": lambda: import_onnx(convolutional()),
    "images": image_graph,
}


@pytest.mark.parametrize("name", list(GRAPHS))
def test_values_are_written_once_read_in_between_and_dropped_after_their_last_reader(name: str) -> None:
    graph = GRAPHS[name]()
    steps = schedule(graph)
    machine = WireNumbers(steps)
    assert execute_graph(steps, machine) == set(steps.output.values)  # all others are dropped
    assert sorted(map(id, machine.written)) == sorted(map(id, graph.nodes))
    before: list[object] = []
    for step in steps.steps:
        if isinstance(step, Drop):  # at once after the last reader, or after being written where nothing reads it
            last = before[-1]
            assert isinstance(last, Extract | Multiply | LookUp | Operate)
            read = () if isinstance(last, Extract) else last.reads.values
            assert set(step.values) <= {*read, last.writes}
        before.append(step)


@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "product_of_wires"])
def test_levels_have_batches_that_follow_each_other(name: str) -> None:
    graph = GRAPHS[name]()
    steps = schedule(graph)
    for level in steps.levels:
        ends = [0, *(step.elements.stop for step in level)]
        assert [step.elements.start for step in level] == ends[:-1]
        unshifted = [all(node.shifts is None for node in step.nodes) for step in level]
        assert not any(a and b for a, b in itertools.pairwise(unshifted))
    assert sum(steps.bootstraps_per_level) == graph.bootstraps


def test_look_ups_run_as_early_as_they_can() -> None:
    steps = schedule(ODD["several_readers"]())
    assert steps.bootstraps_per_level == [8, 3]
    assert [(len(step.nodes), step.level, step.elements) for step in steps.lookups] == [
        (1, 0, slice(0, 4)), (1, 0, slice(4, 6)), (1, 0, slice(6, 8)), (1, 1, slice(0, 3)),
    ]  # fmt: skip


def test_what_reads_only_zeros_reads_no_value() -> None:
    (product,) = schedule(ODD["nothing_but_zeros"]()).products
    assert product.reads.values == () and (product.reads.columns == -1).all()


def test_input_stays_packed_where_its_readers_read_nothing_else() -> None:
    def packed(name: str) -> list[int]:
        return [step.writes for step in packed_products(schedule(ODD[name]()))]

    assert packed("linear_only") == [1]
    assert packed("dead_ends") == [1, 2]
    assert packed("several_readers") == packed("outputs_are_inputs") == packed("nothing_but_zeros") == []


def test_products_are_for_graphs_in_the_making() -> None:
    steps = schedule(product_of_wires())
    with pytest.raises(AssertionError, match="no products"):
        execute(steps, WireNumbers(steps))


# --- in tiles: the same values, fewer of them held at once --------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3, 64])
@pytest.mark.parametrize("name", list(GRAPHS))
def test_every_wire_is_written_once_and_has_the_same_value(name: str, most: int) -> None:
    graph = GRAPHS[name]()
    steps = schedule(graph, most)
    machine = WireNumbers(steps)
    assert execute_graph(steps, machine) == set(steps.output.values)
    written = np.sort(np.concatenate([wire_numbers(node) for node in machine.written]))
    np.testing.assert_array_equal(written, np.sort(np.concatenate([wire_numbers(node) for node in graph.nodes])))
    assert sum(steps.bootstraps_per_level) == graph.bootstraps
    x = RNG.uniform(-1, 1, (5, *graph.input.shape))
    found = execute_graph(steps, Clear(graph, x.reshape(5, -1)))
    np.testing.assert_allclose(found, interpret(graph, x), rtol=1e-12, atol=1e-12)


def test_tiles_of_images_hold_little_beside_what_they_read_and_write() -> None:
    """Two convolutions and a residual sum of 8 channels of 12 x 12: read are the window of a tile, its neighbours and what the sum adds."""
    graph = image_graph()
    tensor = 8 * 12 * 12
    whole, tiled = schedule(graph), schedule(graph, tensor // 12)
    assert whole.bootstraps_per_level == tiled.bootstraps_per_level == [tensor] * 3 + [2 * tensor // 4]
    assert max(len(step.reads.wires) for step in tiled.lookups) <= tensor // 12
    # Without tiles: what the sum reads twice, once side by side, and its rows.
    assert whole.most_columns >= 5 * tensor
    assert tiled.most_columns <= 3.5 * tensor


def test_tiles_share_tables_and_weights() -> None:
    graph = cw.compile(residual_images(), RNG.uniform(-1, 1, (60, 3, 12, 12)), accuracy=0).program.graph
    params = parameter_set("toy")
    whole, tiled = schedule(graph), schedule(graph, 100)
    assert len(tiled.lookups) > 2 * len(whole.lookups)
    tables = [[len(each.tables) for each in batch_tables(graph, steps, params).values()] for steps in (whole, tiled)]
    assert max(tables[1]) == max(tables[0])
    assert {id(step.node.weights) for step in tiled.products} == {id(step.node.weights) for step in whole.products}


def test_levels_that_cannot_be_cut_stay_whole() -> None:
    shifted = schedule(ODD["several_readers"](), 1)
    assert shifted.bootstraps_per_level == [8, 3]
    assert [len(step.reads.wires) for step in shifted.lookups] == [4, 2, 2, 1, 1, 1]


def test_a_dense_layer_is_cut_by_its_rows() -> None:
    graph = restructure(import_onnx(mlp(RNG, (5, 12, 2))))
    assert [step.rows for step in schedule(graph, 4).products] == [4, 4, 4, 2]
