"""On real Ray: this machine without an address, a cluster of two nodes, a third that is lost, S3, Parquet, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloakwork.app.batch import BatchOptions, score_batch
from cloakwork.app.batch.errors import BatchError
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.switched_ciphertexts import load_results

ray = pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
# Ray's own: processes and sockets that it leaves to the end of this one.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BUCKET = "s3://batches"


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    """moto's server, in the environment of this process and of those that Ray starts; its bucket is `batches`."""
    pytest.importorskip("moto")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    values = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**values, "AWS_REGION": "us-east-1"}.items():
            patch.setenv(name, value)
        import httpx

        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                httpx.put(
                    f"{url}/batches", trust_env=False, headers={"Authorization": "AWS test:test"}
                ).raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(0.2)
        yield
    server.terminate()
    server.wait(30)


@pytest.fixture(scope="module")
def cluster(s3: None) -> Iterator[Any]:
    """Two nodes of one CPU each on this machine."""
    from ray.cluster_utils import Cluster

    options = {"num_cpus": 1, "object_store_memory": 200 << 20}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
        made.add_node(**options)
        made.wait_for_nodes()
        yield made
        made.shutdown()


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
    with pytest.raises(BatchError, match="it is empty or not there"):
        score_batch(program, data.keys, tmp_path / "none", target)
    with pytest.raises(ParameterError, match="expected cpu or cuda"):
        BatchOptions(device="cuda:1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(BatchError, match=f"the cluster at {address} does not answer within 10 s"):
            score_batch(program, data.keys, source, target, BatchOptions(address=address))
    with socket.socket() as other_service:
        other_service.bind(("127.0.0.1", 0))
        other_service.listen()
        address = f"127.0.0.1:{other_service.getsockname()[1]}"
        with pytest.raises(BatchError, match="does not answer within 3 s, though something does there"):
            score_batch(program, data.keys, source, target, BatchOptions(address=address, wait_seconds=3.0))
    with pytest.raises(BatchError, match="expected HOST:PORT"):
        score_batch(program, data.keys, source, target, BatchOptions(address="ray://head:10001"))


def test_a_missing_extra_says_how_to_install_it(data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BatchError, match=r"batch scoring needs ray; .*\[batch\]"):
        score_batch(data.model.program, data.keys, tmp_path, tmp_path / "out")


def test_a_cluster_of_two_nodes_s3_to_a_folder_and_back(cluster, data, tmp_path: Path):
    from cloakwork.app.batch.store import Store

    names = data.names[:12]
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


def test_a_table_on_the_cluster_has_the_digest_of_the_same_files(cluster, data, tmp_path: Path):
    names = data.names[:20]
    (tmp_path / "in").mkdir()
    table = pa.table({"name": names, "x": pa.array([data.inputs[name] for name in names], pa.binary())})
    pq.write_table(table, tmp_path / "in" / "rows.parquet", row_group_size=8)
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


def test_a_cluster_that_others_fill_is_not_waited_for_without_end(cluster, data, tmp_path: Path):
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


def test_a_node_that_is_removed_in_the_middle_changes_no_byte(cluster, data, tmp_path: Path):
    third, removed = cluster.add_node(num_cpus=1, object_store_memory=200 << 20), list[int]()
    cluster.wait_for_nodes()

    def progress(done: int, total: int) -> bool:
        if done > total // 4 and not removed:
            removed.append(done)
            cluster.remove_node(third)
        return True

    source = data.write(tmp_path / "in")
    (source / "damaged").write_bytes(data.inputs[data.names[0]][:-1] + b"x")
    record = score_batch(
        data.model.program, data.keys, source, tmp_path / "out", on(cluster, deterministic=True), progress
    )
    assert removed and removed[0] < record["samples"]
    assert results_in(tmp_path / "out") == data.results
    assert record["sha256"] == sha256([data.results[name] for name in data.names])
    assert [failure["input"] for failure in record["failures"]] == ["damaged"]
    assert record["samples"] == sum(data.samples.values()) and record["workers"] == 3


def command(data, source: Path, target: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "cloakwork.app.cli", "batch", "score", "--model", "iris-tree", "--keys", str(data.keys),
        "--input", str(source), "--output", str(target), "--deterministic", "--json", "-", *more,
    ]  # fmt: skip


def test_the_command_on_this_machine_is_cut_off_goes_on_and_says_what_failed(data, tmp_path: Path):
    source, target = data.write(tmp_path / "in"), tmp_path / "out"
    (source / "damaged").write_bytes(b"no ciphertexts")
    first = subprocess.Popen(
        command(data, source, target), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    deadline = time.monotonic() + 120
    while len(list(target.glob("*.results"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    output, errors = first.communicate(timeout=60)
    assert (first.returncode, output, errors) == (130, "", "cloakwork: interrupted\n")
    there = results_in(target)
    assert 3 <= len(there) < len(data.names) and all(data.results[name] == body for name, body in there.items())
    (target / f"{min(there)}.results").write_bytes(b"damaged since")

    second = subprocess.Popen(command(data, source, target), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(results_in(target)) <= len(there) and second.poll() is None:
        time.sleep(0.02)
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
