"""The page from this machine's disk: its files as they were installed, and /v2 of a service elsewhere."""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

from cloakwork.api.http.page_content import PageContent, policy
from cloakwork.app.cli.shared.page_proxy import Answer, Body, LostError, RefusedError, Service

ADDRESS: Final = "127.0.0.1"
_CONNECTIONS: Final = 64  # at a time; a browser opens six
_IDLE_SECONDS: Final = 60.0
_DRAIN_BYTES: Final = 8 << 20
_DRAIN_SECONDS: Final = 1.0

_DOCUMENTS: Final = {"/": "index.html", "/docs": "docs.html"}
_FILES: Final = "/page/"
_OWN_HOST: Final = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?\Z")
_OWN_SITES: Final = ("same-origin", "none")
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_NO_SCRIPTS: Final = "default-src 'none'; frame-ancestors 'none'; sandbox"


class PageServer(ThreadingHTTPServer):
    """A server on loopback only. `files` by name, `service` what /v2 is passed on to.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = _CONNECTIONS

    def __init__(self, port: int, files: Mapping[str, PageContent], service: Service) -> None:
        self.files = {**files, "index.html": _naming_service(files["index.html"], service.url)}
        self.service = service
        self._places = threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__((ADDRESS, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"

    def server_bind(self) -> None:
        """Binds without the look-up of this machine's name that HTTPServer does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.socket.getsockname()[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a browser that goes away."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def version_string(self) -> str:
        return "cloakwork"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing: paths have names of keys and jobs."""

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

    # --- what is asked for ---

    def _answer(self) -> None:
        self._body = Body(self.rfile, 0)
        try:
            self._body = Body(self.rfile, _body_length(self.headers))
            self._check_asker()
            path = self.path.partition("?")[0]
            if path in _DOCUMENTS or path.startswith(_FILES):
                self._send_file(_DOCUMENTS.get(path, path.removeprefix(_FILES)))
            else:
                self._pass_on()
        except RefusedError as error:
            self._refuse(error)
        except (LostError, OSError):
            self.close_connection = True

    def _check_asker(self) -> None:
        """This page, or somebody who opens it: not another page, and not under another name (DNS rebinding)."""
        if self.request_version != "HTTP/1.1":
            raise RefusedError(505, "bad_request", "expected HTTP/1.1")
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not _OWN_HOST.match(hosts[0]):
            raise RefusedError(403, "foreign_page", "this page is for its own machine alone; ask it as 127.0.0.1")
        origins, sites = self.headers.get_all("Origin", []), self.headers.get_all("Sec-Fetch-Site", [])
        if any(each != f"http://{hosts[0]}" for each in origins) or any(each not in _OWN_SITES for each in sites):
            raise RefusedError(403, "foreign_page", "a page of another site asked for this")

    def _send_file(self, name: str) -> None:
        file = self.server.files.get(name)
        if file is None:
            raise RefusedError(404, "not_found", "the page has no such file")
        if self.command not in ("GET", "HEAD"):
            raise RefusedError(405, "method_not_allowed", "files are read only")
        origin = f"http://{self.headers['Host']}"  # /v2 holds what the service says: no place for scripts
        allowed = policy(f"{origin}{_FILES}", f"{origin}{_FILES} {origin}/v2/ {origin}/openapi.json")
        headers = {"Content-Security-Policy": allowed, "Cache-Control": "no-cache", "ETag": file.etag}
        if file.is_known(self.headers.get("If-None-Match", "")):
            self._begin(HTTPStatus.NOT_MODIFIED, headers)
            return
        self._begin(
            HTTPStatus.OK, {**headers, "Content-Type": file.media_type, "Content-Length": str(len(file.content))}
        )
        if self.command == "GET":
            self.wfile.write(file.content)

    def _pass_on(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.service.ask(self.command, self.path, headers, self._body) as answer:
            bodiless = self.command == "HEAD" or answer.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
            security_headers = {"Content-Security-Policy": _NO_SCRIPTS}
            if bodiless:
                self._begin(answer.status, {**answer.headers, **security_headers})
            else:
                framing = (
                    {"Transfer-Encoding": "chunked"}
                    if answer.length is None
                    else {"Content-Length": str(answer.length)}
                )
                self._begin(answer.status, {**answer.headers, **security_headers, **framing})
                self._send_parts(answer)
        self._finish()

    def _send_parts(self, answer: Answer) -> None:
        for part in answer.parts():
            if answer.length is None:
                part = b"%x\r\n%b\r\n" % (len(part), part)
            self.wfile.write(part)
        if answer.length is None:
            self.wfile.write(b"0\r\n\r\n")

    # --- answers ---

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        if self._body.left:
            self.send_header("Connection", "close")
        self.end_headers()

    def _refuse(self, error: RefusedError) -> None:
        """In the form of the service's errors."""
        body = json.dumps({"error": str(error), "code": error.code}).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Cache-Control": "no-store"}
        with suppress(OSError):
            self._begin(error.status, {"Content-Security-Policy": _NO_SCRIPTS, **headers})
            if self.command != "HEAD":
                self.wfile.write(body)
            self._finish()

    def _finish(self) -> None:
        """After an answer that came before the body was read, the browser gets a moment to read it: closing at once would reset it."""
        if not self._body.left:
            return
        self.close_connection = True
        self.connection.settimeout(_DRAIN_SECONDS)
        least = self._body.left - _DRAIN_BYTES
        with suppress(OSError):
            while self._body.left > max(least, 0) and self._body.read():
                pass


def _body_length(headers: Message) -> int:
    """Raises:
    RefusedError: it is not said in one way.
    """
    lengths = headers.get_all("Content-Length", [])
    if headers.get_all("Transfer-Encoding") or len(lengths) > 1:
        raise RefusedError(411, "length_required", "expected one Content-Length")
    if not lengths:
        return 0
    if not re.fullmatch(r"[0-9]{1,15}", lengths[0]):
        raise RefusedError(400, "bad_request", "expected a Content-Length in digits")
    return int(lengths[0])


def _naming_service(index: PageContent, url: str) -> PageContent:
    """So that the page says where what it encrypts goes; nothing else of it changes."""
    named = index.content.replace(b"<html ", f'<html data-service="{html.escape(url)}" '.encode(), 1)
    return PageContent.of(named, ".html")
