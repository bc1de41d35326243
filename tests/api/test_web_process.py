"""The first and the last line of a service's log."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleet_servers import processes
from postgresql import needs_postgresql, postgresql
from scoring_server import Server, User, becomes
from sockets import connect, head

from cloakwork.api.settings import Settings, load_settings, release


def one(server: Server, message: str) -> dict[str, Any]:
    (line,) = [each for each in server.log_lines() if each["message"] == message]
    return line


@pytest.mark.os_entropy
@pytest.mark.parametrize("by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.tier("all"))])
def test_a_service_says_how_it_is_set_and_how_it_ended(
    tmp_path: Path, fill: Callable[[Path], Path], by: signal.Signals
):
    server = Server(fill(tmp_path / "data"), environment={"MAX_QUEUE": "77"})
    server.start()
    try:
        with server.client() as http:
            for _ in range(3):
                http.get("/v2/models")
            user = User.of(http)
            user.upload()
            assert user.decrypt(user.infer(user.encrypt()[1]).content).shape == (1, 3), "the only process of this tier"
        assert server.process is not None
        server.process.send_signal(by)
        server.process.wait(30)
    finally:
        server.stop()
    begun, ended = one(server, "starting"), one(server, "ended")
    assert server.log_lines()[0] == begun and server.log_lines()[-1] == ended
    assert begun["version"] == release() and begun["python"] and begun["pid"] == server.process.pid
    assert set(begun["settings"]) == set(Settings.model_fields), "every setting, those that nobody named too"
    assert begun["settings"]["max_queue"] == 77 and begun["settings"]["data_folder"] == str(server.data)
    assert ended["signal"] == by.name and ended["uptime_seconds"] > 0 and ended["requests"] >= 4
    assert (ended["drained"], ended["requests_cut_off"], ended["runs_unfinished"]) == (True, 0, 0)


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_runs_that_were_not_finished_are_told(tmp_path: Path, fill: Callable[[Path], Path]):
    server = Server(fill(tmp_path / "data"), environment={"THREADS": "1", "MAX_TENANT_QUEUE": "1000"})
    server.start()
    try:
        with server.client() as http:
            user = User.of(http)
            user.upload()
            with server.engine_held():
                job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
                assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "running")
                assert server.process is not None
                server.process.terminate()
                server.process.wait(60)
    finally:
        server.stop()
    ended = one(server, "ended")
    assert (ended["drained"], ended["runs_unfinished"]) == (False, 1)


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_requests_that_were_cut_off_are_told(tmp_path: Path, fill: Callable[[Path], Path]):
    """Somebody sends a body for longer than the process may drain."""
    needs_postgresql()
    settings = {"DRAIN_SECONDS": "0.5", "AUDIT_KEY": str(tmp_path / "audit.key")}
    (tmp_path / "audit.key").write_bytes(bytes(32))
    with postgresql() as database, processes(tmp_path, fill, database, **settings) as group:
        server = group.start("all")
        with server.client() as http:
            user = User.of(http)
            key = http.post("/v2/keys", json=user.announcement()).json()["id"]
            with connect(server) as connection:
                sent = head(f"PATCH /v2/keys/{key}", f"Content-Length: {len(user.keys)}", "Upload-Offset: 0")
                connection.sendall(sent + user.keys[:5000])
                assert becomes(lambda: http.get("/v2/admin/load").json()["connections"]["busy"], 2)
                assert server.process is not None
                server.process.terminate()
                server.process.wait(60)
    ended = one(server, "ended")
    assert (ended["drained"], ended["requests_cut_off"], ended["runs_unfinished"]) == (False, 1, 0)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://alice:hunter2@db.example:5432/cloakwork?sslpassword=hunter2",
            "postgresql://db.example:5432/cloakwork",
        ),
        ("postgresql://alice:hunter2/@x#y@db.example/cloakwork", "(not shown)"),
        ("postgresql://alice:hunter2@@db.example/cloakwork", "postgresql://db.example/cloakwork"),
        ("postgresql://db.example/cloakwork?user=alice&password=hunter2@x", "(not shown)"),
        ("postgresql:///cloakwork?password=hunter2", "postgresql:///cloakwork"),
        ("postgresql+asyncpg://db.example", "postgresql+asyncpg://db.example"),
        ("alice:hunter2", "(not shown)"),
    ],
)
def test_urls_of_the_first_line_have_no_password(url: str, shown: str):
    facts = load_settings(database_url=url, storage_url=url).facts()
    assert facts["database_url"] == facts["storage_url"] == shown
    assert "hunter2" not in str(facts) and "alice" not in str(facts)


def test_every_setting_that_may_hold_a_secret_is_known():
    """A new one of text may be a password: then it belongs to what `Settings.facts` leaves out."""
    texts = {name for name, field in Settings.model_fields.items() if "str" in str(field.annotation)}
    assert texts == {
        "host",
        "database_url",
        "storage_url",
        "devices",
        "allowed_origins",
        "trusted_proxies",
    }
