"""Which version a file becomes, against scripted answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloakwork.app.client.errors import ServiceError
from cloakwork.app.client.exchange import ClientRequest, Conversation, FileBody, Response, T
from cloakwork.app.client.model_uploads import add_model
from cloakwork.fhe_core.errors import ParameterError

CONTENT = b"CLKM" + bytes(3 << 20)


class Repository:
    """Has versions of one model; others take the numbers in `taken` before a request comes."""

    def __init__(self, has: tuple[str, ...] = (), taken: tuple[str, ...] = ()) -> None:
        self.has = has
        self.taken = taken
        self.asked: list[str] = []
        self.body = b""

    def __call__(self, request: ClientRequest) -> Response:
        if request.method == "POST":
            entries = [{"name": "m", "version": version, "state": "UNAVAILABLE"} for version in self.has]
            return Response(200, {}, json.dumps([*entries, {"name": "other", "version": "99"}]).encode())
        version = request.path.partition("?")[0].rpartition("/")[2]
        self.asked.append(request.path)
        if version in self.taken:
            if 409 not in request.accepted:
                raise ServiceError("taken", 409)
            return Response(409, {}, b"{}")
        assert isinstance(request.content, FileBody) and request.repeatable
        assert request.headers["Fhe-Artefact-Sha256"] == hashlib.sha256(CONTENT).hexdigest()
        self.body = b"".join(request.content.pieces())
        return Response(201, {}, json.dumps({"version": version}).encode())


def drive(conversation: Conversation[T], answer: Callable[[ClientRequest], Response]) -> T:
    try:
        request = next(conversation)
        while True:
            request = conversation.send(answer(request))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    path = tmp_path / "m.clkm"
    path.write_bytes(CONTENT)
    return path


def silent(_what: str, _done: int, _total: int) -> None:
    return None


def sent(artefact: Path, server: Repository, **options: Any) -> str:
    chosen = {"name": None, "version": None, "load": True, "progress": silent, **options}
    version: str = drive(add_model(artefact, **chosen), server)["version"]
    return version


@pytest.mark.parametrize(("has", "expected"), [((), "1"), (("1", "2"), "3"), (("7", "named"), "8")])
def test_the_next_number_is_taken(artefact: Path, has: tuple[str, ...], expected: str):
    server = Repository(has)
    assert sent(artefact, server) == expected
    assert server.body == CONTENT


def test_numbers_that_others_take_meanwhile(artefact: Path):
    assert sent(artefact, Repository(taken=("1", "2"))) == "3"
    with pytest.raises(ServiceError):
        sent(artefact, Repository(taken=tuple(map(str, range(100)))))


def test_a_version_that_was_named_is_no_other(artefact: Path):
    server = Repository(taken=("1",))
    with pytest.raises(ServiceError):
        sent(artefact, server, version="1")
    assert sent(artefact, server, version="2", load=False, name="a/b") == "2"
    assert server.asked[-1] == "/v2/repository/models/a%2Fb/versions/2?load=false"


def test_progress_is_bytes(artefact: Path):
    heard: list[tuple[str, int, int]] = []
    sent(artefact, Repository(), progress=lambda *each: heard.append(each))
    assert [each[0] for each in heard] == ["upload"] * 4 and heard[-1][1:] == (len(CONTENT), len(CONTENT))


def test_an_empty_file_and_a_strange_server(artefact: Path):
    with pytest.raises(ServiceError, match="list"):
        drive(add_model(artefact, None, None, True, silent), lambda _: Response(200, {}, b"{}"))
    artefact.write_bytes(b"")
    with pytest.raises(ParameterError, match="empty"):
        sent(artefact, Repository())
