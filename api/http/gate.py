"""Checks of a request before a route sees it: one message, of bounded size, from nobody's foreign page, its small body read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Receive, Scope

from cloakwork.api.errors import (
    BadRequestError,
    ForeignPageError,
    HeaderTooLargeError,
    TooLargeError,
    UnauthorisedError,
    UnsupportedMediaError,
)
from cloakwork.api.http.bodies import chunks
from cloakwork.api.http.connections import refuse_spare
from cloakwork.api.service.tenants.tenants import Tenants
from cloakwork.api.settings import Settings, is_loopback

HEADER_BYTES: Final = 32 << 10
_HEADER_FIELDS: Final = 128
SMALL_BODY_BYTES: Final = 16 << 10

STREAMED: Final = (
    ("POST", re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/infer\Z")),
    ("POST", re.compile(r"/v2/models/[^/]+/jobs\Z")),
    ("PATCH", re.compile(r"/v2/keys/[^/]+\Z")),
    ("PUT", re.compile(r"/v2/repository/models/[^/]+/versions/[^/]+\Z")),
)
"""Routes that authenticate first and then count the bytes of their bodies themselves."""

_HEALTH: Final = re.compile(r"/v2/health/(live|ready)\Z|/(livez|readyz)\Z")
_PAGES: Final = ("/", "/docs", "/admin")
_OWN_SITES: Final = (b"same-origin", b"none")

_SINGLE: Final = frozenset(
    (
        *(b"authorization", b"content-type", b"range", b"if-range"),
        *(b"upload-offset", b"idempotency-key", b"fhe-key-id", b"fhe-artefact-sha256"),
    )
)

Headers = Iterable[tuple[bytes, bytes]]


def asks_for_health(scope: Scope) -> bool:
    return _HEALTH.match(scope["path"]) is not None


def values_of(headers: Headers, header_name: bytes) -> list[bytes]:
    return [value for name, value in headers if name == header_name]


def has_body(headers: Headers) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")) for name, value in headers
    )


def bearer_token(headers: Headers) -> str:
    """Returns the token of a request.

    Raises:
        UnauthorisedError: there is none.
    """
    scheme, _, token = next(iter(values_of(headers, b"authorization")), b"").decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise UnauthorisedError("an API key is needed; send it as 'Authorization: Bearer cw_..'")
    return token


class Gate:
    def __init__(self, settings: Settings, tenants: Tenants) -> None:
        self._settings = settings
        self._tenants = tenants
        self._origins = frozenset(each.rstrip(b"/") for each in settings.allowed_origins.lower().encode().split())

    def check(self, scope: Scope) -> None:
        """Refuses what can be refused before a byte of the body is read.

        Raises:
            TooManyConnectionsError, HeaderTooLargeError, BadRequestError, UnsupportedMediaError, ForeignPageError.
        """
        connection = scope["state"].get("connection")
        if connection is not None and not asks_for_health(scope):
            refuse_spare(connection)
        headers = scope["headers"]
        _check_size(scope)
        _check_framing(scope["http_version"], headers)
        _check_coding(headers)
        _check_single(headers)
        hosts = values_of(headers, b"host")
        if self._settings.insecure_local:
            for host in hosts:
                self._check_host(host.decode("latin-1"))
        own_origins = [f"{scope['scheme']}://".encode() + host.lower() for host in hosts]
        if not _opens_page(scope):
            self._check_page(headers, own_origins)

    async def small_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Returns the body of a request that no route streams, read after its API key; None where there is nothing to read.

        Raises:
            UnauthorisedError, TooLargeError, SlowBodyError.
            ClientDisconnect: the client has gone.
        """
        path, headers = scope["path"], scope["headers"]
        if not has_body(headers) or not path.startswith("/v2/") or asks_for_health(scope):
            return None  # what takes no API key reads no body
        if any(scope["method"] == method and pattern.match(path) for method, pattern in STREAMED):
            return None
        if not self._settings.insecure_local:
            await self._tenants.authenticate(bearer_token(headers))
        for length in values_of(headers, b"content-length"):
            if int(length) > SMALL_BODY_BYTES:
                raise TooLargeError(f"expected at most {SMALL_BODY_BYTES} bytes, got {int(length)}")
        body = bytearray()
        async for chunk in chunks(Request(scope, receive), SMALL_BODY_BYTES, self._settings.body_idle_seconds):
            body += chunk
        return bytes(body)

    # --- pages in browsers ---

    def _check_host(self, host: str) -> None:
        """A page must not reach this service under a name of its own (DNS rebinding)."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if not is_loopback(name) and name != self._settings.host:
            raise ForeignPageError(
                "this service serves its own machine alone (--insecure-local); ask it as localhost, 127.0.0.1 or [::1]"
            )

    def _check_page(self, headers: Headers, own_origins: list[bytes]) -> None:
        """Browsers say for whom they ask; other clients send neither header."""
        origins = [origin.lower() for origin in values_of(headers, b"origin")]
        if origins and all(origin in self._origins for origin in origins):
            return
        sites = values_of(headers, b"sec-fetch-site")
        if any(origin not in own_origins for origin in origins) or any(site not in _OWN_SITES for site in sites):
            raise ForeignPageError(
                "a page of another site asked for this; its operator may list that site in the setting allowed_origins"
            )


def _opens_page(scope: Scope) -> bool:
    """Somebody follows a link to the page: its files are the same for everyone, and no other page sees or frames them."""
    headers = scope["headers"]
    return (
        scope["method"] == "GET"
        and scope["path"] in _PAGES
        and values_of(headers, b"sec-fetch-mode") == [b"navigate"]
        and values_of(headers, b"sec-fetch-dest") == [b"document"]
        and not values_of(headers, b"origin")
    )


def _check_size(scope: Scope) -> None:
    headers = scope["headers"]
    size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in headers)
    if size > HEADER_BYTES or len(headers) > _HEADER_FIELDS:
        raise HeaderTooLargeError(
            f"expected a header of at most {HEADER_BYTES} bytes and {_HEADER_FIELDS} fields, got {size} bytes and {len(headers)} fields"
        )


def _check_framing(version: str, headers: Headers) -> None:
    """RFC 9112, 6.1: whoever sends two lengths may mean two requests, of which somebody on the way has seen one."""
    if not values_of(headers, b"transfer-encoding"):
        return
    if values_of(headers, b"content-length"):
        raise BadRequestError("expected Content-Length or Transfer-Encoding, got both; send one of them")
    if version != "1.1":
        raise BadRequestError(f"HTTP/{version} has no Transfer-Encoding; send a Content-Length")


def _check_single(headers: Headers) -> None:
    """Of two values of one of these, somebody on the way may have seen the other."""
    names = [name for name, _ in headers if name in _SINGLE]
    for name in names:
        if names.count(name) > 1:
            raise BadRequestError(f"expected one header {name.decode().title()}, got {names.count(name)}")


def _check_coding(headers: Headers) -> None:
    """Sizes of bodies are known and counted as they come; what a compressed one becomes is not."""
    codings = [value for value in values_of(headers, b"content-encoding") if value.lower() != b"identity"]
    if codings and has_body(headers):
        raise UnsupportedMediaError(
            "bodies with a Content-Encoding are not taken: send it uncompressed (ciphertexts do not compress)"
        )
