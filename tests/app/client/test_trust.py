"""Servers whose certificate is nobody's, somebody else's, or none: said at once, with nothing sent."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from self_signed import certificate

from cloakwork.app.cli.main import run
from cloakwork.app.client import Client
from cloakwork.app.client.errors import UntrustedError


@contextmanager
def listening(pem: Path | None) -> Iterator[tuple[str, list[str]]]:
    """Its address, and what it was asked for by the one connection that it gets: nobody tries again."""
    asked: list[str] = []
    connections: list[object] = []

    class Server(HTTPServer):
        def get_request(self) -> tuple[socket.socket, object]:
            connections.append(self)
            return super().get_request()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    if pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", asked
        assert len(connections) == 1
    finally:
        server.shutdown()
        server.server_close()


def refusal(url: str, **options: object) -> str:
    with pytest.raises(UntrustedError) as caught, Client(url, passphrase="x", **options) as client:  # type: ignore[arg-type]
        client.models()
    return str(caught.value)


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path):
    with listening(certificate(tmp_path / "own.pem")) as (url, asked):
        text = refusal(url)
    assert "self-signed certificate" in text and "--certificates FILE" in text and url in text and asked == []


def test_a_certificate_of_another_name(tmp_path: Path):
    pem = certificate(tmp_path / "own.pem")
    with listening(pem) as (url, asked):
        text = refusal(url, verify=ssl.create_default_context(cafile=str(pem)))
    assert "is not valid for '127.0.0.1'" in text and asked == []


def test_a_server_without_tls(tmp_path: Path):
    with listening(None) as (url, asked):
        assert "does the server speak TLS there" in refusal(url)
    assert asked == []


def test_the_command_line_says_it_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with listening(certificate(tmp_path / "own.pem")) as (url, _):
        assert run(["models", "list", "--url", url]) == 1
        told = capsys.readouterr().err
    assert told.count("\n") == 1 and "not trusted (self-signed certificate)" in told


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_file_without_certificates_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
):
    path = tmp_path / "trusted.pem"
    if content is not None:
        path.write_bytes(content)
    assert run(["models", "list", "--url", "https://127.0.0.1:9", "--certificates", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and str(path) in told and "PEM" in told
