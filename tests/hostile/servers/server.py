"""Servers that do what a case's table says, and otherwise what an honest service would: one for each case, each on a port of its own.

As a script it serves every case for a client in another language: the first line of its output is a JSON object of URLs by the cases' names, and it
ends with its standard input. `python tests/hostile/servers/server.py [NAME ..]`
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from servers.cases import CASES, Case
from servers.honest import SET, answer_to, metadata_of, specification_of
from servers.replies import Reply, as_json, standing

_ROUTES: Final = (
    ("models", "GET", r"/v2/models"),
    ("specification", "GET", r"/v2/models/.+/client"),
    ("metadata", "GET", r"/v2/models/.+"),
    ("opening", "POST", r"/v2/keys"),
    ("keys", "GET", r"/v2/keys"),
    ("offset", "HEAD|GET", r"/v2/keys/.+"),
    ("part", "PATCH", r"/v2/keys/.+"),
    ("deletion", "DELETE", r"/v2/keys/.+"),
    ("infer", "POST", r"/v2/models/.+/infer"),
    ("events", "GET", r"/v2/jobs/.+/events"),
    ("result", "GET", r"/v2/jobs/.+/result"),
    ("job", "GET", r"/v2/jobs/.+"),
)
_LONGEST_BODY: Final = 1 << 30
_LONGEST_SECONDS: Final = 60.0  # that a reply without an end goes on, for clients that never leave


class CaseServer(ThreadingHTTPServer):
    """One case, and what its client asked."""

    daemon_threads = True

    def __init__(self, case: Case, set_name: str = SET) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.case = case
        self.set_name = set_name
        self.key_bytes = 0  # as they are announced
        self.asked: list[str] = []  # method and path of every request
        self.counts: Counter[str] = Counter()  # of requests by route
        self.received = bytearray()  # of the evaluation keys
        self.received_bytes = 0  # of all bodies
        self.request = b""  # the newest encrypted samples

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients leave in the middle, as they should."""

    def reply_to(self, route: str, method: str, path: str, body: bytes) -> Reply:
        """The n-th reply of the case to the n-th request of its route, and its last one from then on."""
        self.asked.append(f"{method} {path}")
        self.received_bytes += len(body)
        self.request = body if route == "infer" else self.request
        if route == "opening":
            self.key_bytes = json.loads(body)["bytes"]
        number, self.counts[route] = self.counts[route], self.counts[route] + 1
        scripted = self.case.replies.get(route)
        if scripted is None:
            return self._honest_reply(route, body)
        replies = (scripted,) if isinstance(scripted, Reply) else scripted
        return replies[min(number, len(replies) - 1)]

    def _honest_reply(self, route: str, body: bytes) -> Reply:
        match route:
            case "models":
                return as_json({"models": ["m"]})
            case "metadata":
                return as_json(metadata_of(self.case.metadata))
            case "specification":
                return as_json(specification_of(self.case.specification, self.set_name))
            case "opening":
                self.received = bytearray()
                return as_json({"id": "k1", "state": "open"}, 201)
            case "keys":
                return as_json({"keys": []})
            case "part" | "offset":
                self.received += body
                offset = len(self.received)
                return standing("k1", offset, "ready" if offset == self.key_bytes else "open")
            case "infer" | "result":
                return Reply(body=self.case.answer(answer_to(bytes(self.received), self.request)))
            case "job":
                return as_json({"id": "j1", "state": "done"})
        return as_json({}) if route in ("deletion", "events") else as_json({"error": "there is no such route"}, 404)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CaseServer

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), _LONGEST_BODY)
        body = self.rfile.read(length)
        path = self.path.partition("?")[0]
        route = next(
            (name for name, method, form in _ROUTES if re.fullmatch(method, self.command) and re.fullmatch(form, path)),
            "",
        )
        reply = self.server.reply_to(route, self.command, self.path, body)
        with suppress(OSError):  # the client has gone
            self._send(reply)

    do_GET = do_POST = do_HEAD = do_PATCH = do_DELETE = do_PUT = _answer  # noqa: N815

    def _send(self, reply: Reply) -> None:
        if reply.raw:
            self.close_connection = True
        else:
            self._send_head(reply)
        if self.command == "HEAD":
            return
        content, end, sent = reply.content(), time.monotonic() + _LONGEST_SECONDS, 0
        while (reply.times is None or sent < reply.times) and time.monotonic() < end:
            if reply.pause:
                time.sleep(reply.pause)
            self.wfile.write(content)
            sent += 1

    def _send_head(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        if reply.times is None or reply.cut:
            self.close_connection = True
            self.send_header("Connection", "close")
        length = reply.length if reply.length is not None else reply.true_length()
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()


@contextmanager
def serving(case: Case, set_name: str = SET) -> Iterator[CaseServer]:
    """Until the block ends."""
    with CaseServer(case, set_name) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    servers = {name: CaseServer(CASES[name]) for name in sys.argv[1:] or CASES}
    for server in servers.values():
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    sys.stdout.write(json.dumps({name: server.url for name, server in servers.items()}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
