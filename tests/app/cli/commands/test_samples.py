"""`cloakwork samples`: what it writes is what the next command reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cloakwork as cw
from cloakwork.app.cli.main import run
from cloakwork.app.client.table import read_samples
from cloakwork.fhe_core.errors import ShapeError
from cloakwork.models import zoo

NAMES = ("iris", "breast-cancer", "wine", "digits", "drawn-digits")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def listed() -> dict[str, dict]:
    assert run(["samples", "--json", "list.json"]) == 0
    return {each["name"]: each for each in json.loads(Path("list.json").read_text())["samples"]}


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("iris", ".csv"),
        ("breast-cancer", ".npy"),
        *(
            pytest.param(name, ending, marks=pytest.mark.tier("all"))
            for name in NAMES
            for ending in (".csv", ".npy")
            if (name, ending) not in (("iris", ".csv"), ("breast-cancer", ".npy"))
        ),
    ],
)
def test_its_model_reads_them_and_is_right(name: str, ending: str):
    facts = listed()[name]
    assert run(["samples", name, "-o", f"x{ending}", "--labels", "y.npy", "--json", "written.json"]) == 0
    written = json.loads(Path("written.json").read_text())
    assert (written["samples"], written["numbers"], written["model"]) == (
        facts["samples"],
        facts["numbers"],
        facts["model"],
    )
    table, labels = read_samples(Path(f"x{ending}")), np.load("y.npy")
    found = np.asarray(zoo.load_model(facts["model"]).predict(table))
    answers = found.argmax(axis=1) if found.ndim > 1 else found
    assert answers.dtype.kind == labels.dtype.kind and (answers == labels).mean() >= 0.9
    if ending == ".npy":
        assert run(["simulate", facts["model"], "--data", "x.npy", "--labels", "y.npy"]) == 0


def test_a_column_of_another_name_is_refused():
    assert run(["samples", "iris"]) == 0
    path = Path("iris.csv")
    path.write_text(path.read_text().replace("petal width", "petal colour", 1))
    with pytest.raises(ShapeError, match="petal colour"):
        zoo.load_model("iris-tree").predict(read_samples(path))


@pytest.mark.tier("all")
def test_the_network_compiles_with_its_inputs(capsys: pytest.CaptureFixture[str]):
    assert run(["samples", "onnx", "-o", "made/here", "--number", "10", "--labels", "y.npy"]) == 0
    folder = Path("made/here")
    model = cw.compile(folder / "model.onnx", np.load(folder / "inputs.npy"))
    x, labels = np.load(folder / "x.npy"), np.load("y.npy")
    assert x.shape == (10, 784) and (np.asarray(model.predict(x)).argmax(axis=1) == labels).mean() >= 0.9
    capsys.readouterr()
    before = (folder / "x.npy").read_bytes()
    assert run(["samples", "onnx", "-o", "made/here"]) == 1
    assert "would be overwritten" in capsys.readouterr().err and (folder / "x.npy").read_bytes() == before
    assert run(["samples", "onnx", "-o", "made/here", "--force"]) == 0 and len(np.load(folder / "x.npy")) == 30


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["mnist"], 2, "there are samples of iris,"),
        (["iris", "-o", "iris.xlsx"], 2, ".csv or .npy"),
        (["iris", "--labels", "y.csv"], 2, "ends in .npy"),
        (["iris", "--number", "0"], 2, "--number"),
        (["iris", "-o", "nowhere/iris.csv"], 1, "nowhere"),
        (["iris", "-o", "there.csv"], 1, "would be overwritten"),
        (["iris", "--labels", "there.npy"], 1, "would be overwritten"),
    ],
)
def test_wrong_calls_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, says: str
):
    kept = {"there.csv", "there.npy"}
    for name in kept:
        (tmp_path / name).write_text("mine")
    assert run(["samples", *arguments]) == status
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(kept, "mine")


def test_the_first_ones_are_taken():
    assert run(["samples", "wine", "--number", "3"]) == 0
    assert len(read_samples(Path("wine.csv"))) == 3


def test_labels_of_another_kind_than_the_model_s_answers_are_refused(capsys: pytest.CaptureFixture[str]):
    assert run(["samples", "iris", "-o", "x.npy", "--number", "4"]) == 0
    np.save("numbers.npy", np.arange(4))
    capsys.readouterr()
    assert run(["simulate", "iris-tree", "--data", "x.npy", "--labels", "numbers.npy"]) == 2
    assert "answers with names such as" in capsys.readouterr().err
