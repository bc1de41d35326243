"""Carries conversations out over HTTP, with retries where they are safe. The only module that imports httpx."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
import ssl
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from cloakwork.app.client.answer_limits import Body, check_head, late, seconds_until_answer
from cloakwork.app.client.errors import ConnectionLostError, UntrustedError, error_of, retry_after
from cloakwork.app.client.event_stream import EventParser, goes_on
from cloakwork.app.client.exchange import ClientRequest, Conversation, FileBody, Response, T
from cloakwork.fhe_core.errors import ParameterError, UnsupportedError, how_to_install

try:
    import httpx
except ImportError as error:  # pragma: no cover (the tests have it)
    raise UnsupportedError(f"the client of the service needs httpx; {how_to_install('client')}") from error

ATTEMPTS: Final = 5
_FIRST_PAUSE_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 30.0
_PASSING: Final = (429, 502, 503, 504)  # statuses that may be others a moment later; the request was not carried out


def checked_url(url: str, has_token: bool, allow_plain_http: bool) -> str:
    """Checks a URL: a token in clear over a network is a token given away."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ParameterError(f"url: expected http://HOST:PORT or https://HOST, got '{url}'")
    try:
        parts.port  # noqa: B018 (raises)
    except ValueError as error:
        raise ParameterError(f"url: expected a port of 0 to 65535, got '{url}'") from error
    if parts.username or parts.password:
        raise ParameterError("url: expected no user name or password in it; pass api_key=")
    if parts.scheme == "http" and has_token and not allow_plain_http and not _is_loopback(parts.hostname):
        raise ParameterError(
            "url: expected https, because an API key goes with every request; in Python, allow_plain_http=True says that the network is yours"
        )
    return url.rstrip("/")


