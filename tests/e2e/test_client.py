"""The client against a real server process: keys sent once, answers right, interruptions survived."""

from __future__ import annotations

import asyncio
import functools
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import several_tensors as tensors
from scoring_server import Server, running, toy_model
from sklearn.tree import DecisionTreeClassifier

import cloakwork as cw
from cloakwork.app.client import AsyncClient, Client
from cloakwork.app.client.errors import ConnectionLostError, ServiceError
from cloakwork.app.client.keyring import Keyring
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.compiled import CompiledModel

MODEL = "toy"
Call = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.os_entropy


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It takes three samples at once; beside the toy model it has one of several inputs and outputs."""
    data = tmp_path_factory.mktemp("small")
    (data / "models" / MODEL).mkdir(parents=True)
    toy_model().save(data / "models" / MODEL / "1.clkm")
    (data / "models" / "two").mkdir()
    several_tensors_model().save(data / "models" / "two" / "1.clkm")
    (data / "models" / "tree").mkdir()
    cw.compile(tree(), samples(200), sets="toy_two_limb", accuracy=0).save(data / "models" / "tree" / "1.clkm")
    with running(data, environment={"MAX_SAMPLES": "3"}) as started:
        yield started


@functools.cache
def several_tensors_model() -> CompiledModel:
    options: dict[str, Any] = {"precision": 2.0, "weight_bits": 4, "accuracy": 0}
    proto, toy = tensors.image_and_table(np.random.default_rng(2)), parameter_set("toy_two_limb")
    return cw.compile(proto, tensors.samples(np.random.default_rng(3), 200), sets=[toy], **options)


@functools.cache
def tree() -> DecisionTreeClassifier:
    x = samples(200)
    return DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, np.digitize(x[:, 0], (-0.3, 0.3)))


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "keys", "word")


def samples(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.7, 0.7, (count, 4))


def agrees(predictions: np.ndarray, x: np.ndarray) -> bool:
    """Within what noise and rounding of the toy parameters may do."""
    expected = np.asarray(toy_model().predict(x), dtype=np.float64)
    return bool(np.abs(predictions - expected).max() < 0.25 * np.abs(expected).max())


def test_the_key_is_sent_once(server: Server, keyring: Keyring) -> None:
    x = samples(3)
    with Client(server.url, keyring=keyring) as client:
        assert MODEL in client.models()
        first, second = client.score(MODEL, x), client.score(MODEL, x)
    assert agrees(first.predictions, x) and agrees(second.predictions, x)
    assert (
        first.key_uploaded
        and first.upload_bytes == keyring.evaluation_keys("toy_two_limb", server=server.url).stat().st_size
    )
    assert not second.key_uploaded
    assert 0 < second.compute_seconds <= second.seconds
    with Client(server.url, keyring=Keyring(keyring.folder, "word")) as again:
        assert again.score(MODEL, x).upload_bytes == 0


@pytest.mark.tier("all")
def test_several_inputs_and_outputs(small_server: Server, tmp_path: Path, keyring: Keyring, call: Call) -> None:
    """By name, in order and from the command line; what is wrong with them is told before anything is sent."""
    x = tensors.samples(np.random.default_rng(3), 200)
    few = {name: array[:5] for name, array in x.items()}
    expected = several_tensors_model().predict(few)
    with Client(small_server.url, keyring=keyring) as client:
        assert client.models() == [MODEL, "tree", "two"]
        fhe = client.call("GET", "/v2/models/two")["parameters"]["fhe"]
        assert [(each["name"], each["shape"]) for each in fhe["inputs"]] == [
            ("image", [-1, 1, 4, 4]),
            ("table", [-1, 3]),
        ]
        assert [each["name"] for each in fhe["outputs"]] == ["probabilities", "embedding"]
        scores = client.score("two", few)
        assert scores.samples == 5
        for found in (scores.predictions, client.predict("two", tuple(few.values()))):
            for name, clear in expected.items():
                assert found[name].shape == clear.shape and np.abs(found[name] - clear).max() < 0.3
        for wrong, message in (
            ({"image": few["image"]}, "missing 'table'"),
            (few["image"], "several inputs"),
            ((few["image"],), "several|tuple"),
        ):
            with pytest.raises(ShapeError, match=message):
                client.predict("two", wrong)
        np.savez(tmp_path / "few.npz", **few)
        arguments = [
            "score",
            str(tmp_path / "few.npz"),
            "--url",
            small_server.url,
            "--model",
            "two",
            "--out",
            str(tmp_path / "answers.npz"),
        ]
        result = call(*arguments)
        assert result.returncode == 0, result.stderr
    with np.load(tmp_path / "answers.npz") as answers:
        assert sorted(answers.files) == ["embedding", "probabilities"] and answers["embedding"].shape == (5, 4)


def test_probabilities_as_of_scikit_learn(small_server: Server, keyring: Keyring) -> None:
    x = samples(2, seed=1)

    async def asked() -> Any:
        async with AsyncClient(small_server.url, keyring=keyring) as client:
            return await client.predict_proba("tree", x)

    with Client(small_server.url, keyring=keyring) as client:
        np.testing.assert_allclose(client.predict_proba("tree", x), tree().predict_proba(x), atol=0.1)
        assert client.predict("tree", x).tolist() == tree().predict(x).tolist()
        with pytest.raises(ParameterError, match="'toy': expected output 'labels' or 'scores'"):
            client.predict_proba(MODEL, x)
    np.testing.assert_allclose(asyncio.run(asked()), tree().predict_proba(x), atol=0.1)


@pytest.mark.tier("all")
def test_a_dict_for_a_model_of_one_input(server: Server, keyring: Keyring) -> None:
    with Client(server.url, keyring=keyring) as client:
        for wrong in ({"x": samples(2)}, (samples(2), np.zeros((3, 3)))):
            with pytest.raises(ShapeError, match="one input"):
                client.predict(MODEL, wrong)


def test_a_key_that_the_server_lost_is_sent_again(server: Server, keyring: Keyring) -> None:
    with Client(server.url, keyring=keyring) as client:
        client.predict(MODEL, samples(1))
        for key in client.call("GET", "/v2/keys")["keys"]:
            client.call("DELETE", f"/v2/keys/{key['id']}")
        assert client.score(MODEL, samples(1)).key_uploaded


@pytest.mark.tier("all")
def test_many_at_once(server: Server, keyring: Keyring) -> None:
    async def score() -> list[np.ndarray]:
        async with AsyncClient(server.url, keyring=keyring) as client:
            await client.predict(MODEL, samples(1))
            return list(await asyncio.gather(*(client.predict(MODEL, samples(2, seed)) for seed in range(8))))

    for seed, predictions in enumerate(asyncio.run(score())):
        assert agrees(predictions, samples(2, seed))


@pytest.mark.tier("all")
def test_a_batch_beyond_the_largest_goes_in_parts(small_server: Server, keyring: Keyring) -> None:
    with Client(small_server.url, keyring=keyring) as client:
        x = samples(8)
        scores = client.score(MODEL, x)
    assert agrees(scores.predictions, x)


@pytest.mark.tier("all")
def test_jobs_report_progress(job_server: Server, keyring: Keyring) -> None:
    seen: set[str] = set()
    with Client(job_server.url, keyring=keyring) as client:
        x = samples(4)
        scores = client.score(MODEL, x, progress=lambda what, *_: seen.add(what))
        assert client.call("GET", "/v2/jobs")["jobs"][0]["state"] == "done"
    assert agrees(scores.predictions, x)
    assert {"keys", "upload"} <= seen


@pytest.mark.tier("all")
def test_a_server_that_restarts_is_waited_for(tmp_path: Path, keyring: Keyring) -> None:
    (tmp_path / "models" / MODEL).mkdir(parents=True)
    toy_model().save(tmp_path / "models" / MODEL / "1.clkm")
    with running(tmp_path) as server, Client(server.url, keyring=keyring) as client:
        x = samples(2)
        client.predict(MODEL, x)
        server.kill()
        restarting = threading.Thread(target=server.start)
        restarting.start()
        deadline = time.monotonic() + 300
        while True:  # the client waits some seconds by itself
            try:
                predictions = client.predict(MODEL, x)
                break
            except ServiceError as error:  # not there, or still reading its models
                assert error.status in (None, 503) and time.monotonic() < deadline
        restarting.join()
    assert agrees(predictions, x)


def test_errors_say_what_to_do(server: Server, keyring: Keyring) -> None:
    with Client(server.url, keyring=keyring) as client:
        with pytest.raises(ServiceError, match="nothing") as unknown:
            client.predict("nothing", samples(1))
        assert unknown.value.status == 404
        with pytest.raises(ShapeError, match="4"):
            client.predict(MODEL, np.zeros((1, 5)))
        with pytest.raises(ShapeError, match="at least one"):
            client.predict(MODEL, [])
    with Client("http://127.0.0.1:9", keyring=keyring) as nobody, pytest.raises(ConnectionLostError, match="running"):
        nobody.models()


def test_score_command(server: Server, tmp_path: Path, call: Call) -> None:
    x = samples(5)
    np.savetxt(tmp_path / "samples.csv", x, delimiter=",", header="a,b,c,d", comments="")
    command = ["score", "samples.csv", "--url", server.url, "--model", MODEL, "--json", "-"]
    passphrase = {"CLOAKWORK_PASSPHRASE": "word"}
    records = []
    for _ in range(2):
        done = call(*command, environment=passphrase)
        assert done.returncode == 0, done.stderr
        records.append(json.loads(done.stdout))
    assert [record["key_uploaded"] for record in records] == [True, False]
    assert records[1]["samples"] == 5 and records[1]["upload_bytes"] == 0 and records[1]["ciphertext_bytes"] > 0
    assert agrees(np.array(records[1]["predictions"]), x)
    assert records[1]["seconds_per_sample"] > 0
    shutil.rmtree(tmp_path / "home")
    done = call(*command)  # no passphrase, and no terminal to ask on: a key of that run only
    assert done.returncode == 0 and "no passphrase" in done.stderr, done.stderr
    assert agrees(np.array(json.loads(done.stdout)["predictions"]), x)
    assert not (tmp_path / "home").exists()
    (tmp_path / "samples.csv").write_text("a,b\n1,2\n")
    wrong = call(*command, environment=passphrase)
    assert wrong.returncode == 1 and len(wrong.stderr.splitlines()) == 1
