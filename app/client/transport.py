"""Carries conversations out over HTTP, with retries where they are safe. The only module that imports httpx."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from cloakwork.app.client.errors import ConnectionLostError, UntrustedError, error_of, retry_after
from cloakwork.app.client.exchange import Conversation, FileBody, OnEvent, Request, Response, T
from cloakwork.fhe_core.errors import ParameterError, UnsupportedError, how_to_install

try:
    import httpx
except ImportError as error:  # pragma: no cover (the tests have it)
    raise UnsupportedError(f"the client of the service needs httpx; {how_to_install('client')}") from error

ATTEMPTS: Final = 5
_FIRST_PAUSE_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 30.0
_PASSING: Final = (429, 502, 503, 504)  # statuses that may be others a moment later; the request was not carried out
_LARGEST_EVENT: Final = 1 << 20


def checked_url(url: str, has_token: bool, allow_plain_http: bool) -> str:
    """A token in clear over a network is a token given away."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ParameterError(f"url: expected http://HOST:PORT or https://HOST, got '{url}'")
    if parts.username or parts.password:
        raise ParameterError("url: expected no user name or password in it; pass api_key=")
    if parts.scheme == "http" and has_token and not allow_plain_http and not _is_loopback(parts.hostname):
        raise ParameterError(
            "url: expected https, because an API key goes with every request; pass allow_plain_http=True if the network is yours"
        )
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _options(url: str, api_key: str | None, timeout: float, verify: Any) -> dict[str, Any]:
    headers = {"User-Agent": f"cloakwork/{version('cloakwork')}"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return {"base_url": url, "headers": headers, "timeout": httpx.Timeout(timeout, connect=10.0), "verify": verify}


def _pause(attempt: int, response: Response | None) -> float:
    """Seconds before the next attempt: what the server asks for, else twice as long every time, scattered."""
    asked = None if response is None else retry_after(dict(response.headers))
    if asked is not None:
        return min(asked, _LONGEST_PAUSE_SECONDS)
    pause: float = min(_FIRST_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.0)
    return pause


def _try_again(request: Request, attempt: int, response: Response | None) -> bool:
    """After an answer that may be another one later, or (None) no answer at all."""
    if attempt + 1 >= ATTEMPTS or not request.repeatable:
        return False
    return response is None or (response.status in _PASSING and response.status not in request.accepted)


def _checked(request: Request, response: Response) -> Response:
    if response.status >= 400 and response.status not in request.accepted:
        raise error_of(response.status, dict(response.headers), response.content)
    return response


@contextmanager
def _lost(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        _require_trust(url, error)
        raise ConnectionLostError(f"{url}: no answer ({type(error).__name__}); is the server running there?") from error


_CUT: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)  # connections that broke


def _require_trust(url: str, lost: httpx.TransportError) -> None:
    """UntrustedError where that is why: trying again does not help."""
    error: BaseException | None = lost
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            raise UntrustedError(
                f"{url}: the server's certificate is not trusted ({error.verify_message}); name the certificates to trust, such as your own "
                "authority's, with --certificates FILE, in Python with verify="
            ) from error
        if isinstance(error, ssl.SSLError) and isinstance(lost, httpx.ConnectError) and not isinstance(error, _CUT):
            raise UntrustedError(
                f"{url}: no encrypted connection ({error.reason or type(error).__name__}); does the server speak TLS there, or http://?"
            ) from error
        error = error.__cause__ or error.__context__


class SyncTransport:
    def __init__(self, url: str, api_key: str | None, timeout: float, verify: Any) -> None:
        self._url = url
        self._http = httpx.Client(**_options(url, api_key, timeout, verify))

    def close(self) -> None:
        self._http.close()

    def carry_out(self, conversation: Conversation[T]) -> T:
        """Runs the generator to its end; errors are raised inside it, where it may mend them."""
        try:
            request = next(conversation)
            while True:
                try:
                    response = self._exchange(request)
                except Exception as error:
                    request = conversation.throw(error)
                else:
                    request = conversation.send(response)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _exchange(self, request: Request) -> Response:
        for attempt in range(ATTEMPTS):
            response = None
            try:
                with _lost(self._url):
                    response = self._once(request)
            except ConnectionLostError:
                if not _try_again(request, attempt, None):
                    raise
            else:
                if not _try_again(request, attempt, response):
                    return _checked(request, response)
            time.sleep(_pause(attempt, response))
        raise AssertionError("the last attempt returns or raises")

    def _once(self, request: Request) -> Response:
        arguments = _arguments(request)
        if request.on_event is None:
            answer = self._http.request(request.method, request.path, **arguments)
            return Response(answer.status_code, _lower(answer.headers), answer.content)
        with self._http.stream(request.method, request.path, **arguments) as answer:
            if answer.status_code >= 400:
                return Response(answer.status_code, _lower(answer.headers), answer.read())
            parser = EventParser(request.on_event)
            for line in answer.iter_lines():
                parser.line(line)
            return Response(answer.status_code, _lower(answer.headers), b"")


class AsyncTransport:
    def __init__(self, url: str, api_key: str | None, timeout: float, verify: Any) -> None:
        self._url = url
        self._http = httpx.AsyncClient(**_options(url, api_key, timeout, verify))

    async def close(self) -> None:
        await self._http.aclose()

    async def carry_out(self, conversation: Conversation[T]) -> T:
        """As SyncTransport; encryption and decryption, which happen inside the generator, run in a thread."""
        step: Callable[[], Request] = partial(next, conversation)
        while True:
            request = await asyncio.to_thread(_advance, step)
            if isinstance(request, _End):
                return request.value  # type: ignore[no-any-return]
            try:
                response = await self._exchange(request)
            except Exception as error:
                step = partial(conversation.throw, error)
            else:
                step = partial(conversation.send, response)

    async def _exchange(self, request: Request) -> Response:
        for attempt in range(ATTEMPTS):
            response = None
            try:
                with _lost(self._url):
                    response = await self._once(request)
            except ConnectionLostError:
                if not _try_again(request, attempt, None):
                    raise
            else:
                if not _try_again(request, attempt, response):
                    return _checked(request, response)
            await asyncio.sleep(_pause(attempt, response))
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, request: Request) -> Response:
        arguments = _arguments(request, _async_pieces)
        if request.on_event is None:
            answer = await self._http.request(request.method, request.path, **arguments)
            return Response(answer.status_code, _lower(answer.headers), answer.content)
        async with self._http.stream(request.method, request.path, **arguments) as answer:
            if answer.status_code >= 400:
                return Response(answer.status_code, _lower(answer.headers), await answer.aread())
            parser = EventParser(request.on_event)
            lines: AsyncIterator[str] = answer.aiter_lines()
            async for line in lines:
                parser.line(line)
            return Response(answer.status_code, _lower(answer.headers), b"")


