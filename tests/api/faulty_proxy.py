"""A TCP proxy between a service and what it depends on, which does what stores and networks do on bad days."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PASS, SLOW, REFUSED, HANGS, CUT = "pass", "slow", "refused", "hangs", "cut"
"""`SLOW`: every piece of an answer comes `delay` seconds late. `HANGS`: accepts, takes, never answers. `CUT`: an answer ends in its middle.
Beside them a status such as "503": of HTTP, whatever is asked."""

_BYTES: Final = 1 << 16
_END_OF_HEADER: Final = b"\r\n\r\n"


class FaultyProxy:
    """Set `mode` from any thread; it holds for connections that are open too."""

    def __init__(self, target: int | Path) -> None:
        """A port of this machine, or a socket."""
        self._target = target
        self.delay = 2.0
        self.port = 0
        self.connections = 0  # that are open
        self._mode = PASS
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def mode(self) -> str:
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        self._call(self._change(mode))

    def start(self) -> None:
        self._thread.start()
        self._call(self._listen())

    def end(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _change(self, mode: str) -> None:
        before, self._mode = self._mode, mode
        if mode == REFUSED and self._server is not None:
            self._server.close()
            self._server = None
        elif mode != REFUSED and self._server is None:
            await self._listen()
        if mode == REFUSED or before == HANGS:  # what was swallowed never comes
            for writer in list(self._writers):
                writer.transport.abort()
            await asyncio.sleep(0.05)  # their tasks end

    async def _close(self) -> None:
        await self._change(REFUSED)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # their sockets close

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        back: asyncio.Task[None] | None = None
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            target: asyncio.StreamWriter | None = None
            asked = b""
            while data := await reader.read(_BYTES):
                if self._mode == HANGS:
                    continue
                if self._mode.isdigit():
                    asked += data
                    if await self._refuse(asked, writer):
                        break
                    continue
                if target is None:
                    answers, target = await self._connect()
                    self._writers.add(target)
                    back = asyncio.create_task(self._answer(answers, writer))
                target.write(data)
                await target.drain()
            if target is not None:
                target.transport.abort()
                self._writers.discard(target)
        if back is not None:
            back.cancel()
        writer.close()
        self._writers.discard(writer)
        self.connections -= 1

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, Path):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection("127.0.0.1", self._target)

    async def _refuse(self, asked: bytes, writer: asyncio.StreamWriter) -> bool:
        if _END_OF_HEADER not in asked:
            return False
        body = b"<Error><Code>SlowDown</Code></Error>"
        writer.write(
            b"HTTP/1.1 %s Bad day\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (self._mode.encode(), len(body))
        )
        writer.write(body)
        await writer.drain()
        return True

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_BYTES):
                if self._mode == SLOW:
                    await asyncio.sleep(self.delay)
                if self._mode == HANGS:
                    continue
                if self._mode == CUT and _END_OF_HEADER in data:
                    header, _, body = data.partition(_END_OF_HEADER)
                    writer.write(header + _END_OF_HEADER + body[: len(body) // 2])
                    await writer.drain()
                    break
                writer.write(data)
                await writer.drain()
            writer.close()


@contextmanager
def faulty_proxy(target: int | Path) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(target)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.end()
