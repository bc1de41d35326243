"""The pipelines: after every real-valued step the graph is the model, their lists are the documentation, options that nothing reads are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_kinds import NAMES, Kind, kinds
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx_models import mlp, runtime

import cloakwork as cw
from cloakwork import models
from cloakwork.models.client_steps import run_output_steps
from cloakwork.models.compile.compilation import Compilation, CompilerStep
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.compile.pipeline import APPROXIMATE, EXACT, begin, compiled, stages, table
from cloakwork.models.compiler import compile_file
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.ir import Graph
from cloakwork.models.options import Options
from cloakwork.models.runtime.interpreter import interpret

DOCS = Path(__file__).parents[3] / "docs" / "explanation" / "compiler.md"
PIPELINES = {
    "approximate": (APPROXIMATE, NetworkOptions()),
    "exact": (EXACT, NetworkOptions(precision="exact", accuracy=0, accumulator_bits=4)),
}


@pytest.fixture(scope="module")
def every_kind() -> dict[str, Kind]:
    return kinds()


def in_clear(c: Compilation, x: Any) -> Any:
    """What the model makes of samples as far as it is compiled: the client's steps, the graph in clear, the client's steps."""
    values = interpret(c.graph, c.entered(x))
    return run_output_steps((*c.graph.client_steps, *c.after), values)


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", NAMES)
def test_after_every_real_valued_step_it_is_the_model(every_kind: dict[str, Kind], name: str, pipeline: str) -> None:
    steps, options = PIPELINES[pipeline]
    kind = every_kind[name]
    wanted = kind.runtime()
    real = tuple(step for step in steps if step.real)
    assert len(real) == len(steps) - 1  # all but the choice of integers
    for step, found in stages(begin(kind.proto, kind.x, options), real):
        agree(in_clear(found, kind.x), wanted, kind, step)


def agree(found: Any, wanted: dict[str, np.ndarray], kind: Kind, step: CompilerStep) -> None:
    by_name = found if isinstance(found, dict) else {next(iter(wanted)): found}
    assert by_name.keys() == wanted.keys()
    for output, expected in wanted.items():
        difference = np.abs(by_name[output] - expected.reshape(by_name[output].shape))
        most = 1e-4 * max(1.0, float(np.abs(expected).max()))
        assert (difference > most).mean() <= kind.on_edges, f"{step.name}: {output} is off by {difference.max():.3g}"


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_step_is_told_with_its_graph(pipeline: str) -> None:
    steps, options = PIPELINES[pipeline]
    told: list[tuple[str, Graph]] = []
    rng = np.random.default_rng(1)
    proto, x = mlp(rng, [5, 8, 3]), rng.standard_normal((200, 5))
    found = compiled(proto, x, options, lambda name, graph: told.append((name, graph)))
    assert [name for name, _ in told] == ["import_onnx", *(step.name for step in steps)]
    assert found.program is not None and told[-1][1] is found.program.graph
    assert told[-1][1].scale is not None and told[-2][1].scale is None


def test_the_documentation_has_the_steps() -> None:
    assert table() in DOCS.read_text()
    for steps in (APPROXIMATE, EXACT):
        assert len({step.name for step in steps}) == len(steps)


def test_parts_are_modules_of_the_compiler() -> None:
    folder_of = Path(models.__file__).parent
    modules = {
        path.stem
        for folder in ("", "graph", "criteria", "passes", "exact", "approximate", "compile", "onnx_import")
        for path in (folder_of / folder).glob("*.py")
    }
    for step in (*APPROXIMATE, *EXACT):
        assert step.parts.keys() <= modules, step.name


@pytest.fixture
def tree() -> ModelProto:
    """x0 <= 0.5 gives -1, else 2."""
    attributes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "n_targets": 1,
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [-1.0, 2.0],
    }  # fmt: skip
    return _table_model(
        helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", name="tree", **attributes)
    )


@pytest.fixture
def line() -> ModelProto:
    node = helper.make_node(
        "LinearRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        name="line",
        coefficients=[1.0, -2.0, 0.5],
        intercepts=[0.25],
    )
    return _table_model(node)


def _table_model(node: NodeProto) -> ModelProto:
    places = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width]) for name, width in (("x", 3), ("y", 1))
    ]
    graph = helper.make_graph([node], "table", places[:1], places[1:])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8
    )


NETWORK_OPTIONS: dict[str, Any] = {
    "precision": "exact", "allow_loss": True, "weight_bits": 4, "activation_bits": 4, "task": "regression", "outputs": ["variable"],
}  # fmt: skip


@pytest.mark.parametrize("option", [*NETWORK_OPTIONS, "margin"])
def test_options_that_trees_would_ignore_are_refused(option: str, tree: ModelProto) -> None:
    with pytest.raises(CompileError, match=f"{option}: no option of trees"):
        compile_file(tree, None, Options(**{option: {**NETWORK_OPTIONS, "margin": 0.1}[option]}))


def test_trees_take_the_sets_to_choose_from(tree: ModelProto) -> None:
    x = np.random.default_rng(3).standard_normal((50, 3))
    assert compile_file(tree, x, Options(sets=["lut5"])).program.parameters.name == "lut5"
    steps: list[str] = []
    compile_file(tree, x, on_step=lambda name, _: steps.append(name))
    assert steps == ["compile_ensemble"]


@pytest.mark.parametrize("option", NETWORK_OPTIONS)
def test_options_that_linear_models_would_ignore_are_refused(option: str, line: ModelProto) -> None:
    x = np.random.default_rng(3).standard_normal((50, 3))
    with pytest.raises(CompileError, match=f"{option}: no option of a linear model"):
        compile_file(line, x, Options(**{option: NETWORK_OPTIONS[option]}))


def test_linear_models_take_accuracy_and_margin(line: ModelProto) -> None:
    x = np.random.default_rng(3).standard_normal((50, 3))
    for options in ({}, {"accuracy": 0}, {"accuracy": 0.5, "margin": 0.0}):
        model = cw.compile(line, x, **options)
        np.testing.assert_allclose(model.predict(x), runtime(line, x)[:, 0], atol=0.01)


def test_refused_options_have_their_names(tree: ModelProto) -> None:
    with pytest.raises(CompileError, match="precision, weight_bits: no option of trees"):
        compile_file(tree, None, Options(precision="fast", weight_bits=3))
