"""The health check of containers: exit status of `python -m cloakwork.api.health_check`, without and with TLS."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from self_signed import certificate

from cloakwork.api import health_check


class Answering(BaseHTTPRequestHandler):
    code = 200

    def do_GET(self) -> None:
        self.send_response(self.code if self.path == "/v2/health/ready" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(code: int, tls: Path | None = None) -> Iterator[int]:
    """The port of a server that says it is ready, or not."""
    server = HTTPServer(("127.0.0.1", 0), type("Handler", (Answering,), {"code": code}))
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    monkeypatch.setenv("CLOAKWORK_HOST", "0.0.0.0")
    if request.param == "plain":
        return None
    pem = certificate(tmp_path / "service.pem")
    monkeypatch.setenv("CLOAKWORK_TLS_CERTIFICATE", str(pem))
    monkeypatch.setenv("CLOAKWORK_TLS_KEY", str(pem))
    return pem


@pytest.mark.parametrize(("code", "status"), [(200, 0), (503, 1)])
def test_the_exit_status_says_whether_the_service_is_ready(
    tls: Path | None, code: int, status: int, monkeypatch: pytest.MonkeyPatch
):
    with serving(code, tls) as port:
        monkeypatch.setenv("CLOAKWORK_PORT", str(port))
        assert health_check.main() == status


def test_nothing_that_answers_is_not_ready(
    tls: Path | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with serving(200) as port:
        pass
    monkeypatch.setenv("CLOAKWORK_PORT", str(port))
    assert health_check.main() == 1
    assert "does not answer (Connection refused)" in capsys.readouterr().err


def test_settings_that_make_no_sense_are_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("CLOAKWORK_PORT", "everywhere")
    assert health_check.main() == 1
    assert "CLOAKWORK_PORT: expected a valid integer" in capsys.readouterr().err