def is_local(url: str) -> bool:
    """Whether the server is on this machine."""
    return _is_loopback(urlsplit(url).hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _options(url: str, api_key: str | None, timeout: float, verify: Any) -> dict[str, Any]:
    headers = {"User-Agent": f"cloakwork/{version('cloakwork')}", "Accept-Encoding": "identity"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    patience = httpx.Timeout(timeout, connect=min(timeout, 10.0))
    return {"base_url": url, "headers": headers, "timeout": patience, "verify": verify, "follow_redirects": False}


def _pause(attempt: int, response: Response | None) -> float:
    """Returns seconds before the next attempt: what the server asks for, else twice as long every time, scattered."""
    retry_seconds = None if response is None else retry_after(dict(response.headers))
    if retry_seconds is not None:
        return min(retry_seconds, _LONGEST_PAUSE_SECONDS)
    pause: float = min(_FIRST_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.0)
    return pause


class _Attempts:
    """Attempts of a request: it is sent again after an answer that may be another one later, or none at all, as long as patience lasts."""

    def __init__(self, request: ClientRequest, timeout: float) -> None:
        self._request, self._count = request, 0
        self._end = time.monotonic() + seconds_until_answer(request, timeout)

    def pause(self, response: Response | None) -> float | None:
        """Returns seconds until the next one; None: there is none."""
        self._count += 1
        if self._count >= ATTEMPTS or not self._request.repeatable:
            return None
        if response is not None and (response.status not in _PASSING or response.status in self._request.accepted):
            return None
        pause = _pause(self._count - 1, response)
        return pause if time.monotonic() + pause < self._end else None


def _checked(request: ClientRequest, response: Response) -> Response:
    if response.status >= 400 and response.status not in request.accepted:
        raise error_of(response.status, dict(response.headers), response.content)
    return response


@contextmanager
def _lost(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        _require_trust(url, error)
        raise ConnectionLostError(f"{url}: no answer; is the server running there?") from error


_CUT: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)  # connections that broke


def _require_trust(url: str, lost: httpx.TransportError) -> None:
    """Raises UntrustedError where that is why: trying again does not help."""
    error: BaseException | None = lost
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            raise UntrustedError(
                f"{url}: the server's certificate is not trusted ({error.verify_message}); name the certificates to trust, such as your own "
                "authority's, with --certificates FILE, in Python with verify="
            ) from error
        if isinstance(error, ssl.SSLError) and isinstance(lost, httpx.ConnectError) and not isinstance(error, _CUT):
            raise UntrustedError(
                f"{url}: no encrypted connection ({error.reason or 'no reason given'}); does the server speak TLS there, or http://?"
            ) from error
        error = error.__cause__ or error.__context__


class _Watch:
    """Ends the connections of a client whose answer does not begin: a server that sends a header byte by byte is never silent."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Follows new connections, as httpx calls it."""
        stream = info.get("return_value") if event.endswith((".connect_tcp.complete", ".start_tls.complete")) else None
        if stream is not None and (connection := stream.get_extra_info("socket")) is not None:
            self._sockets.add(connection)

    @contextmanager
    def until(self, url: str, seconds: float) -> Iterator[None]:
        """Raises MisbehavingServerError for a block that takes longer."""
        ended = threading.Event()
        timer = threading.Timer(seconds, self._end, (ended,))
        timer.daemon = True
        timer.start()
        try:
            yield
        except httpx.TransportError as error:
            if ended.is_set():
                raise late(url, seconds) from error
            raise
        finally:
            timer.cancel()

    def _end(self, ended: threading.Event) -> None:
        ended.set()
        for connection in list(self._sockets):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class SyncTransport:
    """Carries conversations out; several threads may use it."""

    def __init__(self, url: str, api_key: str | None, timeout: float, verify: Any) -> None:
        self._url, self._timeout = url, timeout
        self._http = httpx.Client(**_options(url, api_key, timeout, verify))
        self._watch = _Watch()

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

    def _exchange(self, request: ClientRequest) -> Response:
        attempts = _Attempts(request, self._timeout)
        while True:
            response, lost = None, None
            try:
                with _lost(self._url):
                    response = self._once(request)
            except ConnectionLostError as error:
                lost = error
            pause = attempts.pause(response)
            if pause is None:
                return _last(request, response, lost)
            time.sleep(pause)

    def _once(self, request: ClientRequest) -> Response:
        seconds = seconds_until_answer(request, self._timeout)
        http_request = self._http.build_request(
            request.method, request.path, extensions={"trace": self._watch.trace}, **_arguments(request)
        )
        with self._watch.until(self._url, seconds):
            answer = self._http.send(http_request, stream=True)
        try:
            headers = _lower(answer.headers)
            check_head(request, answer.status_code, headers)
            if request.on_event is not None and answer.status_code < 400:
                parser = EventParser(request.on_event)
                for piece in answer.iter_raw():
                    parser.feed(piece)
                    if not goes_on(request):
                        break
                return Response(answer.status_code, headers, b"")
            body = Body(request, answer.status_code, headers, self._timeout)
            for piece in answer.iter_raw():
                if not body.take(piece):
                    break
            return body.response(answer.status_code, headers)
        finally:
            answer.close()


class AsyncTransport:
    """The same for asyncio."""

    def __init__(self, url: str, api_key: str | None, timeout: float, verify: Any) -> None:
        self._url, self._timeout = url, timeout
        self._http = httpx.AsyncClient(**_options(url, api_key, timeout, verify))

    async def close(self) -> None:
        await self._http.aclose()

    async def carry_out(self, conversation: Conversation[T]) -> T:
        """Carries out a conversation as SyncTransport does; encryption and decryption, which happen inside the generator, run in a thread."""
        step: Callable[[], ClientRequest] = partial(next, conversation)
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

    async def _exchange(self, request: ClientRequest) -> Response:
        attempts = _Attempts(request, self._timeout)
        while True:
            response, lost = None, None
            try:
                with _lost(self._url):
                    response = await self._once(request)
            except ConnectionLostError as error:
                lost = error
            pause = attempts.pause(response)
            if pause is None:
                return _last(request, response, lost)
            await asyncio.sleep(pause)

    async def _once(self, request: ClientRequest) -> Response:
        seconds = seconds_until_answer(request, self._timeout)
        http_request = self._http.build_request(request.method, request.path, **_arguments(request, _async_pieces))
        try:
            async with asyncio.timeout(seconds):
                answer = await self._http.send(http_request, stream=True)
        except TimeoutError as error:
            raise late(self._url, seconds) from error
        try:
            headers = _lower(answer.headers)
            check_head(request, answer.status_code, headers)
            if request.on_event is not None and answer.status_code < 400:
                parser = EventParser(request.on_event)
                async for piece in answer.aiter_raw():
                    parser.feed(piece)
                    if not goes_on(request):
                        break
                return Response(answer.status_code, headers, b"")
            body = Body(request, answer.status_code, headers, self._timeout)
            async for piece in answer.aiter_raw():
                if not body.take(piece):
                    break
            return body.response(answer.status_code, headers)
        finally:
            await answer.aclose()


def _last(request: ClientRequest, response: Response | None, lost: ConnectionLostError | None) -> Response:
    """Returns what the last attempt gave."""
    if response is not None:
        return _checked(request, response)
    assert lost is not None
    raise lost


class _End:
    def __init__(self, value: Any) -> None:
        self.value = value


def _advance(step: Callable[[], ClientRequest]) -> ClientRequest | _End:
    """StopIteration does not pass through a future."""
    try:
        request = step()
    except StopIteration as end:
        return _End(end.value)
    return request


def _arguments(request: ClientRequest, pieces: Callable[[FileBody], Any] = FileBody.pieces) -> dict[str, Any]:
    """Returns `pieces`: how the client of httpx takes a body that is read as it is sent."""
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
