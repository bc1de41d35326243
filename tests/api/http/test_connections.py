"""Connections: limits for all, for one address, for one tenant; health beside them; streams that end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from in_process import LocalServer, serving
from scoring_server import Server, User, becomes, new_tenant, with_tenants
from sockets import Reply, ask, head, many, read_reply

from cloakwork.api.errors import TooManyConnectionsError
from cloakwork.api.http import connections as connections_module
from cloakwork.api.http.connections import Connections

LIMITS = {"MAX_CONNECTIONS": "40", "MAX_ADDRESS_CONNECTIONS": "30", "MAX_TENANT_CONNECTIONS": "8"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]) -> Iterator[LocalServer]:
    data = fill(tmp_path_factory.mktemp("connections") / "data")
    new_tenant(data, "first")
    limits = {**LIMITS, "HEADER_SECONDS": "60", "BODY_IDLE_SECONDS": "60"}
    with serving(data, insecure=False, environment=limits) as started:
        yield started


class MonotonicClock:
    """The clock by which connections are idle."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    def pass_seconds(self, seconds: float) -> None:
        self._ahead += seconds


@pytest.fixture
def idle_clock(monkeypatch: pytest.MonkeyPatch) -> MonotonicClock:
    ahead = MonotonicClock()
    monkeypatch.setattr(connections_module, "time", ahead)
    return ahead


def bearer(server: Server, name: str) -> str:
    return f"Authorization: Bearer {new_tenant(server.data, name)}"


def test_idle_connections_lock_nobody_out(server: LocalServer, idle_clock: MonotonicClock):
    """Six hundred that say nothing, or half a header, or have asked once; those who ask come in, and health always."""
    key = bearer(server, "guest")
    with many(server, 200), many(server, 200, b"GET /v2 HT"), many(server, 200, head("GET /v2")):
        idle_clock.pass_seconds(2)  # what is younger may be about to ask
        for path in ("/v2/health/live", "/v2/health/ready", "/livez", "/readyz"):
            reply = ask(server, head(f"GET {path}"))
            assert reply is not None and reply.status == 200

        def status() -> int | None:
            """Those that the server has taken in meanwhile are old now too."""
            idle_clock.pass_seconds(2)
            reply = ask(server, head("GET /v2/models", key))
            return None if reply is None else reply.status

        assert becomes(status, 200)


def test_busy_connections_beyond_the_limit_get_503_and_health_gets_200(server: Server):
    """Requests whose bodies are under way cannot be ended; a new one is told when to try again."""
    keys = [bearer(server, f"busy-{i}") for i in range(6)]
    key = bearer(server, "slow")
    with server.client(headers={"Authorization": key.partition(": ")[2]}) as http:
        length = len(User.of(http).encrypt()[1])
    starts = [head("POST /v2/models/toy/infer", each, f"Content-Length: {length}") for each in keys]
    held = [many(server, 6, start) for start in starts]
    for each in held:
        each.__enter__()
    try:
        assert becomes(lambda: status_of(ask(server, head("GET /v2/models", key))), 503)
        reply = ask(server, head("GET /v2/models", key))
        assert reply is not None and reply.status == 503
        assert reply.json()["code"] == "too_many_connections" and reply.headers["content-type"] == "application/json"
        assert int(reply.headers["retry-after"]) > 0 and reply.headers["connection"] == "close"
        with many(server, 100), many(server, 100, b"POST /v2/models/toy/infer HT"):
            for path in ("/v2/health/live", "/v2/health/ready", "/readyz"):
                reply = ask(server, head(f"GET {path}"))
                assert reply is not None and reply.status == 200
    finally:
        for each in held:
            each.__exit__(None, None, None)
    assert becomes(lambda: status_of(ask(server, head("GET /v2/models", key))), 200)


def status_of(reply: Reply | None) -> int | None:
    return None if reply is None else reply.status


