"""On real Ray: this machine without an address, a cluster of two nodes, a third that is lost, S3, Parquet, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from command_line import WaitFor
from requirements import needs

from cloakwork.app.batch import BatchOptions, score_batch
from cloakwork.app.batch import cluster as clusters
from cloakwork.app.batch.crew import Event, News
from cloakwork.app.batch.errors import BatchError
from cloakwork.app.cli.commands import batch as batch_command
from cloakwork.app.cli.main import run as run_command
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.switched_ciphertexts import load_results

# Ray's own: processes and sockets that it leaves to the end of this one.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BUCKET = "s3://batches"


def on_ray(test: Callable[..., None]) -> Callable[..., None]:
    """Each such test for itself: what the module's other fixtures draw stays fixed."""
    return pytest.mark.tier("all")(pytest.mark.os_entropy(test))


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory, wait_for: WaitFor) -> Iterator[None]:
    """moto's server, in the environment of this process and of those that Ray starts; its bucket is `batches`."""
    needs(find_spec("moto"), "moto is not installed: pip install 'moto[server]'")
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stdout=output, stderr=output
        )
    listening = wait_for(
        lambda: server.poll() is not None or re.search(r"Running on (http://127.0.0.1:\d+)", log.read_text()),
        "S3 listens",
    )
    assert server.poll() is None, log.read_text()
    url = listening[1]
    environment = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        authorization = {"Authorization": "AWS test:test"}
        httpx.put(f"{url}/batches", trust_env=False, headers=authorization, timeout=60).raise_for_status()
        yield
    server.terminate()
    server.wait(30)


NODE = {"num_cpus": 1, "object_store_memory": 200 << 20}
STARTS = 5


def two_nodes() -> Any:
    """Ray gives up when a process of its own takes 15 s to start, as on a machine that others load: then it is started again."""
    from ray.cluster_utils import Cluster

    for left in reversed(range(STARTS)):
        started = Cluster()
        try:
            started.add_node(**NODE, include_dashboard=False)
            started.add_node(**NODE)
            started.wait_for_nodes(timeout=120)
            return started
        except Exception as error:
            started.shutdown()
            if left == 0 or "timed out during startup" not in str(error):
                raise
    raise AssertionError("unreachable")


@pytest.fixture(scope="module")
def cluster(s3: None) -> Iterator[Any]:
    """Two nodes of one CPU each on this machine."""
    needs(find_spec("ray"), "Ray is not installed: pip install '.[batch]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        started = two_nodes()
        yield started
        started.shutdown()


def on(cluster: Any, **options: Any) -> BatchOptions:
    return BatchOptions(address=cluster.address, **options)


def sha256(results: list[bytes]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in results)).hexdigest()


def results_in(folder: Path) -> dict[str, bytes]:
    return {path.name.removesuffix(".results"): path.read_bytes() for path in folder.glob("*.results")}


def test_what_is_refused_before_ray_is_started(data, tmp_path: Path):
    source, target = data.write(tmp_path / "in", data.names[:2]), tmp_path / "out"
    program = data.model.program
    secret = tmp_path / "secret"
    data.key.save(secret, "correct horse")
    other = tmp_path / "other"
    from cloakwork.fhe_core.client import ClientKey

    ClientKey.generate("toy").evaluation_keys().save(other)
    with pytest.raises(SerializationError, match="a secret key must stay with its owner"):
        score_batch(program, secret, source, target)
    with pytest.raises(KeyMismatchError, match="expected parameter set 'lut3', got 'toy'"):
        score_batch(program, other, source, target)
    with pytest.raises(ParameterError, match="expected a place apart from the input"):
        score_batch(program, data.keys, source, source / "results")
    (tmp_path / "none").mkdir()
    with pytest.raises(BatchError, match="the place is empty or missing"):
        score_batch(program, data.keys, tmp_path / "none", target)
    with pytest.raises(ParameterError, match="expected cpu or cuda"):
        BatchOptions(device="cuda:1")
    with pytest.raises(BatchError, match="expected HOST:PORT"):
        score_batch(program, data.keys, source, target, BatchOptions(address="ray://head:10001"))


