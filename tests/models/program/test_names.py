"""Names given to a program that was trained without any: same answers by other words, and tables of other names refused."""

from __future__ import annotations

import numpy as np
import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.client_steps import Pick
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError, ShapeError
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import program_from_bytes
from cloakwork.models.program.artefact_writer import program_to_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.program import named
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from cloakwork.models.zoo import load_model

FEATURES, CLASSES = ("width", "höhe (cm)"), ("left", "middle, or so", "right")
X = np.array([[2.0, 1.0], [3.0, 0.0], [2.0, 0.5], [4.9, 3.9]])


@pytest.fixture(scope="module", params=[False, True], ids=["scores", "encrypted arg-max"])
def program(request: pytest.FixtureRequest) -> Program:
    """Three classes by two features; the client decrypts their scores, or the number of the largest."""
    tree = Tree.of_nodes(
        feature=[0, 1, 0, 0, 0],
        threshold=[2.5, 0.75, 0, 0, 0],
        left=[1, 3, -1, -1, -1],
        right=[2, 4, -1, -1, -1],
        values=[[0, 0, 0], [0, 0, 0], [0, 0, 9], [4, 0, 0], [0, 6, 0]],
    )
    ensemble = TreeEnsemble((tree,), features=2, labels=np.array([7, 8, 9]))
    calibration = np.array([[0.0, 0.5], [5.0, 4.0]])
    return compile_ensemble(ensemble, samples=calibration, tell="labels" if request.param else "scores").program


class Table:
    def __init__(self, *columns: str) -> None:
        self.columns = columns

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return X


def test_answers_are_the_same_by_name(program: Program):
    before, after = CompiledModel(program), CompiledModel(named(program, FEATURES, CLASSES))
    numbers = np.asarray(before.predict(X))
    assert set(numbers) == {7, 8, 9}
    expected = np.array(CLASSES)[numbers - 7]
    np.testing.assert_array_equal(after.predict(Table(*FEATURES)), expected)
    key = ClientKey.generate(program.parameters)
    found = after.predict(X, how="encrypted", key=key, session=Session(key.evaluation_keys()))
    np.testing.assert_array_equal(found, expected)
    assert program.digest != after.program.digest and program.graph is after.program.graph


def test_they_are_kept_in_files_and_told_to_clients(program: Program):
    made = named(program, FEATURES, CLASSES)
    again = program_from_bytes(program_to_bytes(made))
    assert again.digest == made.digest
    client = ClientSpecification.from_json(CompiledModel(again).client.to_json())
    with pytest.raises(ShapeError, match="the order differs"):
        client.inputs(Table(*reversed(FEATURES)))
    with pytest.raises(ShapeError, match=r"missing \['width'\], unexpected \['weight'\]"):
        client.inputs(Table("weight", FEATURES[1]))
    np.testing.assert_array_equal(client.inputs(Table(*FEATURES)), CompiledModel(program).client.inputs(X))


def test_other_numbers_of_names_are_refused(program: Program):
    for features, classes in ((FEATURES[:1], None), ((), None), (None, CLASSES[:2]), (None, (*CLASSES, "other"))):
        with pytest.raises(CompileError, match="as many names"):
            named(program, features, classes)
    assert named(program).digest == program.digest


def test_a_network_has_neither():
    network = load_model("mnist-mlp-1x30").program
    with pytest.raises(CompileError, match="features: "):
        named(network, features=[str(i) for i in range(784)])
    with pytest.raises(CompileError, match="classes: "):
        named(network, classes=[str(i) for i in range(10)])


def test_the_largest_score_may_be_picked_under_encryption(program: Program):
    last = named(program, classes=CLASSES).output_steps[-1]
    assert last.labels.tolist() == list(CLASSES) and isinstance(last, Pick) == (program.facts.tell == "labels")
