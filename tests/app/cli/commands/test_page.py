"""`cloakwork page`: files from this disk, /v2 of a service passed on, and nothing else, whatever the service or a neighbour tries."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from requirements import needs

from cloakwork.api.http.page_content import PageContent, read_content
from cloakwork.app.cli.shared.console import WrongCallError
from cloakwork.app.cli.shared.page_proxy import Service
from cloakwork.app.cli.shared.page_server import PageServer

FILES = {
    "index.html": PageContent.of(b'<!doctype html><html lang="en"><p>page', ".html"),
    "docs.html": PageContent.of(b"<p>docs", ".html"),
    "page.js": PageContent.of(b"1", ".js"),
}
Answers = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[ThreadingHTTPServer]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Upstream(ThreadingHTTPServer):
    """A service that answers as a test says and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, answer: Answers) -> None:
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
                answer(self)

            do_POST = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


def says(body: bytes = b"{}", status: int = 200, **headers: str) -> Answers:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        handler.send_response(status)
        for name, value in {"Content_Type": "application/json", "Content_Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return answer


@contextmanager
def passed_on(answer: Answers, prefix: str = "") -> Iterator[tuple[httpx.Client, Upstream]]:
    """A client of the page's server, and the service behind it."""
    with (
        serving(Upstream(answer)) as upstream,
        serving(PageServer(0, FILES, Service(upstream.url + prefix))) as server,
        httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client,
    ):
        yield client, upstream


def raw(client: httpx.Client, request: bytes) -> bytes:
    """What comes back for these very bytes, to the end of the connection."""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


# --- files ---


def test_files_are_those_of_the_disk_and_scripts_come_from_their_folder_alone():
    with passed_on(says()) as (client, upstream):
        index = client.get("/")
        assert index.status_code == 200 and f'<html data-service="{upstream.url}" lang="en">' in index.text
        assert client.get("/page/page.js").content == b"1"
        assert client.get("/docs").text == "<p>docs"
        own = str(client.base_url).rstrip("/")
        policy = dict(each.split(" ", 1) for each in index.headers["content-security-policy"].split("; "))
        assert policy["script-src"] == f"{own}/page/ 'wasm-unsafe-eval'" and policy["worker-src"] == f"{own}/page/"
        assert policy["connect-src"] == f"{own}/page/ {own}/v2/ {own}/openapi.json"
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
        again = client.get("/page/page.js", headers={"If-None-Match": client.get("/page/page.js").headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for path in (
            "/page/../page_server.py",
            "/page/%2e%2e/x",
            "/page/",
            "/index.html",
            "/etc/passwd",
            "/page/page.js/",
        ):
            assert client.get(path).status_code in (400, 404), path
        assert client.post("/page/page.js").status_code == 405
        assert upstream.seen == []


def test_an_address_with_marks_of_html_stays_an_address():
    server = PageServer(0, FILES, Service("http://127.0.0.1:1/a&b"))
    assert b'data-service="http://127.0.0.1:1/a&amp;b"' in server.files["index.html"].content
    server.server_close()


# --- what is passed on ---


def test_a_request_goes_as_it_is_without_what_the_browser_says_of_itself():
    with passed_on(says(b'{"a":1}', ETag='"x"', Fhe_Compute_Seconds="1.5", Set_Cookie="a=b"), "/under") as (
        client,
        upstream,
    ):
        own = str(client.base_url).rstrip("/")
        answer = client.post(
            "/v2/models/m/infer?version=1",
            content=b"cipher",
            headers={
                "Authorization": "Bearer cw_x",
                "Fhe-Key-Id": "k",
                "Upload-Offset": "7",
                "Cookie": "secret=1",
                "Referer": "http://x/",
                "Origin": own,
                "Sec-Fetch-Site": "same-origin",
            },
        )
        assert (answer.status_code, answer.content) == (200, b'{"a":1}')
        assert answer.headers["fhe-compute-seconds"] == "1.5" and answer.headers["etag"] == '"x"'
        assert "set-cookie" not in answer.headers
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        method, path, headers = upstream.seen[0]
        assert (method, path) == ("POST", "/under/v2/models/m/infer?version=1")
        assert headers["authorization"] == "Bearer cw_x" and headers["fhe-key-id"] == "k"
        assert headers["upload-offset"] == "7" and headers["content-length"] == "6"
        assert headers["host"] == upstream.url.removeprefix("http://")
        assert not {"cookie", "referer", "origin", "sec-fetch-site", "user-agent"} & set(headers)


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PATCH"])
def test_methods_without_a_body_in_the_answer_keep_the_connection(method: str):
    with passed_on(says(b"", 200 if method == "HEAD" else 204, Upload_Offset="5")) as (client, upstream):
        for _ in range(3):
            answer = client.request(method, "/v2/keys/k")
            assert answer.headers["upload-offset"] == "5" and answer.content == b""
        assert [each[0] for each in upstream.seen] == [method] * 3


@pytest.mark.parametrize(
    "target",
    [
        "/v2/../metrics", "/v2/%2e%2e/metrics", "/v2/./x", "/v2/a\\..\\b", "/v2/%5c..", "/v20/models", "/metrics", "/openapi.jsonx",
        "//evil/v2/x", "/v2/a#b", "/v2/\x7f",
    ],
)  # fmt: skip
def test_nothing_else_is_passed_on(target: str):
    with passed_on(says()) as (client, upstream):
        host = f"{client.base_url.host}:{client.base_url.port}"
        answer = raw(client, f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1"))
        assert answer.split()[1] in (b"400", b"404"), answer
        assert upstream.seen == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:{port}"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "localhost:{port}"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
def test_pages_from_elsewhere_get_nothing(headers: dict[str, str], status: int):
    with passed_on(says()) as (client, upstream):
        sent = {name: value.format(port=client.base_url.port) for name, value in headers.items()}
        for path in ("/v2/models", "/"):
            answer = client.get(path, headers=sent)
            assert answer.status_code == status
            assert status == 200 or answer.json()["code"] == "foreign_page"
        assert len(upstream.seen) == (status == 200)


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_a_body_of_unclear_length_is_not_passed_on(framing: str):
    with passed_on(says()) as (client, upstream):
        host = f"{client.base_url.host}:{client.base_url.port}"
        answer = raw(
            client, f"POST /v2/keys HTTP/1.1\r\nHost: {host}\r\n{framing}Connection: close\r\n\r\nabc".encode()
        )
        assert answer.split()[1] in (b"400", b"411") and upstream.seen == []


def test_a_large_body_passes_in_parts_and_an_early_refusal_is_heard():
    """The service answers before it has read anything; the page learns why."""

    def refuse(handler: BaseHTTPRequestHandler) -> None:
        body = b'{"code":"unauthorised"}'
        handler.send_response(401)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(body)
        handler.rfile.read(4 << 20)
        handler.close_connection = True

    with passed_on(refuse) as (client, _):
        assert client.patch("/v2/keys/k", content=bytes(4 << 20)).json() == {"code": "unauthorised"}


# --- answers ---


def test_events_come_as_they_are_sent():
    going_on = threading.Event()

    def stream(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for event in (b"event: a\n\n", b"event: b\n\n"):
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            assert going_on.wait(20)
        handler.wfile.write(b"0\r\n\r\n")

    with passed_on(stream) as (client, _), client.stream("GET", "/v2/jobs/j/events") as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"event: a\n\n"  # before the service has sent the second
        going_on.set()
        assert b"".join(parts) == b"event: b\n\n"


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_that_breaks_off_is_no_whole_answer(chunked: bool):
    def half(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/octet-stream")
        handler.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", "100")))
        handler.end_headers()
        handler.wfile.write(b"5\r\nabcde\r\n" if chunked else b"abcde")
        handler.close_connection = True

    with passed_on(half) as (client, _), pytest.raises(httpx.RemoteProtocolError):
        client.get("/v2/jobs/j/result")


def test_what_a_browser_would_run_comes_as_bytes():
    for media_type in ("text/html", "text/javascript", "image/svg+xml", "TEXT/HTML; charset=utf-8", ""):
        with passed_on(says(b"<script>", Content_Type=media_type)) as (client, _):
            answer = client.get("/v2/models")
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int):
    with passed_on(says(b"", status, Location="http://evil.example/v2/models")) as (client, upstream):
        answer = client.get("/v2/models")
        assert (answer.status_code, answer.json()["code"]) == (403, "redirected")
        assert "location" not in answer.headers and len(upstream.seen) == 1


def test_no_service_is_a_lost_connection():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(PageServer(0, FILES, Service(f"http://127.0.0.1:{port}"))) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{server.url}v2/models", trust_env=False)
        assert httpx.get(server.url, trust_env=False).status_code == 200


def test_an_api_key_does_not_go_over_a_network_in_clear():
    with serving(PageServer(0, FILES, Service("http://192.0.2.1"))) as server:  # nobody's (RFC 5737), and not asked
        answer = httpx.get(f"{server.url}v2/models", headers={"Authorization": "Bearer cw_x"}, trust_env=False)
    assert (answer.status_code, answer.json()["code"]) == (403, "plain_http")


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    names = [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    needs(shutil.which("openssl"), "openssl is not installed: no certificate to try")
    subprocess.run([*made, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    upstream = Upstream(says(b'{"models":[]}'))
    upstream.socket = context.wrap_socket(upstream.socket, server_side=True)
    with serving(upstream):
        url = f"https://localhost:{upstream.server_port}"
        for trusted, status in ((None, 403), (certificate, 200)):
            with serving(PageServer(0, FILES, Service(url, trusted))) as server:
                answer = httpx.get(f"{server.url}v2/models", trust_env=False)
            assert answer.status_code == status
            assert status == 200 or answer.json()["code"] == "untrusted"
    assert len(upstream.seen) == 1


def test_connections_are_counted_and_one_too_many_is_closed():
    with passed_on(says()) as (client, _):
        place = (client.base_url.host, client.base_url.port)
        held = [socket.create_connection(place, timeout=20) for _ in range(64)]
        try:
            for each in held:  # each has its thread when it has answered
                each.sendall(f"GET /page/page.js HTTP/1.1\r\nHost: {place[0]}:{place[1]}\r\n\r\n".encode())
                assert each.recv(12) == b"HTTP/1.1 200"
            with socket.create_connection(place, timeout=20) as spare:
                assert spare.recv(1) == b""
        finally:
            for each in held:
                each.close()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a",
        "http://",
        "a.example",
        "http://u:p@a",
        "http://a/?b",
        "http://a/#b",
        "http://a:x",
        "http://a/ b",
        "http://a:99999",
    ],
)
def test_addresses_that_are_none_are_wrong_calls(url: str):
    with pytest.raises(WrongCallError, match=r"--url: expected"):
        Service(url)


# --- the command ---


@pytest.fixture
def built() -> None:
    needs("index.html" in read_content(), "the page is not built: run 'make web' and install again")


@pytest.mark.os_entropy
@pytest.mark.parametrize("ending", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.tier("all"))])
def test_it_serves_until_it_is_told_to_end(built: None, ending: signal.Signals):
    command = [
        sys.executable,
        "-m",
        "cloakwork.app.cli",
        "page",
        "--no-browser",
        "--port",
        "0",
        "--url",
        "http://127.0.0.1:1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            url = re.search(r"http://127\.0\.0\.1:\d+/", said)
            assert url is not None and httpx.get(url[0], trust_env=False).status_code == 200, said
            process.send_signal(ending)
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, output, errors) == (0, "", "")


def test_a_port_that_is_taken_is_said(built: None, call):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = call("page", "--no-browser", "--port", port, "--url", "http://127.0.0.1:1")
    assert result.returncode == 1 and f"port {port}: " in result.stderr and "--port 0" in result.stderr
    assert call("page", "--url", "nowhere").returncode == 2