@pytest.mark.parametrize("wrong", ["keys", "input", "output", "ray", "place"])
def test_a_wrong_call_ends_with_status_2(data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, wrong: str):
    """As docs/howto/batch.md has it."""
    source, target = data.write(tmp_path / "in", data.names[:1]), tmp_path / "out"
    (tmp_path / "empty").mkdir()
    target.mkdir()
    (target / "of-somebody-else").write_text("x")
    monkeypatch.setattr(batch_command, "find_model", lambda _: data.model)
    options = {"--keys": str(data.keys), "--input": str(source), "--out": str(tmp_path / "new")}
    options |= {
        "keys": {"--keys": str(tmp_path / "none")},
        "input": {"--input": str(tmp_path / "empty")},
        "output": {"--out": str(target)},
        "ray": {"--ray": "ray://head:10001"},
        "place": {"--input": "nothing://place"},
    }[wrong]
    words = [word for option in options.items() for word in option]
    assert run_command(["batch", "score", "--model", "iris-tree", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cloakwork: ")


@on_ray
def test_addresses_where_no_cluster_answers(data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    needs(find_spec("ray"), "Ray is not installed: pip install '.[batch]'")
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 1.0)
    program, source, target = data.model.program, data.write(tmp_path / "in", data.names[:2]), tmp_path / "out"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(BatchError, match=f"the cluster at {address} does not answer within 1 s"):
            score_batch(program, data.keys, source, target, BatchOptions(address=address))
    with socket.socket() as other_service:
        other_service.bind(("127.0.0.1", 0))
        other_service.listen()
        address = f"127.0.0.1:{other_service.getsockname()[1]}"
        with pytest.raises(BatchError, match="does not answer within 3 s, though something does there"):
            score_batch(program, data.keys, source, target, BatchOptions(address=address, wait_seconds=3.0))


def test_a_missing_extra_says_how_to_install_it(data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BatchError, match=r"batch scoring needs ray; .*\[batch\]"):
        score_batch(data.model.program, data.keys, tmp_path, tmp_path / "out")


@on_ray
def test_a_cluster_of_two_nodes_s3_to_a_folder_and_back(cluster, data, tmp_path: Path):
    from cloakwork.app.batch.store import Store

    names = data.names
    source = Store(f"{BUCKET}/in")
    for name in names:
        source.write(name, data.inputs[name])
    record = score_batch(
        data.model.program, data.keys, f"{BUCKET}/in", f"{BUCKET}/out", on(cluster, deterministic=True)
    )
    assert record["failures"] == [] and record["samples"] == sum(data.samples[name] for name in names)
    target = Store(f"{BUCKET}/out")
    assert [target.read(f"{name}.results") for name in names] == [data.results[name] for name in names]
    assert record["sha256"] == sha256([data.results[name] for name in names])
    with pytest.raises(BatchError, match="of another mode;"):
        score_batch(data.model.program, data.keys, f"{BUCKET}/in", f"{BUCKET}/out", on(cluster))
    local = score_batch(data.model.program, data.keys, f"{BUCKET}/in", tmp_path / "out", on(cluster))
    assert local["rerandomised"] and local["sha256"] != record["sha256"]
    bodies = (tmp_path / "out" / f"{names[0]}.results").read_bytes(), data.results[names[0]]
    found, expected = (data.model.client.decrypt(data.key, load_results(body)) for body in bodies)
    assert (found == expected).all()
    with pytest.raises(ParameterError, match="workers: expected at most 2, .* got 3"):
        score_batch(data.model.program, data.keys, f"{BUCKET}/in", tmp_path / "more", on(cluster, workers=3))


@pytest.mark.tier("release")
@on_ray
def test_a_table_on_the_cluster_has_the_digest_of_the_same_files(cluster, data, tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = data.names
    (tmp_path / "in").mkdir()
    table = pa.table({"name": names, "x": pa.array([data.inputs[name] for name in names], pa.binary())})
    pq.write_table(table, tmp_path / "in" / "rows.parquet", row_group_size=5)
    options = on(cluster, deterministic=True, column="x")
    record = score_batch(data.model.program, data.keys, tmp_path / "in", tmp_path / "out", options)
    expected = [data.results[name] for name in names]
    assert record["sha256"] == sha256(expected) and record["failed"] == 0 and record["files"] == 1
    found = pq.read_table(tmp_path / "out")  # what begins with _ is not read
    assert found.column("name").to_pylist() == names and found.column("results").to_pylist() == expected
    assert sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file()) == [
        "_cloakwork_batch.json",
        "_cloakwork_report.json",
        "rows.results.parquet",
    ]
    again = score_batch(data.model.program, data.keys, tmp_path / "in", tmp_path / "out", options)
    assert again["skipped"] == again["samples"] == record["samples"] and again["sha256"] == record["sha256"]


@pytest.mark.tier("release")
@on_ray
def test_a_cluster_that_others_fill_is_not_waited_for_without_end(cluster, data, tmp_path: Path):
    import ray

    class Idle:
        def here(self) -> bool:
            return True

    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    try:
        others = [ray.remote(Idle).options(num_cpus=1).remote() for _ in range(2)]
        ray.get([each.here.remote() for each in others])
        source = data.write(tmp_path / "in", data.names[:3])
        options = BatchOptions(deterministic=True, wait_seconds=1.0)  # on the connection that this program has
        with pytest.raises(BatchError, match="no worker was given room within 1 s: the cluster is busy"):
            score_batch(data.model.program, data.keys, source, tmp_path / "out", options)
        for each in others:
            ray.kill(each)
        record = score_batch(data.model.program, data.keys, source, tmp_path / "out", on(cluster, deterministic=True))
        assert record["files"] == 3 and ray.is_initialized()
    finally:
        ray.shutdown()


class ThreeCompute:
    """Hears a cluster's events for the dispatcher, and holds outcomes back: until three workers are ready, and then the second outcome of a worker
    until each of the three has had one. So a third worker that comes late has work to do."""

    def __init__(self, wait: Callable[[Any, float], list[Event]]) -> None:
        self._wait = wait
        self._held: list[Event] = []
        self._ready: set[int] = set()
        self.heard_of: set[int] = set()  # workers with an outcome

    def wait(self, crew: Any, seconds: float) -> list[Event]:
        told = []
        events, self._held = [*self._held, *self._wait(crew, seconds)], []
        self._ready |= {event.worker for event in events if event.news is News.READY}
        for event in events:
            if event.news is not News.OUTCOMES:
                told.append(event)
            elif len(self._ready) >= 3 and (event.worker not in self.heard_of or len(self.heard_of) >= 3):
                self.heard_of.add(event.worker)
                told.append(event)
            else:
                self._held.append(event)
        return told


@on_ray
def test_a_node_that_is_removed_in_the_middle_changes_no_byte(
    cluster, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from cloakwork.app.batch.actors import Actors

    third, removed = cluster.add_node(**NODE), list[int]()
    cluster.wait_for_nodes()
    three = ThreeCompute(Actors.wait)
    monkeypatch.setattr(Actors, "wait", lambda actors, seconds: three.wait(actors, seconds))

    def progress(done: int, total: int) -> bool:
        if len(three.heard_of) >= 3 and not removed:
            removed.append(done)
            cluster.remove_node(third)
        return True

    many = data.repeated(10)
    source = many.write(tmp_path / "in")
    (source / "damaged").write_bytes(data.inputs[data.names[0]][:-1] + b"x")
    record = score_batch(
        data.model.program, data.keys, source, tmp_path / "out", on(cluster, deterministic=True), progress
    )
    assert removed and removed[0] < record["samples"]
    assert results_in(tmp_path / "out") == many.results
    assert record["sha256"] == sha256([many.results[name] for name in many.names])
    assert [failure["input"] for failure in record["failures"]] == ["damaged"]
    assert record["samples"] == sum(many.samples.values()) and record["workers"] == 3


def command(data, source: Path, target: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "cloakwork.app.cli", "batch", "score", "--model", "iris-tree", "--keys", str(data.keys),
        "--input", str(source), "--out", str(target), "--deterministic", "--json", "-", *more,
    ]  # fmt: skip


@pytest.mark.tier("release")
@on_ray
def test_the_command_on_this_machine_is_cut_off_goes_on_and_says_what_failed(data, tmp_path: Path, wait_for: WaitFor):
    needs(find_spec("ray"), "Ray is not installed: pip install '.[batch]'")
    data = data.repeated(20)  # enough to be interrupted twice
    source, target = data.write(tmp_path / "in"), tmp_path / "out"
    (source / "damaged").write_bytes(b"no ciphertexts")
    first = subprocess.Popen(
        command(data, source, target), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    wait_for(lambda: len(list(target.glob("*.results"))) >= 3 or first.poll() is not None, "there are results")
    first.send_signal(signal.SIGINT)
    output, errors = first.communicate(timeout=60)
    assert (first.returncode, output, errors) == (130, "", "cloakwork: interrupted\n")
    there = results_in(target)
    assert 3 <= len(there) < len(data.names) and all(data.results[name] == body for name, body in there.items())
    (target / f"{min(there)}.results").write_bytes(b"damaged since")

    second = subprocess.Popen(command(data, source, target), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(results_in(target)) > len(there) or second.poll() is not None, "there are further results")
    workers = [each for each in psutil.Process(second.pid).children(recursive=True) if "ray::Worker" in each.name()]
    for each in workers[:1]:
        each.kill()
    output, errors = second.communicate(timeout=200)
    assert workers and second.returncode == 1, errors
    record = json.loads(output)
    assert {"samples", "failed", "seconds", "per_second", "workers", "sha256"} <= set(record)
    assert record["skipped"] == sum(data.samples[name] for name in there) - data.samples[min(there)]
    assert record["sha256"] == sha256([data.results[name] for name in data.names]) and record["failed"] == 1
    assert results_in(target) == data.results
    lines = errors.splitlines()
    assert (
        len(lines) == 2
        and lines[0].startswith("damaged: ")
        and lines[1].startswith("cloakwork: 1 of the inputs failed")
    )
    assert json.loads((target / "_cloakwork_report.json").read_text())["sha256"] == record["sha256"]
