"""Requests of a page on this machine, passed on to a service as they come: nothing is kept, and only what the page needs goes through."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from cloakwork.app.cli.shared.console import WrongCallError

CHUNK_BYTES: Final = 64 << 10
_TIMEOUT_SECONDS: Final = 120.0  # without a byte, either way
_METHODS: Final = ("GET", "HEAD", "POST", "PATCH", "DELETE")
_TARGET: Final = re.compile(r"/[A-Za-z0-9/._~%!$&'()*+,;=:@-]*(\?[A-Za-z0-9/._~%!$&'()*+,;=:@?-]*)?\Z")
_DESCRIPTION: Final = "/openapi.json"  # of the routes, for /docs

# What the client of the page sends, and reads. Cookies, addresses of pages and names of browsers are none of it.
_REQUEST_HEADERS: Final = ("accept", "authorization", "content-type", "idempotency-key", "if-none-match", "prefer")
_ANSWER_HEADERS: Final = ("cache-control", "content-type", "etag", "retry-after", "server-timing", "x-request-id")
_OWN_PREFIXES: Final = ("fhe-", "upload-")  # of the service's own headers
_MEDIA_TYPES: Final = ("application/json", "application/octet-stream", "text/event-stream", "text/plain")


class RefusedError(Exception):
    """The request is not passed on, or its answer is not. `code` is what the page knows it by."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Body:
    """The body of a request as it arrives. `left`: bytes not read yet."""

    def __init__(self, stream: BufferedIOBase, length: int) -> None:
        self._stream = stream
        self.left = length

    def read(self) -> bytes:
        part = self._stream.read(min(self.left, CHUNK_BYTES))
        self.left -= len(part)
        return part


class LostError(Exception):
    """The service does not answer, or not to the end; the page sees its own connection end."""


@dataclass(frozen=True)
class Answer:
    """An answer of the service. Its bytes come with `parts`."""

    status: int
    headers: Mapping[str, str]
    length: int | None  # bytes, where the service said how many
    response: http.client.HTTPResponse

    def parts(self) -> Iterator[bytes]:
        """Yields the bytes as they come, to the end.

        Raises:
            LostError: the service stopped before it.
        """
        received = 0
        with _lost():
            while part := self.response.read1(CHUNK_BYTES):
                received += len(part)
                yield part
        if self.length is not None and received != self.length:
            raise LostError


class Service:
    """A service somewhere else.

    Args:
        url: http://HOST:PORT or https://HOST, maybe with a path before /v2.
        certificates: PEM file to trust instead of the system's certificates.
    """

    def __init__(self, url: str, certificates: Path | None = None) -> None:
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise WrongCallError(f"--url: expected http://HOST:PORT or https://HOST ({error})") from error
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise WrongCallError(f"--url: expected http://HOST:PORT or https://HOST, got '{url}'")
        if parts.username is not None or parts.password is not None:
            raise WrongCallError("--url: expected no user name or password in it; the page asks for an API key")
        prefix = parts.path.rstrip("/")
        if prefix and not _TARGET.match(prefix):
            raise WrongCallError(f"--url: expected a plain path, got '{prefix}'")
        self.url = url.rstrip("/")
        self._host, self._port, self._prefix = host, port, prefix
        self._tls = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=None if certificates is None else str(certificates))
        self._tokens_allowed = self._tls is not None or _is_loopback(host)

    @contextmanager
    def ask(self, method: str, target: str, headers: Mapping[str, str], body: Body) -> Iterator[Answer]:
        """Yields the answer to a request of the page, with names of headers in lower case; the connection ends with the block.

        Raises:
            RefusedError: nothing of it is for the service, or the service may not get it; or its answer leads elsewhere.
            LostError: no answer.
        """
        _check_target(method, target)
        sent = {
            name: value for name, value in headers.items() if name in _REQUEST_HEADERS or name.startswith(_OWN_PREFIXES)
        }
        if "authorization" in sent and not self._tokens_allowed:
            raise RefusedError(403, "plain_http", "an API key goes over https alone; this service was given as http")
        connection = self._connection()
        try:
            with _lost():
                connection.putrequest(method, self._prefix + target, skip_accept_encoding=True)
                for name, value in sent.items():
                    connection.putheader(name, value)
                if body.left or method in ("POST", "PATCH"):
                    connection.putheader("Content-Length", str(body.left))
                connection.putheader("Connection", "close")
            response = _answer_to(connection, body)
            yield _checked(response)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        return http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS, context=self._tls)


def _check_target(method: str, target: str) -> None:
    if method not in _METHODS:
        raise RefusedError(405, "method_not_allowed", f"expected one of {', '.join(_METHODS)}, got {method[:20]}")
    path = target.partition("?")[0]
    names = unquote(path).split("/")
    if not _TARGET.match(target) or "." in names or ".." in names or "\\" in unquote(path):
        raise RefusedError(400, "bad_request", "expected a plain path")
    if not (names[1:2] == ["v2"] or (path == _DESCRIPTION and method == "GET")):
        raise RefusedError(404, "not_found", "only /v2 of the service is passed on")


def _answer_to(connection: http.client.HTTPConnection, body: Body) -> http.client.HTTPResponse:
    """Sends the body as it comes. A service that answers before it has read everything is heard."""
    try:
        connection.endheaders()
        while body.left:
            part = body.read()
            if not part:
                raise LostError  # the page has gone
            connection.send(part)
    except ssl.SSLCertVerificationError as error:
        raise RefusedError(
            403, "untrusted", f"the service's certificate is not trusted: {error.verify_message}"
        ) from error
    except (BrokenPipeError, ConnectionResetError):
        pass  # its answer may have come before
    except (OSError, http.client.HTTPException) as error:
        raise LostError from error
    with _lost():
        return connection.getresponse()


def _checked(response: http.client.HTTPResponse) -> Answer:
    if response.status < 200:
        raise LostError
    if 300 <= response.status < 400 and response.status != http.client.NOT_MODIFIED:
        raise RefusedError(403, "redirected", "the service answered with a redirect; redirects are not followed")
    headers = {
        name.lower(): value
        for name, value in response.getheaders()
        if name.lower() in _ANSWER_HEADERS or name.lower().startswith(_OWN_PREFIXES)
    }
    # Nothing that a browser would run or show as a document of this page's origin.
    if headers.get("content-type", "").partition(";")[0].strip().lower() not in _MEDIA_TYPES:
        headers["content-type"] = "application/octet-stream"
    given = response.getheader("Content-Length")
    chunked = response.getheader("Transfer-Encoding") is not None
    length = int(given) if given is not None and given.isascii() and given.isdigit() and not chunked else None
    return Answer(response.status, headers, length, response)


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise LostError from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
