"""Files of indices and of models for batches on the command line: inspected, added to a server's folder; refused by what takes programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import SVC

import cloakwork as cw
from cloakwork.app.cli.main import run
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.neighbours.index import NeighbourIndex

X = np.random.default_rng(4).standard_normal((90, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("kinds")
    cw.compile(SVC(kernel="rbf").fit(X, X[:, 0] > 0), X, accuracy=0).save(made / "batch.clkb")
    NeighbourIndex.build(X, X[:, 0] > 0, n_neighbors=3).save(made / "index.clkn")
    np.save(made / "x.npy", X[:3])
    (made / "data").mkdir()
    return made


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_inspect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "batch.clkb", "--client", "client.json", "--json", "batch.json", "--force"]) == 0
    assert json.loads((folder / "batch.json").read_text())["parameter_set"] == "bgv12"
    assert "as your model: 100.0 % of labels" in capsys.readouterr().out
    model = cw.load(folder / "batch.clkb")
    assert BatchClient.from_json((folder / "client.json").read_text()).to_json() == model.client.to_json()
    assert run(["inspect", "index.clkn", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 90
    assert run(["inspect", "batch.clkb", "--picture", "drawn.svg"]) == 2


@pytest.mark.parametrize("file, kind", [("batch.clkb", "a model for batches"), ("index.clkn", "an index of nearest")])
@pytest.mark.parametrize(
    "command",
    [
        "simulate @ --data x.npy",
        "run @ x.npy",
        "keygen --model @ -o keys",
        "batch score --model @ --input in --output out",
    ],
)
def test_what_takes_programs_says_so(file: str, kind: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    (Path("evaluation.keys")).touch()
    assert run(command.replace("@", file).split()) == 2
    told = capsys.readouterr().err
    assert kind in told and "cloakwork models add" in told and "Traceback" not in told


def test_models_add(folder: Path) -> None:
    for number, name in enumerate(("batch.clkb", "index.clkn"), start=1):
        assert run(["models", "add", name, "--data", "data", "--name", "mine", "--json", "added.json"]) == 0
        added = json.loads((folder / "added.json").read_text())
        assert added["version"] == str(number) and added["parameter_set"].startswith("bgv1")
    assert sorted(path.name for path in (folder / "data" / "models" / "mine").iterdir()) == ["1.clkb", "2.clkn"]


def test_damaged_files_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "damaged.clkb").write_bytes((folder / "batch.clkb").read_bytes()[:-1])
    for command in ("inspect damaged.clkb", "models add damaged.clkb --data data"):
        assert run(command.split()) == 1
        assert "damaged.clkb" in capsys.readouterr().err
