"""The zoo: every card describes its file, every model loads without data, and adding one takes a file and a card."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cases import in_tiers
from onnx_models import mlp

import cloakwork as cw
from cloakwork.fhe_core.errors import SerializationError
from cloakwork.models import zoo
from cloakwork.models.calibration import Calibration
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.compiler import calibrate
from cloakwork.models.errors import CompileError
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.bound_ranges import bound_ranges

RNG = np.random.default_rng(3)
PROTO = mlp(RNG, [6, 5, 4, 3])
SAMPLES = RNG.uniform(-1, 1, (200, 6))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo of its own with one model, `small`."""
    monkeypatch.setattr(zoo, "FOLDER", tmp_path)
    cw.compile(PROTO, SAMPLES).save(tmp_path / "any.clkm")
    known = {"description": "6-5-4-3", "data": "random", "folder": tmp_path}
    zoo.add_model("small", tmp_path / "any.clkm", facts={"seed": 3}, **known)
    return tmp_path


@pytest.mark.parametrize(
    "name", in_tiers(zoo.names(), [name for name in zoo.names() if not name.startswith("cifar10")])
)
def test_a_model_of_the_zoo_is_the_one_of_its_card_and_loads_without_data(name: str) -> None:
    card = zoo.card(name)
    assert card.description and card.data
    model = zoo.load_model(name)
    assert {name: card.facts[name] for name in zoo.program_facts(model)} == zoo.program_facts(model)
    assert model.report()["output_ciphertext_bytes"] == card.facts["answer_bytes"]


def test_a_compiled_program_is_a_model_of_the_zoo(folder: Path) -> None:
    assert zoo.names() == ("small",)
    assert zoo.card("small").facts["seed"] == 3
    model = CompiledModel.load(folder / "any.clkm")
    np.testing.assert_array_equal(zoo.load_model("small").predict(SAMPLES), model.predict(SAMPLES))


def test_a_large_program_is_kept_compressed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "_COMPRESSED_FROM", (folder / "any.clkm").stat().st_size)
    zoo.add_model("large", folder / "any.clkm", description="a program", data="random", folder=folder)
    card = zoo.card("large")
    assert card.file == "large.clkm.xz"
    assert card.path.stat().st_size < (folder / "any.clkm").stat().st_size
    assert zoo.load_model("large").program.digest == zoo.load_model("small").program.digest
    card.path.write_bytes(card.path.read_bytes()[:-1])
    with pytest.raises(SerializationError, match="large"):
        zoo.load_model("large")


def test_a_changed_file_is_refused(folder: Path) -> None:
    path = folder / "small.clkm"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(SerializationError, match=r"small\.clkm"):
        zoo.load_model("small")


def test_unknown_names_and_files_are_refused(folder: Path) -> None:
    with pytest.raises(CompileError, match="small"):
        zoo.load_model("../small")
    (folder / "model.txt").write_text("no program")
    with pytest.raises(SerializationError):
        zoo.add_model("text", folder / "model.txt", description="", data="", folder=folder)


def test_ranges_are_those_of_the_data() -> None:
    graph = restructure(import_onnx(PROTO))
    seen = calibrate(PROTO, SAMPLES)
    assert seen.input_range == (SAMPLES.min(), SAMPLES.max())
    first = graph.linears[0]
    values = SAMPLES @ first.weights[0].T + first.bias[0]
    np.testing.assert_allclose(seen.rows[0][0][0], values.min(axis=0))
    np.testing.assert_allclose(seen.rows[0][1][0], values.max(axis=0))
    stored = Calibration.from_json(seen.to_json())
    direct, through_file = bound_ranges(graph, SAMPLES), bound_ranges(graph, stored)
    assert direct.lower is not None and through_file.lower is not None
    np.testing.assert_allclose(through_file.lower, direct.lower, rtol=1e-4, atol=1e-4)


def test_ranges_of_another_model_are_refused() -> None:
    seen = calibrate(PROTO, SAMPLES)
    with pytest.raises(CompileError, match="another model"):
        cw.compile(mlp(RNG, [6, 7, 3]), seen)


@pytest.mark.parametrize("change", ["version", "swap", "nan", "text", "missing"])
def test_a_file_of_ranges_that_is_none_is_refused(change: str) -> None:
    fields = json.loads(calibrate(PROTO, SAMPLES).to_json())
    if change == "version":
        fields["cloakwork_calibration"] = 2
    elif change == "swap":
        fields["rows"][0]["low"], fields["rows"][0]["high"] = fields["rows"][0]["high"], fields["rows"][0]["low"]
    elif change == "nan":
        fields["input_range"][0] = float("nan")
    elif change == "missing":
        del fields["rows"]
    with pytest.raises(SerializationError):
        Calibration.from_json("[" if change == "text" else json.dumps(fields))
