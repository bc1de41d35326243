"""A model comes to one service, and every service on the same database and storage has it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from scoring_server import Server, User, becomes, running, toy_model
from two_services import Shared, pair, shared

from cloakwork.models.compiled import CompiledModel
from cloakwork.models.program.artefact import program_to_bytes

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

SEEN_SECONDS = 120.0  # five, and what a loaded machine adds


@pytest.fixture(scope="module", params=[pytest.param("file", marks=pytest.mark.tier("release")), "s3"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared(tmp_path_factory.mktemp("shared"), request.param == "s3") as found:
        yield found


@pytest.fixture(scope="module")
def services(both: Shared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("services")
    with pair(folder / "one", folder / "two", both) as found:
        yield found


@pytest.fixture(scope="module")
def artefact(compiled: CompiledModel) -> bytes:
    return program_to_bytes(compiled.program)


@pytest.fixture(scope="module")
def other() -> bytes:
    return program_to_bytes(toy_model(seed=1).program)


def send(http: httpx.Client, name: str, version: str, content: bytes) -> httpx.Response:
    return http.put(f"/v2/repository/models/{name}/versions/{version}", content=content)


def served(server: Server, name: str, version: str = "1") -> str | None:
    """SHA-256 of the bytes that a service serves, None where it has none in service."""
    with server.client() as http:
        answer = http.get(f"/v2/models/{name}/versions/{version}")
        if not answer.is_success:
            return None
        sha256: str = answer.json()["parameters"]["fhe"]["artefact_sha256"]
        return sha256


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_uploaded_at_one_and_scored_at_the_other(services: tuple[Server, Server], artefact: bytes):
    one, two = services
    with one.client() as first, two.client() as second:
        assert send(first, "sent", "1", artefact).status_code == 201
        assert becomes(lambda: served(two, "sent"), digest(artefact), SEEN_SECONDS)
        user = User.of(first, "sent")
        user.upload()
        body = user.encrypt()[1]
        expected = user.infer(body).content
        answer = second.post("/v2/models/sent/infer", content=body)
        assert answer.status_code == 200 and user.same_answer(answer.content, expected)
        assert (two.data / "models" / "sent" / "1.clkm").read_bytes() == artefact
        assert send(second, "sent", "1", artefact).status_code == 200


def test_states_are_everywhere(services: tuple[Server, Server], artefact: bytes):
    one, two = services
    with one.client() as first, two.client() as second:
        send(first, "stated", "1", artefact).raise_for_status()
        send(first, "stated", "2", artefact).raise_for_status()
        assert becomes(lambda: served(two, "stated", "2"), digest(artefact), SEEN_SECONDS)
        second.post("/v2/repository/models/stated/unload").raise_for_status()
        assert becomes(lambda: served(one, "stated"), None, SEEN_SECONDS)
        first.post("/v2/repository/models/stated/load").raise_for_status()
        assert becomes(lambda: served(two, "stated"), digest(artefact), SEEN_SECONDS)
        assert first.delete("/v2/repository/models/stated/versions/1").status_code == 204
        assert becomes(lambda: second.get("/v2/models/stated/versions/1").status_code, 410, SEEN_SECONDS)
        assert send(second, "stated", "1", artefact).status_code == 410


def test_one_version_at_both_at_once(services: tuple[Server, Server], artefact: bytes, other: bytes):
    answers: dict[str, int] = {}
    begun = threading.Barrier(2)

    def work(server: Server, content: bytes) -> None:
        with server.client() as http:
            begun.wait()
            answers[digest(content)] = send(http, "raced", "1", content).status_code

    threads = [threading.Thread(target=work, args=each) for each in zip(services, (artefact, other), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers.values()) == [201, 409]
    winner = next(sha256 for sha256, status in answers.items() if status == 201)
    for server in services:
        assert becomes(lambda server=server: served(server, "raced"), winner, SEEN_SECONDS)


def test_a_file_of_one_services_folder_is_published(services: tuple[Server, Server], artefact: bytes):
    one, two = services
    (two.data / "models" / "added").mkdir()
    (two.data / "models" / "added" / "1.clkm").write_bytes(artefact)
    with two.client() as http:
        http.post("/v2/repository/models/added/load").raise_for_status()
    assert becomes(lambda: served(one, "added"), digest(artefact), SEEN_SECONDS)


def test_services_with_other_bytes_of_one_version(both: Shared, tmp_path: Path, artefact: bytes, other: bytes):
    """As two services have that compile the zoo, started at once: the first to publish wins, and the other's file is not served."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder, content in zip(folders, (artefact, other), strict=True):
        (folder / "models" / "zoo").mkdir(parents=True)
        (folder / "models" / "zoo" / "1.clkm").write_bytes(content)
    options = {"environment": both.environment, "variables": both.variables}
    servers = [Server(folder, **options) for folder in folders]
    threads = [threading.Thread(target=server.start) for server in servers]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        found = {served(server, "zoo") for server in servers}
        assert len(found) == 1 and found <= {digest(artefact), digest(other)}
        losers = [folder for folder in folders if (folder / "models" / "zoo" / "1.clkm.replaced").exists()]
        assert len(losers) == 1
        loser = servers[folders.index(losers[0])]
        assert any("zoo/1" in line["message"] and "first" in line["message"] for line in loser.log_lines())
        assert digest((losers[0] / "models" / "zoo" / "1.clkm").read_bytes()) in found
    finally:
        for server in servers:
            server.stop()


