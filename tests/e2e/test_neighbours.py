"""Nearest neighbours from a server process: an index is built, served, and asked in Python and on the command line; labels are those in clear."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import numpy as np
import pytest
from scoring_server import Server, running
from sklearn.datasets import load_digits

from cloakwork.app.cli.main import run
from cloakwork.app.client import AsyncClient, Client, Recorder
from cloakwork.app.client.errors import ServiceError
from cloakwork.app.client.key_kinds import LevelledKeys
from cloakwork.app.client.keyring import Keyring, TemporaryKeyring
from cloakwork.fhe_core.errors import CompileError, ShapeError
from cloakwork.models.audit.audit_file import AuditFile
from cloakwork.models.errors import CalibratedRangeWarning
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_file import load_index
from cloakwork.training.estimators.neighbours import KNeighborsRegressor

pytestmark = [pytest.mark.os_entropy, pytest.mark.tier("all")]
Answer = CompletedProcess[str]
TRAINING, ASKED = 1400, 12


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    return x, y


@pytest.fixture
def cloakwork(call: Callable[..., Answer], folder: Path) -> Callable[..., Answer]:
    """A command in the folder."""
    return lambda *arguments: call(*arguments, folder=folder, environment={"CLOAKWORK_PASSPHRASE": "word"})


@pytest.fixture
def record(cloakwork: Callable[..., Answer]) -> Callable[..., dict[str, Any]]:
    """What a command says in JSON."""

    def ask(*arguments: str) -> dict[str, Any]:
        done = cloakwork(*arguments, "--json", "-")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return ask


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, digits: tuple[np.ndarray, np.ndarray]) -> Path:
    """A table, and the index that the command line makes of it, in a server's data folder."""
    made, (x, y) = tmp_path_factory.mktemp("neighbours"), digits
    np.save(made / "table.npy", x[:TRAINING])
    np.save(made / "labels.npy", y[:TRAINING])
    np.save(made / "queries.npy", x[TRAINING : TRAINING + ASKED])
    (made / "data").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        build = ["index", "build", "table.npy", "--labels", "labels.npy", "--neighbors", "3", "-o", "digits.clkn"]
        assert run(build) == 0
        assert run(["models", "add", "digits.clkn", "--data", "data", "--json", "added.json"]) == 0
    added = json.loads((made / "added.json").read_text())
    assert (added["name"], added["version"], added["parameter_set"]) == ("digits", "1", "bgv12")
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with running(folder / "data") as started:
        yield started


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "keys", "word")


def test_labels_are_those_in_clear(
    server: Server, folder: Path, keyring: Keyring, digits: tuple[np.ndarray, np.ndarray]
) -> None:
    index, x = load_index(folder / "digits.clkn"), digits[0][TRAINING:][:ASKED]
    with Client(server.url, keyring=keyring) as client:
        assert client.models() == ["digits"]
        scores = client.score("digits", x)
        assert list(scores.predictions) == list(index.predict(x))
        again = client.score("digits", x[:1])
    shape = index.client.key_shape
    assert scores.upload_bytes == shape.byte_count and again.upload_bytes == 0
    assert scores.ciphertext_bytes == ASKED * again.ciphertext_bytes and 0 < scores.compute_seconds <= scores.seconds
    with Client(server.url, keyring=Keyring(keyring.folder, "word")) as later:
        assert later.score("digits", x[:1]).upload_bytes == 0
    assert sorted(path.suffix for path in keyring.folder.glob("bgv12-modulo-*")) == [".key", ".keys"]


def test_the_command_line(
    server: Server,
    folder: Path,
    digits: tuple[np.ndarray, np.ndarray],
    record: Callable[..., dict[str, Any]],
    cloakwork: Callable[..., Answer],
) -> None:
    found = record("score", "queries.npy", "--model", "digits", "--url", server.url, "--out", "labels_found.npy")
    wanted = load_index(folder / "digits.clkn").predict(digits[0][TRAINING:][:ASKED])
    assert found["predictions"] == list(wanted) == list(np.load(folder / "labels_found.npy"))
    shown = cloakwork("models", "list", "--url", server.url)
    assert "digits" in shown.stdout and "bgv12" in shown.stdout and "reason" not in shown.stdout
    cloakwork("models", "unload", "digits", "--url", server.url)
    assert "unloaded" in cloakwork("models", "list", "--url", server.url).stdout
    cloakwork("models", "load", "digits", "--url", server.url)


