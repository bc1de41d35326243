"""Files of indices and of models for batches on the command line: keys, requests and answers in files, inspected, added to a server's folder."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import is_regressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.svm import SVC

import cloakwork as cw
from cloakwork.app.cli.main import run
from cloakwork.models import zoo
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.neighbours.index import NeighbourIndex

X = np.random.default_rng(4).standard_normal((90, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("kinds")
    cw.compile(SVC(kernel="rbf").fit(X, X[:, 0] > 0), X, accuracy=0).save(made / "batch.clkb")
    NeighbourIndex.build(X, X[:, 0] > 0, n_neighbors=1).save(made / "index.clkn")
    np.save(made / "x.npy", X[:3])
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
def test_what_takes_programs_says_so(file: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    (Path("evaluation.keys")).touch()
    assert run(["batch", "score", "--model", file, "--input", "in", "--out", "out"]) == 2
    told = capsys.readouterr().err
    assert kind in told and "cloakwork models add" in told and "Traceback" not in told


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "index": (KNeighborsClassifier(3), {}),
    "index of values": (KNeighborsRegressor(3, weights="distance"), {}),
    "index in cells": (KNeighborsClassifier(1), {"cells": 8, "probes": 2}),
    "sums": (LogisticRegression(), {"batch": 500}),
    "regression": (Ridge(), {"batch": 500}),
    "kernel": (SVC(), {"batch": 1}),
    "program": (LogisticRegression(), {"batch": 1}),
}


@pytest.fixture(scope="module", params=KINDS)
def original(request: pytest.FixtureRequest, folder: Path) -> Any:
    """A fitted estimator, whose compiled model, client specification and samples are in the folder."""
    estimator, options = KINDS[request.param]
    labels = np.array(["low", "middle", "high"])[np.digitize(X[:, 0] + X[:, 1], (-0.5, 0.5))]
    fitted = estimator.fit(X, X @ [1.0, -0.5, 0.25] if is_regressor(estimator) else labels)
    model = cw.compile(fitted, X, accuracy=0, **options)
    model.save(folder / "model")
    (folder / "client.json").write_text(model.client.to_json())
    np.save(folder / "asked.npy", X[:5])
    return fitted


def test_keygen_encrypt_run_decrypt(
    original: Any, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has its specification alone, and the answers are those of the user's own estimator."""
    monkeypatch.setenv("CLOAKWORK_PASSPHRASE", "gravel pelican nineteen tundra")
    for command in (
        "keygen --client client.json --out keys --force",
        "encrypt asked.npy --client client.json --key keys/client.key --out x.bin --force",
        "run model x.bin --keys keys/evaluation.keys --out y.bin --force",
    ):
        assert run(command.split()) == 0, capsys.readouterr().err
    read = ["decrypt", "y.bin", "--client", "client.json", "--key", "keys/client.key", "--input", "asked.npy"]
    capsys.readouterr()
    assert run([*read, "--json", "-", "--out", "y.npy", "--force"]) == 0, capsys.readouterr().err
    record, values = json.loads(capsys.readouterr().out), np.load(folder / "y.npy", allow_pickle=False)
    assert record["values"] == values.tolist() and record["shape"] == [5]
    expected = original.predict(X[:5])
    if is_regressor(original):
        np.testing.assert_allclose(values, expected, atol=0.05)
    else:
        assert values.tolist() == expected.tolist() == record["classes"]
    assert run(read) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_simulate(original: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(folder / "true.npy", original.predict(X[:5]))
    labels = [] if is_regressor(original) else ["--labels", "true.npy"]
    assert run(["simulate", "model", "--data", "asked.npy", *labels, "--json", "-"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["agreement"] == 1 and (not labels or record["accuracy_simulated"] == 1)


def test_new_evaluation_keys_for_another_model(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOAKWORK_PASSPHRASE", "gravel pelican nineteen tundra")
    assert run(["keygen", "--model", "index.clkn", "--out", "one"]) == 0
    assert run(["keygen", "--key", "one/client.key", "--out", "two"]) == 2
    assert "--model" in capsys.readouterr().err
    assert run(["keygen", "--key", "one/client.key", "--model", "index.clkn", "--out", "two"]) == 0
    assert run(["encrypt", "x.npy", "--model", "index.clkn", "--key", "one/client.key", "--out", "index.bin"]) == 0
    assert run(["run", "index.clkn", "index.bin", "--keys", "two/evaluation.keys", "--out", "answers.bin"]) == 0
    assert run(["decrypt", "answers.bin", "--model", "index.clkn", "--key", "one/client.key", "--input", "x.npy"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [str(int(each)) for each in X[:3, 0] > 0]


def test_what_does_not_fit_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another model's key, requests and answers; too few samples; a file cut short."""
    monkeypatch.setenv("CLOAKWORK_PASSPHRASE", "gravel pelican nineteen tundra")
    np.save(folder / "few.npy", X[:2])
    np.save(folder / "wide.npy", np.zeros((2, 7)))
    for command in (
        "keygen --model index.clkn --out k --force",
        "keygen --model batch.clkb --out b --force",
        "keygen --set lut3 --out l --force",
        "encrypt x.npy --model index.clkn --key k/client.key --out q.bin --force",
        "encrypt x.npy --model batch.clkb --key b/client.key --out r.bin --force",
        "run index.clkn q.bin --keys k/evaluation.keys --out a.bin --force",
    ):
        assert run(command.split()) == 0, capsys.readouterr().err
    (folder / "cut.bin").write_bytes((folder / "a.bin").read_bytes()[:-1])
    decrypt = "decrypt a.bin --model index.clkn --key k/client.key"
    for command, status, message in (
        (
            "encrypt x.npy --model index.clkn --key l/client.key --out n.bin",
            1,
            "l/client.key: the model needs a key of parameter set 'bgv1",
        ),
        (
            "encrypt x.npy --model iris-tree --key k/client.key --out n.bin",
            1,
            "k/client.key: the model needs a key of parameter set 'lut",
        ),
        (
            "encrypt wide.npy --model index.clkn --key k/client.key --out n.bin",
            1,
            "wide.npy: expected shape [samples, 3]",
        ),
        ("encrypt 1 --key k/client.key --out n.bin", 1, "k/client.key: the key is for a model for batches or an index"),
        ("run index.clkn r.bin --keys k/evaluation.keys --out n.bin", 1, "r.bin: expected ciphertexts for program"),
        ("run index.clkn a.bin --keys k/evaluation.keys --out n.bin", 1, "expected requests, got answers"),
        ("run index.clkn q.bin --keys b/evaluation.keys --out n.bin", 1, "b/evaluation.keys: expected evaluation keys"),
        ("run index.clkn q.bin --keys l/evaluation.keys --out n.bin", 1, "l/evaluation.keys: expected evaluation keys"),
        ("run iris-tree q.bin --keys l/evaluation.keys --out n.bin", 1, "q.bin: expected ciphertexts of"),
        (decrypt, 2, "expected --input"),
        (f"{decrypt} --input few.npy", 1, "few.npy: expected the 3 samples"),
        (f"{decrypt} --input x.npy --scores", 2, "--scores"),
        (f"{decrypt.replace('a.bin', 'cut.bin')} --input x.npy", 1, "cut.bin: expected results"),
        (f"{decrypt.replace('a.bin', 'q.bin')} --input x.npy", 1, "expected answers, got requests"),
        ("decrypt a.bin --key l/client.key", 1, "a.bin: expected a file of ciphertexts"),
    ):
        assert run(command.split()) == status, command
        told = capsys.readouterr().err
        assert message in told and len(told.splitlines()) == 1, (command, told)


@pytest.mark.parametrize("model", ["batch.clkb", "index.clkn", "iris-tree"])
def test_wrong_samples_are_a_line_that_names_their_file(
    model: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOAKWORK_PASSPHRASE", "gravel pelican nineteen tundra")
    wrong = {
        "wide": np.zeros((2, 9)),
        "flat": np.zeros(3),
        "cube": np.zeros((2, 3, 3)),
        "none": np.zeros((0, 3)),
        "names": np.array([["a", "b", "c"]]),
    }
    for name, array in wrong.items():
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "two.npz", a=X[:2], b=X[:2])
    assert run(["keygen", "--model", model, "--out", "w", "--force"]) == 0
    for source in (*(f"{name}.npy" for name in wrong), "two.npz", "nothing.npy"):
        encrypt = ["encrypt", source, "--model", model, "--key", "w/client.key", "--out", "n.bin"]
        for command in (encrypt, ["simulate", model, "--data", source]):
            capsys.readouterr()
            assert run(command) == (2 if source == "two.npz" else 1), command
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(f"cloakwork: {source}: ") and not re.search(r"\w(Error|Warning)\b", line), line
    assert not (folder / "n.bin").exists()


def test_warnings_are_lines_without_the_name_of_a_class(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all samples at once."""
    monkeypatch.setenv("CLOAKWORK_PASSPHRASE", "gravel pelican nineteen tundra")
    np.save(folder / "far.npy", np.full((4, 3), 100.0))
    assert run(["keygen", "--model", "index.clkn", "--out", "w", "--force"]) == 0
    capsys.readouterr()
    for command in (
        "encrypt far.npy --model index.clkn --key w/client.key --out far.bin --force",
        "index query far.npy --index index.clkn",
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            assert run(command.split()) == 0
        (line,) = capsys.readouterr().err.splitlines()
        assert line == "warning: 4 of 4 queries hold values beyond the table's; they count as its end"


@pytest.mark.tier("all")
def test_keys_of_another_client_name_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOAKWORK_PASSPHRASE", "gravel pelican nineteen tundra")
    np.save(folder / "iris.npy", zoo.held_out("iris-tree").x[:2])
    for command in (
        "keygen --model iris-tree --out mine --force",
        "keygen --model iris-tree --out yours --force",
        "encrypt iris.npy --model iris-tree --key mine/client.key --out iris.bin --force",
        "run iris-tree iris.bin --keys mine/evaluation.keys --out scores.bin --force",
    ):
        assert run(command.split()) == 0
    capsys.readouterr()
    for command, file in (
        ("run iris-tree iris.bin --keys yours/evaluation.keys --out n.bin", "iris.bin"),
        ("decrypt scores.bin --model iris-tree --key yours/client.key", "scores.bin"),
        ("batch score --model iris-tree --input nowhere --out n --keys mine/evaluation.keys", "--input"),
        ("batch score --model iris-tree --input data --out n --keys mine/client.key", "mine/client.key"),
        ("compile index.clkn -o n.clkm", "index.clkn is compiled already"),
        ("compile data -o n.clkm", "data: expected an ONNX file, got a folder"),
    ):
        (folder / "data").mkdir(exist_ok=True)
        assert run(command.split()) in (1, 2)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"cloakwork: {file}"), line


def test_models_add(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It makes the data folder as `serve --data` does."""
    assert run(["models", "add", "index.clkn", "--data", "new/folder", "--json", "added.json"]) == 0
    assert (folder / "new" / "folder").stat().st_mode & 0o777 == 0o700
    for number, name in enumerate(("batch.clkb", "index.clkn"), start=1):
        assert run(["models", "add", name, "--data", "data", "--name", "mine", "--json", "added.json"]) == 0
        added = json.loads((folder / "added.json").read_text())
        assert added["version"] == str(number) and added["parameter_set"].startswith("bgv1")
    assert sorted(path.name for path in (folder / "data" / "models" / "mine").iterdir()) == ["1.clkb", "2.clkn"]
    assert run(["models", "add", "index.clkn", "--data", "x.npy"]) == 1
    assert "--data: expected a folder, got the file 'x.npy'" in capsys.readouterr().err


def test_damaged_files_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "damaged.clkb").write_bytes((folder / "batch.clkb").read_bytes()[:-1])
    for command in ("inspect damaged.clkb", "models add damaged.clkb --data data"):
        assert run(command.split()) == 1
        assert "damaged.clkb" in capsys.readouterr().err