def test_a_service_that_joins_has_every_model_when_it_is_ready(
    both: Shared, services: tuple[Server, Server], tmp_path: Path, artefact: bytes
):
    """But one that is damaged in the storage, and those that are retired."""
    with services[0].client() as http:
        for name in ("before", "ended", "damaged"):
            send(http, name, "1", artefact).raise_for_status()
        http.delete("/v2/repository/models/ended/versions/1").raise_for_status()
    damaged = damage(both, "damaged", artefact) and change_facts(both, "before")
    with running(tmp_path / "third", environment=both.environment, variables=both.variables) as third:
        assert served(third, "before") == digest(artefact)
        assert (third.data / "models" / "ended" / "1.retired").exists()
        assert not (third.data / "models" / "ended" / "1.clkm").exists()
        if damaged:
            with third.client() as http:
                facts = http.get("/v2/models/before").json()["parameters"]["fhe"]
                assert facts["input_bytes_one_sample"] < 10_000, "facts that somebody changed are made again"
                answer = http.get("/v2/models/damaged")
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert list((third.data / "models" / ".incoming").iterdir()) == []
            assert any("other bytes than its row says" in line["message"] for line in third.log_lines())


def change_facts(both: Shared, name: str) -> bool:
    objects = Path(both.environment["STORAGE_URL"].removeprefix("file://"))
    (path,) = (objects / "models" / name / "1").glob("*.json")
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "input_numbers": 100_000}))
    return True


def damage(both: Shared, name: str, artefact: bytes) -> bool:
    """An object of the storage, where that is a folder."""
    if not both.environment["STORAGE_URL"].startswith("file://"):
        return False
    objects = Path(both.environment["STORAGE_URL"].removeprefix("file://"))
    (path,) = (objects / "models" / name / "1").glob("*.clkm")
    path.write_bytes(artefact[:-1])
    return True


def test_a_service_killed_while_it_publishes(both: Shared, tmp_path: Path, artefact: bytes):
    """Whatever moment it was: the version is everywhere or nowhere, and the same request again ends it."""
    with pair(tmp_path / "one", tmp_path / "two", both) as (one, two):
        for attempt in range(3):
            name = f"killed-{attempt}"

            def work(name: str = name) -> None:
                with one.client() as http:
                    try:
                        send(http, name, "1", artefact)
                    except httpx.TransportError:
                        return

            thread = threading.Thread(target=work)
            thread.start()
            thread.join(0.4 * (attempt + 1))
            one.kill()
            thread.join(60)
            one.start()
            with one.client() as http:
                assert send(http, name, "1", artefact).status_code in (200, 201)
            for server in (one, two):
                assert becomes(lambda server=server, name=name: served(server, name), digest(artefact), SEEN_SECONDS)


def test_a_zoo_that_one_service_has_compiled_is_not_compiled_again(both: Shared, tmp_path: Path, artefact: bytes):
    """Nor when the model has been retired since: the mark of its file travels."""
    mark = "ab" * 32
    with running(tmp_path / "one", environment=both.environment, variables=both.variables) as one, one.client() as http:
        folder = one.data / "models" / "marked"
        folder.mkdir()
        (folder / "1.clkm").write_bytes(artefact)
        (folder / "zoo.sha256").write_text(mark)
        http.post("/v2/repository/models/marked/load").raise_for_status()
        http.delete("/v2/repository/models/marked/versions/1").raise_for_status()
    with running(tmp_path / "two", environment=both.environment, variables=both.variables) as two:
        assert (two.data / "models" / "marked" / "zoo.sha256").read_text().split() == [mark]