def test_audits(
    server: Server, folder: Path, record: Callable[..., dict[str, Any]], cloakwork: Callable[..., Answer]
) -> None:
    """Answers are made again from the index and the evaluation keys, those of the file or those that the service has; what differs is named."""
    asked = ("score", "queries.npy", "--model", "digits", "--url", server.url)
    record(*asked, "--audit", "asked.clka")
    record(*asked, "--audit", "keyless.clka", "--no-audit-keys")
    for name in ("asked.clka", "keyless.clka"):
        found = record("replay", name, "--data", "data")
        assert found["equal"] and found["result"] == "the same, byte for byte" and found["samples"] == ASKED
        assert found["sha256"] == found["answer_sha256"] and found["parameter_set"] == "bgv12"
    assert record("replay", "asked.clka", "--model", "digits.clkn")["equal"], "no audit key takes part"
    assert "no evaluation keys" in cloakwork("replay", "keyless.clka", "--model", "digits.clkn").stderr
    NeighbourIndex.build(np.eye(64), np.arange(64), n_neighbors=1).save(folder / "other.clkn")
    other = cloakwork("replay", "asked.clka", "--model", "other.clkn")
    assert other.returncode == 1 and "another index" in other.stderr and "Traceback" not in other.stderr
    file = AuditFile.open(folder / "asked.clka")
    request, answer = file.request(0), bytearray(file.answer(0))
    answer[200] ^= 1  # the least significant bits of a word
    recorder = Recorder(folder / "altered.clka")
    recorder.take(request, answer[:-32] + hashlib.sha256(answer[:-32]).digest(), {"fhe-audit-key": "ab" * 8})
    (folder / "sent.keys").write_bytes(file.keys())
    manifest = file.manifest
    recorder.write("digits", "1", bytes.fromhex(manifest.program), server.url, folder / "sent.keys")
    altered = cloakwork("replay", "altered.clka", "--data", "data")
    assert altered.returncode == 1 and "1 of its 1 ciphertexts are other ones" in altered.stderr


def test_a_regressor_and_jobs(tmp_path: Path, digits: tuple[np.ndarray, np.ndarray]) -> None:
    """Of an estimator; a server that answers nothing at once, and one that has forgotten the keys."""
    x, y = digits
    index = KNeighborsRegressor(3, weights="distance").fit(x[:300], y[:300]).compile(accuracy=0.85)
    (tmp_path / "data" / "models" / "values").mkdir(parents=True)
    index.save(tmp_path / "data" / "models" / "values" / "1.clkn")
    seen: set[str] = set()
    with running(tmp_path / "data", environment={"SYNCHRONOUS_SECONDS": "1e-9"}) as server:
        with Client(server.url, keyring=TemporaryKeyring(tmp_path)) as client:
            found = client.score("values", x[300:303], progress=lambda what, *_: seen.add(what))
            assert list(found.predictions) == list(index.predict(x[300:303])) and found.compute_seconds > 0
            for key in client.call("GET", "/v2/keys")["keys"]:
                client.call("DELETE", f"/v2/keys/{key['id']}")
            assert client.score("values", x[300:301]).key_uploaded
            assert {job["state"] for job in client.call("GET", "/v2/jobs")["jobs"]} == {"done"}
        assert httpx.get(f"{server.url}/v2/keys", trust_env=False).json()["keys"] == [], (
            "a temporary key leaves with its client"
        )
    assert "upload" in seen


def test_many_at_once(server: Server, folder: Path, keyring: Keyring, digits: tuple[np.ndarray, np.ndarray]) -> None:
    index, x = load_index(folder / "digits.clkn"), digits[0][TRAINING:]

    async def score() -> list[np.ndarray]:
        async with AsyncClient(server.url, keyring=keyring) as client:
            await client.predict("digits", x[:1])
            return list(await asyncio.gather(*(client.predict("digits", x[i : i + 2]) for i in range(6))))

    for i, labels in enumerate(asyncio.run(score())):
        assert list(labels) == list(index.predict(x[i : i + 2]))


def test_what_is_wrong_is_told_before_anything_is_sent(server: Server, keyring: Keyring) -> None:
    with Client(server.url, keyring=keyring) as client:
        for wrong in (np.zeros((1, 5)), np.zeros(64), np.array([["a"] * 64]), {"x": np.zeros((1, 64))}):
            with pytest.raises(ShapeError, match="input"):
                client.predict("digits", wrong)
        assert not list(keyring.folder.glob("*"))
        with pytest.warns(CalibratedRangeWarning):
            client.predict("digits", np.full((1, 64), 99.0))


def test_answers_and_specifications_that_are_made_up(
    server: Server, folder: Path, keyring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server sends is checked before it is believed."""
    with Client(server.url, keyring=keyring) as client:
        model = client.model("digits")
        key = keyring.key(model.keys)
        index = load_index(folder / "digits.clkn")
        rows = model.rows(np.zeros((1, 64)))
        scorer = index.scorer(index.client.evaluation_keys(key))
        answer = scorer.score(index.client.encrypt_integers(key, rows[0]))
        assert list(model.decrypt(key, answer.to_bytes(), rows)) == list(index.predict(np.zeros((1, 64))))
        twice = scorer._keys.backend.concatenate([answer.words, answer.words])
        with pytest.raises(ServiceError, match="expected the scores"):
            model.decrypt(key, type(answer)(**{**vars(answer), "words": twice}).to_bytes(), rows)
    other = NeighbourIndex.build(np.eye(3), [1, 2, 3], n_neighbors=1)
    with pytest.raises(CompileError):
        type(other.client).from_json(other.client.to_json().replace('"rows": 3', '"rows": 4'))
    assert LevelledKeys(other.client.key_shape).name != LevelledKeys(index.client.key_shape).name
