"""A model whose file is damaged or gone is unavailable with the reason, the service is not ready, and accepted jobs wait for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from in_process import LocalServer, serving
from postgresql import needs_postgresql, postgresql
from scoring_server import User, becomes, toy_model

Fill = Callable[[Path], Path]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def server(tmp_path: Path, fill: Fill) -> Iterator[LocalServer]:
    data = fill(tmp_path / "data")
    (data / "models" / "other").mkdir()
    toy_model(seed=1).save(data / "models" / "other" / "1.clkm")
    with serving(data) as started:
        yield started


def artefact(server: LocalServer) -> Path:
    return server.data / "models" / "toy" / "1.clkm"


def with_waiting_job(server: LocalServer, change: Callable[[Path], object]) -> tuple[User, str, bytes]:
    """A job is accepted, the service ends, the model's file is changed, and the service starts again."""
    whole = artefact(server).read_bytes()
    with server.client() as http:
        user = User.of(http)
        user.upload()
        with server.engine_held():
            job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
            server.stop()
    change(artefact(server))
    server.start()
    return user, job, whole


def state(http: httpx.Client, job: str) -> str:
    return str(http.get(f"/v2/jobs/{job}").json()["state"])


def put(http: httpx.Client, content: bytes) -> httpx.Response:
    return http.put("/v2/repository/models/toy/versions/1", content=content)


@pytest.mark.parametrize("change", [flip, Path.unlink], ids=["flipped", "lost"])
def test_a_damaged_model_is_unavailable_and_its_job_waits(server: LocalServer, change: Callable[[Path], object]):
    _, job, whole = with_waiting_job(server, change)
    with server.client() as http:
        entries = {(each["name"], each["version"]): each for each in http.post("/v2/repository/index").json()}
        assert entries["toy", "1"]["state"] == "UNAVAILABLE" and entries["toy", "1"]["reason"]
        assert str(server.data) not in entries["toy", "1"]["reason"]
        for path in ("/v2/health/ready", "/v2/models/toy/ready", "/v2/models/toy/versions/1/ready", "/v2/models/toy"):
            answer = http.get(path)
            assert answer.status_code == 503 and entries["toy", "1"]["reason"] in answer.json()["error"], path
        assert http.post("/v2/models/toy/infer", content=b"x").status_code == 503
        assert http.get("/v2/health/live").status_code == http.get("/v2/models/other/ready").status_code == 200
        assert http.get("/v2/models").json() == {"models": ["other"]}
        assert state(http, job) == "queued" and "\nfhe_models_unavailable 1.0\n" in http.get("/metrics").text
        assert any(line["message"] == "a job waits for its model" for line in server.log_lines())
        artefact(server).write_bytes(whole)
        assert http.post("/v2/repository/models/toy/load").json()["versions"] == ["1"]
        assert http.get("/v2/health/ready").status_code == 200
        assert "\nfhe_models_unavailable 0.0\n" in http.get("/metrics").text
        server.do(resume_all(server))
        assert becomes(lambda: state(http, job), "done")
        assert not list(artefact(server).parent.glob("*.fault"))


async def resume_all(server: LocalServer) -> None:
    """As housekeeping does it after half a minute."""
    for job in await server.services.store.own_unfinished():
        await server.services.runs.resume(job)


def test_a_version_never_changes_when_it_is_repaired(server: LocalServer, tmp_path: Path):
    _, job, whole = with_waiting_job(server, flip)
    with server.client() as http:
        toy_model(seed=2).save(tmp_path / "2.clkm")
        refused = put(http, (tmp_path / "2.clkm").read_bytes())
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert put(http, whole).status_code == 201
        assert hashlib.sha256(artefact(server).read_bytes()).digest() == hashlib.sha256(whole).digest()
        assert http.get("/v2/health/ready").status_code == 200
        server.do(resume_all(server))
        assert becomes(lambda: state(http, job), "done")


def test_a_damaged_model_that_is_removed_ends_its_jobs(server: LocalServer):
    _, job, _ = with_waiting_job(server, flip)
    with server.client() as http:
        assert http.delete("/v2/repository/models/toy/versions/1?remove=true").status_code == 204
        assert http.get("/v2/health/ready").status_code == 200
        assert http.get("/v2/models/toy/versions/1").status_code == 410
        server.do(resume_all(server))
        assert becomes(lambda: state(http, job), "failed")
        server.do(server.services.models.remove_ended(keep_seconds=-1))
        assert [path.name for path in artefact(server).parent.iterdir()] == ["1.retired"]


def test_a_damaged_model_that_is_unloaded_makes_nobody_unready(server: LocalServer):
    with_waiting_job(server, flip)
    with server.client() as http:
        assert http.post("/v2/repository/models/toy/load").status_code == 422, "which says why"
        assert http.post("/v2/repository/models/toy/unload").status_code == 200
        assert http.get("/v2/health/ready").status_code == 200
        assert http.get("/v2/models/toy/ready").status_code == 410


def test_readiness_may_be_that_of_the_others(tmp_path: Path, fill: Fill):
    data = fill(tmp_path / "data")
    flip(data / "models" / "toy" / "1.clkm")
    with serving(data, environment={"STRICT_READINESS": "false"}) as server, server.client() as http:
        assert http.get("/v2/health/ready").status_code == 200
        assert http.get("/v2/models/toy/ready").status_code == 503


@pytest.mark.parametrize("change", ["flipped", "replaced", "lost"])
def test_a_file_that_changes_under_a_running_service_answers_nobody(server: LocalServer, change: str):
    """The engine reads a model at its first request; another program in its place would compute something else."""
    with server.client() as http:
        user = User.of(http)
        user.upload()
        whole = artefact(server).read_bytes()
        match change:
            case "flipped":
                flip(artefact(server))
            case "replaced":
                toy_model(seed=2).save(artefact(server))
            case "lost":
                artefact(server).unlink()
        job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
        assert becomes(lambda: any("waits for its model" in each["message"] for each in server.log_lines()), True)
        assert state(http, job) == "queued"
        artefact(server).write_bytes(whole)
        http.post("/v2/repository/models/toy/load").raise_for_status()
        server.do(resume_all(server))
        assert becomes(lambda: state(http, job), "done")
        assert http.get(f"/v2/jobs/{job}").json()["attempts"] == 1


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_damaged_copy_of_a_shared_model_is_fetched_again(tmp_path: Path, fill: Fill):
    """Of services on one database: the storage has the bytes that the row names."""
    needs_postgresql()
    pytest.importorskip("obstore")
    (tmp_path / "objects").mkdir()
    with postgresql() as database:
        shared = {"DATABASE_URL": database, "STORAGE_URL": (tmp_path / "objects").as_uri(), "THREADS": "1"}
        with serving(fill(tmp_path / "data"), environment=shared) as server, server.client() as http:
            user = User.of(http)
            user.upload()
            whole = artefact(server).read_bytes()
            flip(artefact(server))
            job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
            assert becomes(lambda: state(http, job), "done")
            assert artefact(server).read_bytes() == whole
            assert http.get("/v2/health/ready").status_code == 200