def test_a_tenant_has_its_share_of_connections_event_streams_among_them(server: LocalServer):
    key, other = bearer(server, "watcher"), bearer(server, "neighbour")
    with server.client(headers={"Authorization": key.partition(": ")[2]}) as http:
        user = User.of(http)
        user.upload()
    with ExitStack() as held:
        held.enter_context(server.engine_held())
        with server.client(headers={"Authorization": key.partition(": ")[2]}) as http:
            job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
        watch = head(f"GET /v2/jobs/{job}/events", key)
        streams = held.enter_context(many(server, 8, watch))
        for stream in streams:
            assert stream.recv(12) == b"HTTP/1.1 200"
        reply = ask(server, watch)
        assert reply is not None and (reply.status, reply.json()["code"]) == (503, "too_many_connections")
        assert int(reply.headers["retry-after"]) > 0
        reply = ask(server, head("GET /v2/models", other))
        assert reply is not None and reply.status == 200
    with server.client(headers={"Authorization": key.partition(": ")[2]}) as http:
        assert becomes(lambda: http.delete(f"/v2/jobs/{job}").status_code, 204)


def test_a_tenants_idle_connections_count_and_give_way(server: LocalServer, idle_clock: MonotonicClock):
    key = bearer(server, "keeper")
    with many(server, 12, head("GET /v2/models", key)) as connections:
        replies = [read_reply(connection) for connection in connections]
        assert {reply.status for reply in replies if reply} <= {200, 503}
        assert sum(reply is not None and reply.status == 200 for reply in replies) >= 8
        idle_clock.pass_seconds(2)
        assert becomes(lambda: status_of(ask(server, head("GET /v2/models", key))), 200)


def test_event_streams_end_with_their_api_key(server: LocalServer):
    token = new_tenant(server.data, "leaver")
    with server.engine_held(), server.client(headers={"Authorization": f"Bearer {token}"}) as http:
        user = User.of(http)
        user.upload()
        job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
        began, ended = threading.Event(), threading.Event()

        def watch() -> None:
            with http.stream("GET", f"/v2/jobs/{job}/events", timeout=60) as events:
                for _ in events.iter_lines():
                    began.set()
            ended.set()

        thread = threading.Thread(target=watch)
        thread.start()
        assert began.wait(60) and not ended.is_set()
        with_tenants(server.data, lambda tenants: tenants.revoke(token.split("_")[1]))
        thread.join(60)
        assert ended.is_set(), "the job, which would end the stream, is held"
        assert http.get(f"/v2/jobs/{job}").status_code == 401


# --- the register ---


class Idle:
    def __init__(self) -> None:
        self.ended = False

    def close_idle(self) -> None:
        self.ended = True

    def look(self, now: float) -> None:
        raise AssertionError("not asked")


def test_addresses_of_one_network_count_together():
    register = Connections(100, 2, 100)
    for addresses in (
        ("10.0.0.1", "10.0.0.1", "::ffff:10.0.0.1"),
        ("2001:db8::1", "2001:db8::ffff:1", "2001:db8::2%eth0"),
    ):
        places = [register.admit(address, Idle()) for address in addresses]
        assert [place is not None and place.spare for place in places] == [False, False, True]
    other = register.admit("2001:db8:0:1::1", Idle())
    assert other is not None and not other.spare
    assert all(not (place := Connections(3, 0, 1).admit("a", Idle())) or not place.spare for _ in range(3))


def test_the_longest_idle_goes_first_and_the_busy_stay():
    register = Connections(3, 0, 2)
    owners = [Idle() for _ in range(4)]
    places = [register.admit("a", owner) for owner in owners[:3]]
    assert all(place is not None for place in places)
    for age, place in zip((50.0, 70.0, 90.0), places, strict=True):
        assert place is not None
        place.since -= age
    assert places[2] is not None
    places[2].begin(healthy=False)
    new = register.admit("b", owners[3])
    assert new is not None and not new.spare
    assert [owner.ended for owner in owners] == [False, True, False, False]
    for place in (places[0], new):
        assert place is not None
        place.begin(healthy=False)
        register.claim(place, "t")
    with pytest.raises(TooManyConnectionsError):
        register.claim(places[2], "t")
    new.end()
    new.since -= 10
    register.claim(places[2], "t")
    assert owners[3].ended and places[2].tenant == "t"


def test_spare_places_turn_over_and_keep_health():
    register = Connections(1, 0, 1)
    first = register.admit("a", Idle())
    assert first is not None
    first.begin(healthy=False)
    healthy, waiting = Idle(), Idle()
    place = register.admit("a", healthy)
    assert place is not None and place.spare
    place.begin(healthy=True)
    register.admit("a", waiting)
    for _ in range(63):
        assert register.admit("a", Idle()) is not None
    assert waiting.ended and not healthy.ended