class EventParser:
    """Server-sent events, line by line (WHATWG HTML, section 9.2), with data in JSON."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._name, self._data, self._size = "message", list[str](), 0

    def line(self, line: str) -> None:
        if not line:
            self._dispatch()
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        self._size += len(line)
        if self._size > _LARGEST_EVENT:
            raise ConnectionLostError(
                f"event: expected at most {_LARGEST_EVENT} characters, got more; the server misbehaves"
            )
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)

    def _dispatch(self) -> None:
        name, text = self._name, "\n".join(self._data)
        self._name, self._data, self._size = "message", [], 0
        if not text:
            return
        try:
            data = json.loads(text)
        except ValueError:
            return
        if isinstance(data, dict):
            self._on_event(name, data)


class _End:
    def __init__(self, value: Any) -> None:
        self.value = value


def _advance(step: Callable[[], Request]) -> Request | _End:
    """StopIteration does not pass through a future."""
    try:
        request = step()
    except StopIteration as end:
        return _End(end.value)
    return request


def _arguments(request: Request, pieces: Callable[[FileBody], Any] = FileBody.pieces) -> dict[str, Any]:
    """`pieces`: how the client of httpx takes a body that is read as it is sent."""
    arguments: dict[str, Any] = {"headers": dict(request.headers)}
    if isinstance(request.content, FileBody):
        arguments["content"] = pieces(request.content)
        arguments["headers"]["Content-Length"] = str(request.content.size)
    elif request.content is not None:
        arguments["content"] = request.content
    if request.content is not None:
        arguments["headers"].setdefault("Content-Type", "application/octet-stream")
    if request.json is not None:
        arguments["json"] = request.json
    return arguments


async def _async_pieces(body: FileBody) -> AsyncIterator[bytes]:
    pieces = body.pieces()
    while (piece := await asyncio.to_thread(next, pieces, b"")) != b"":
        yield piece


def _lower(headers: httpx.Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
