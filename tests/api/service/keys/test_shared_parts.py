"""Parts of one upload at two services on one database and one storage."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from scoring_server import Server, User, becomes, running
from two_services import Shared, pair, shared

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

PART = 20_000


@pytest.fixture(scope="module", params=["file", pytest.param("s3", marks=pytest.mark.tier("release"))])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared(tmp_path_factory.mktemp("shared"), request.param == "s3", BODY_IDLE_SECONDS="5") as found:
        yield found


@pytest.fixture(scope="module")
def services(
    both: Shared, tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]
) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("services")
    with pair(fill(folder / "one"), folder / "two", both) as found:
        yield found


@pytest.fixture
def clients(services: tuple[Server, Server]) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    with services[0].client() as first, services[1].client() as second:
        yield first, second


@pytest.fixture
def user(clients: tuple[httpx.Client, httpx.Client]) -> User:
    return User.of(clients[0])


def opened(http: httpx.Client, user: User, **changes: Any) -> str:
    answer = http.post("/v2/keys", json=user.announcement(**changes))
    assert answer.status_code == 201, answer.text
    identity: str = answer.json()["id"]
    return identity


def send(http: httpx.Client, key: str, offset: int, content: bytes) -> httpx.Response:
    return http.patch(f"/v2/keys/{key}", content=content, headers={"Upload-Offset": str(offset)})


def stands(http: httpx.Client, key: str) -> int:
    return int(http.head(f"/v2/keys/{key}").headers["upload-offset"])


def objects(both: Shared, key: str) -> list[Path] | None:
    """Parts in the storage; None where it is no folder."""
    if not both.environment["STORAGE_URL"].startswith("file://"):
        return None
    folder = Path(both.environment["STORAGE_URL"].removeprefix("file://")) / "uploads" / key
    return list(folder.iterdir()) if folder.is_dir() else []


def scratch(services: tuple[Server, Server]) -> list[Path]:
    return [file for server in services for file in (server.data / "objects" / "uploads").iterdir()]


@pytest.mark.parametrize("announced", [True, False])
def test_every_part_at_another_service(
    both: Shared,
    services: tuple[Server, Server],
    clients: tuple[httpx.Client, httpx.Client],
    user: User,
    announced: bool,
):
    key = opened(clients[0], user) if announced else opened(clients[0], user, sha256=None)
    for i, start in enumerate(range(0, len(user.keys), PART)):
        answer = send(clients[i % 2], key, start, user.keys[start : start + PART])
        assert answer.status_code == 200, answer.text
        assert stands(clients[(i + 1) % 2], key) == min(start + PART, len(user.keys))
    assert (answer.json()["state"], answer.json()["sha256"]) == ("ready", hashlib.sha256(user.keys).hexdigest())
    assert objects(both, key) in ([], None) and scratch(services) == []
    body = user.encrypt()[1]
    expected = user.infer(body).content
    for http in clients:
        assert user.same_answer(http.post("/v2/models/toy/infer", content=body).content, expected)


def test_small_parts_make_few_objects(both: Shared, clients: tuple[httpx.Client, httpx.Client], user: User):
    key = opened(clients[0], user)
    most, offset = 0, 0
    for i in range(60):
        size = 100 if i < 30 else 1 + i % 7
        assert send(clients[i % 2], key, offset, user.keys[offset : offset + size]).status_code == 200
        offset += size
        most = max(most, len(objects(both, key) or []))
    assert most <= 12, "sizes fall by two and more"
    answer = send(clients[0], key, offset, user.keys[offset:])
    assert answer.json()["state"] == "ready", answer.text


def test_two_services_that_write_at_the_same_place(clients: tuple[httpx.Client, httpx.Client], user: User):
    key = opened(clients[0], user)
    send(clients[0], key, 0, user.keys[:PART]).raise_for_status()
    answers: list[httpx.Response] = []
    begun = threading.Barrier(2)

    def work(http: httpx.Client) -> None:
        begun.wait()
        answers.append(send(http, key, PART, user.keys[PART : 2 * PART]))

    threads = [threading.Thread(target=work, args=(http,)) for http in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert next(answer.json()["code"] for answer in answers if answer.is_error) == "wrong_offset"
    assert stands(clients[1], key) == 2 * PART
    assert send(clients[1], key, 2 * PART, user.keys[2 * PART :]).json()["state"] == "ready"


def begin_part(server: Server, key: str, offset: int, length: int, content: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    head = f"PATCH /v2/keys/{key} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpload-Offset: {offset}\r\nContent-Length: {length}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


def test_what_came_before_the_connection_broke_is_kept(
    services: tuple[Server, Server], clients: tuple[httpx.Client, httpx.Client], user: User
):
    key = opened(clients[0], user)
    with begin_part(services[0], key, 0, len(user.keys), user.keys[:50_000]):
        assert becomes(lambda: sum(file.stat().st_size for file in scratch(services)) > 0, True)
    assert becomes(lambda: stands(clients[1], key), 50_000)
    assert send(clients[1], key, 50_000, user.keys[50_000:]).json()["state"] == "ready"


def test_a_key_deleted_at_one_service_while_the_other_receives_it(
    both: Shared, services: tuple[Server, Server], clients: tuple[httpx.Client, httpx.Client], user: User
):
    key = opened(clients[0], user)
    send(clients[1], key, 0, user.keys[:PART]).raise_for_status()
    with begin_part(services[1], key, PART, len(user.keys) - PART, user.keys[PART : 2 * PART]) as connection:
        assert becomes(lambda: len(scratch(services)), 1)
        assert clients[0].delete(f"/v2/keys/{key}").status_code == 204
        assert connection.recv(65536).startswith(b"HTTP/1.1 404 "), "before the rest came"
    assert objects(both, key) in ([], None) and scratch(services) == []


@pytest.mark.parametrize("harm", ["header", "checksum"])
def test_what_is_no_key_begins_again(both: Shared, clients: tuple[httpx.Client, httpx.Client], user: User, harm: str):
    key = opened(clients[0], user, sha256=None) if harm == "checksum" else opened(clients[0], user)
    damaged = bytearray(user.keys)
    damaged[8 if harm == "header" else -1] ^= 1
    first = send(clients[0], key, 0, bytes(damaged[:10]))
    answer = first if first.is_error else send(clients[1], key, 10, bytes(damaged[10:]))
    assert answer.status_code in (409, 422), answer.text
    assert stands(clients[0], key) == stands(clients[1], key) == 0
    assert objects(both, key) in ([], None)
    assert send(clients[1], key, 0, user.keys).json()["state"] == "ready"


def test_a_service_that_is_killed_in_a_part(both: Shared, tmp_path: Path, fill: Callable[[Path], Path]):
    """What was recorded stays, and the other goes on; the scratch file of the dead one is gone when it starts again."""
    with pair(fill(tmp_path / "one"), tmp_path / "two", both) as (one, two), two.client() as second:
        user = User.of(second)
        key = opened(second, user)
        with one.client() as first:
            send(first, key, 0, user.keys[:PART]).raise_for_status()
        with begin_part(one, key, PART, len(user.keys) - PART, user.keys[PART : 3 * PART]):
            assert becomes(lambda: len(scratch((one, two))), 1)
            one.kill()
        assert stands(second, key) == PART
        assert send(second, key, PART, user.keys[PART:]).json()["state"] == "ready"
        one.start()
        assert scratch((one, two)) == []


def test_a_service_without_room_leaves_the_upload_to_others(
    both: Shared,
    services: tuple[Server, Server],
    clients: tuple[httpx.Client, httpx.Client],
    user: User,
    tmp_path: Path,
):
    key = opened(clients[0], user)
    send(clients[0], key, 0, user.keys[:PART]).raise_for_status()
    full = {**both.environment, "DISK_RESERVE_BYTES": str(1 << 60)}
    with running(tmp_path / "full", environment=full, variables=both.variables) as third, third.client() as http:
        for offset, content in ((PART, user.keys[PART:]), (PART, user.keys[PART : 2 * PART])):
            answer = send(http, key, offset, content)
            assert (answer.status_code, answer.json()["code"]) == (507, "storage_full")
        send(clients[1], key, PART, user.keys[PART:-1]).raise_for_status()
        record_rest(both, key, user.keys)
        answer = send(http, key, len(user.keys), b"")
        assert (answer.status_code, answer.json()["code"]) == (507, "storage_full"), "no room to check it in"
        assert stands(http, key) == len(user.keys), "and nothing is lost"
    assert send(clients[0], key, len(user.keys), b"").json()["state"] == "ready"


def test_an_upload_whose_last_step_was_cut_off(
    services: tuple[Server, Server], clients: tuple[httpx.Client, httpx.Client], both: Shared, user: User
):
    """As kill -9 leaves it between the last part and the check: every part is recorded, and the row says open."""
    for ends_it in ("announcement", "empty part"):
        mine = User.of(clients[0])
        key = opened(clients[0], mine)
        send(clients[0], key, 0, mine.keys[:-1]).raise_for_status()
        record_rest(both, key, mine.keys)
        if ends_it == "announcement":
            assert clients[1].post("/v2/keys", json=mine.announcement()).json()["state"] == "ready"
        else:
            assert send(clients[1], key, len(mine.keys), b"").json()["state"] == "ready"


def record_rest(both: Shared, key: str, content: bytes) -> None:
    """The last byte as an object and a row, and nothing after it."""
    import asyncio
    import os

    from sqlalchemy import insert, update

    from cloakwork.api.database.connection import Database
    from cloakwork.api.database.tables import evaluation_keys, upload_parts
    from cloakwork.api.service.storage.object_store import ObjectStore

    async def work() -> None:
        name = f"uploads/{key}/{len(content) - 1}-test"
        await ObjectStore(both.environment["STORAGE_URL"]).put(name, content[-1:])
        database = Database(both.environment["DATABASE_URL"])
        async with database.write() as connection:
            row = {"evaluation_key": key, "start": len(content) - 1, "bytes": 1, "name": name}
            await connection.execute(insert(upload_parts).values(**row))
            whole = update(evaluation_keys).where(evaluation_keys.c.id == key).values(received_bytes=len(content))
            await connection.execute(whole)
        await database.close()

    with pytest.MonkeyPatch.context() as patch:
        for name, value in both.variables.items():
            patch.setitem(os.environ, name, value)
        asyncio.run(work())
