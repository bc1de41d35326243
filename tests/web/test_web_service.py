"""The browser's client in Node against a real service: keys sent once and in parts, resumed where they were lost, answers as Python's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from neighbour_user import small_index
from scoring_server import Server, running

from cloakwork.app.cli.shared.sample_digits import sample_digits
from cloakwork.app.client import Client
from cloakwork.app.client.keyring import Keyring
from cloakwork.fhe_core.parameters import parameter_set, upload_bytes
from cloakwork.models import zoo
from cloakwork.models.batches.build import compile_batch
from cloakwork.models.linear.linear_model import LinearModel

pytestmark = [pytest.mark.os_entropy, pytest.mark.tier("all")]
NETWORK, TREE, INDEX, BATCH = "mnist-mlp-1x30", "iris-tree", "near", "sums"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("server")
    for name in (NETWORK, TREE):
        (data / "models" / name).mkdir(parents=True)
        zoo.load_model(name).save(data / "models" / name / "1.clkm")
    (data / "models" / INDEX).mkdir()
    small_index(100).save(data / "models" / INDEX / "1.clkn")
    (data / "models" / BATCH).mkdir()
    linear, x = LinearModel(np.ones((1, 6)), np.zeros(1)), np.random.default_rng(0).normal(size=(20, 6))
    compile_batch(linear, x, batch=50).save(data / "models" / BATCH / "1.clkb")
    with running(data) as started:
        yield started


def score(web: Path, server: Server, model: str, folder: Path, x: np.ndarray, **variables: str) -> dict[str, Any]:
    (folder / "samples.json").write_text(json.dumps(x.tolist()))
    done = subprocess.run(
        ["node", str(web / "test" / "score.mjs"), server.url, model, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "scores.json").read_text())
    return found


def test_labels_are_those_of_python_under_the_same_key(web: Path, server: Server, tmp_path: Path) -> None:
    x = zoo.held_out(TREE).x[:20]
    found = score(web, server, TREE, tmp_path, x)
    assert found["models"] == sorted([NETWORK, TREE, INDEX, BATCH])
    assert found["uploadBytes"] == upload_bytes(parameter_set("lut3")) and found["again"] == 0
    assert {what for what, _, _ in found["seen"]} >= {"keys", "upload"}
    with Client(server.url, keyring=Keyring(tmp_path / "keys", "word")) as client:
        same = client.score(TREE, x)
    assert same.upload_bytes == 0  # the keys that Node made and uploaded
    np.testing.assert_array_equal(found["predictions"], same.predictions)
    np.testing.assert_array_equal(found["predictions"], zoo.held_out(TREE).clear[:20])


@pytest.mark.parametrize("lose", ["before", pytest.param("after", marks=pytest.mark.tier("release")), "third"])
@pytest.mark.parametrize("temporary", ["0", pytest.param("1", marks=pytest.mark.tier("release"))])
def test_a_lost_part_of_the_keys_is_sent_again(
    web: Path, server: Server, tmp_path: Path, lose: str, temporary: str
) -> None:
    """And no other, while the rest is still being made: the server says how far it got."""
    x = sample_digits()[0][:4]
    found = score(web, server, NETWORK, tmp_path, x, CLOAKWORK_LOSE=lose, CLOAKWORK_TEMPORARY=temporary)
    size, part = upload_bytes(parameter_set("lut2")), 4 << 20
    assert found["parts"] == -(-size // part) + (lose != "after")
    assert found["uploadBytes"] == size - {"before": 0, "after": part, "third": part // 3}[lose]
    steps = [what for what, _, _ in found["seen"]]
    assert steps.index("upload") < len(steps) - 1 - steps[::-1].index(
        "keys"
    )  # a part was there before the last was made
    labels = np.asarray(found["predictions"]["data"]).reshape(found["predictions"]["shape"]).argmax(axis=1)
    np.testing.assert_array_equal(labels, np.asarray(zoo.load_model(NETWORK).predict(x)).argmax(axis=1))


def test_keys_that_the_server_forgets_half_way_are_made_and_sent_anew(
    web: Path, server: Server, tmp_path: Path
) -> None:
    x = sample_digits()[0][:2]
    found = score(web, server, NETWORK, tmp_path, x, CLOAKWORK_LOSE="forgotten")
    size, part = upload_bytes(parameter_set("lut2")), 4 << 20
    assert found["parts"] == 2 + -(-size // part) and found["uploadBytes"] == size
    labels = np.asarray(found["predictions"]["data"]).reshape(found["predictions"]["shape"]).argmax(axis=1)
    np.testing.assert_array_equal(labels, np.asarray(zoo.load_model(NETWORK).predict(x)).argmax(axis=1))


def test_a_server_that_is_gone_for_good_is_told(web: Path, server: Server, tmp_path: Path) -> None:
    """Nothing half-made is kept as keys, beside the secret one and what the model was."""
    with pytest.raises(AssertionError, match="ConnectionLostError"):
        score(web, server, NETWORK, tmp_path, sample_digits()[0][:1], CLOAKWORK_LOSE="good")
    assert sorted(path.suffix for path in (tmp_path / "keys").iterdir()) == [".json", ".key"]


def test_temporary_keys_leave_the_server_with_their_client(web: Path, server: Server, tmp_path: Path) -> None:
    with server.client() as http:
        before = {key["id"] for key in http.get("/v2/keys").json()["keys"]}
        score(web, server, TREE, tmp_path, zoo.held_out(TREE).x[:2], CLOAKWORK_TEMPORARY="1")
        assert {key["id"] for key in http.get("/v2/keys").json()["keys"]} == before
    assert not list((tmp_path / "keys").iterdir())


def test_refusals_are_errors_of_their_class(web: Path, server: Server, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ServiceError"):
        score(web, server, "nothing", tmp_path, np.zeros((1, 4)))
    with pytest.raises(AssertionError, match=r"ShapeError: input: expected an array of shape \['samples', 4\]"):
        score(web, server, TREE, tmp_path, np.zeros((1, 5)))


def test_long_runs_are_jobs_and_large_batches_several_requests(web: Path, tmp_path: Path) -> None:
    x, expected = zoo.held_out(TREE).x[:7], zoo.held_out(TREE).clear[:7]
    (tmp_path / "data" / "models" / TREE).mkdir(parents=True)
    zoo.load_model(TREE).save(tmp_path / "data" / "models" / TREE / "1.clkm")
    with running(tmp_path / "data", environment={"SYNCHRONOUS_SECONDS": "1e-9", "MAX_SAMPLES": "3"}) as slow:
        found = score(web, slow, TREE, tmp_path, x)
        with slow.client() as http:
            assert len(http.get("/v2/jobs").json()["jobs"]) == 6  # scored twice, three requests each
    np.testing.assert_array_equal(found["predictions"], expected)
    assert found["computeSeconds"] > 0


@pytest.mark.parametrize("name, kind", [(INDEX, "an index of nearest neighbours"), (BATCH, "a model for batches")])
def test_other_kinds_are_left_to_python(web: Path, server: Server, name: str, kind: str) -> None:
    """It is listed, and named when it is asked; before a key is made."""
    script = f"""
        import {{ Client }} from "{web}/dist/index.js";
        const client = new Client(process.argv[1]);
        console.log(JSON.stringify(await client.models()));
        await client.predict("{name}", [[1, 2, 3, 4, 5, 6]]).catch(({{ name, message }}) => console.log(name, message));
    """
    command = ["node", "--input-type=module", "--eval", script, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    listed, refused = done.stdout.splitlines()
    assert name in json.loads(listed)
    assert refused.startswith(f"UnsupportedError model '{name}' is {kind}")
