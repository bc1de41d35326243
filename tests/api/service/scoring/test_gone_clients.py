"""Clients that go while their request waits or runs: it is dropped, costs nothing that was not begun, and keeps nobody waiting."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from in_process import serving
from scoring_server import User, becomes
from sockets import connect, head

from cloakwork.api.http.error_answers import CLIENT_GONE


def test_who_goes_takes_the_request_with_them(tmp_path: Path, fill: Callable[[Path], Path]):
    limits = {"THREADS": "1", "SYNCHRONOUS_SECONDS": "60"}
    with serving(fill(tmp_path / "data"), environment=limits) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        short = user.encrypt(samples=2, seed=1)[1]
        user.infer(short).raise_for_status()

        def paid() -> int:
            return int(http.get("/v2/usage").json()["bootstraps_today"])

        def gone() -> int:
            return sum(line.get("status") == CLIENT_GONE for line in server.log_lines())

        before = paid()
        with server.engine_held():
            job = http.post("/v2/models/toy/jobs", content=short).raise_for_status().json()["id"]
            assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "running")
            dispatcher = server.services.dispatcher
            for _ in range(3):  # behind it, so that they wait
                with connect(server) as connection:
                    connection.sendall(head("POST /v2/models/toy/infer", f"Content-Length: {len(short)}") + short)
                    assert becomes(lambda: dispatcher.requests_waiting, 1)
                assert becomes(lambda: dispatcher.requests_waiting, 0)
            assert becomes(paid, before + 2 * user.facts["bootstraps"])  # the job's
        assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")
        assert becomes(gone, 3)

        # One that an engine has is cancelled there, and paid for.
        before = paid()
        with server.engine_held():
            with connect(server) as connection:
                connection.sendall(head("POST /v2/models/toy/infer", f"Content-Length: {len(short)}") + short)
                assert becomes(lambda: dispatcher.running, 1)
            assert becomes(gone, 4)
        assert user.infer(short).status_code == 200
        assert becomes(paid, before + 2 * 2 * user.facts["bootstraps"])
        assert http.get("/v2/usage").json()["days"][0]["requests"] == 3  # answers, and the job


def test_requests_sent_behind_it_are_no_sign_that_the_client_has_gone(tmp_path: Path, fill: Callable[[Path], Path]):
    with serving(fill(tmp_path / "data"), environment={"SYNCHRONOUS_SECONDS": "60"}) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        body = user.encrypt(samples=200)[1]
        expected = user.infer(body).raise_for_status().content

        def request(method: str, path: str, content: bytes = b"") -> bytes:
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
            return head.encode() + b"\r\n" + content

        received = b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(request("POST", "/v2/models/toy/infer", body) + request("GET", "/v2/health/live"))
            while received.count(b"HTTP/1.1 200") < 2 or not received.endswith(b'{"status":"live"}'):
                part = connection.recv(1 << 20)
                assert part, received[-300:]
                received += part
        assert expected in received
