"""moto's S3 server with faults: `python faulty_store.py HOST PORT FILE`.

FILE says how requests are answered: nothing (or no file) as usual, a number of milliseconds that much later, "500" or "503" with that status.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

_STATUS = {"500": "500 Internal Server Error", "503": "503 Slow Down"}
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def faulty(application: Application, file: Path) -> Application:
    """The application that does to each request what the file says."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        fault = file.read_text(encoding="ascii").strip() if file.exists() else ""
        if fault in _STATUS:
            start_response(_STATUS[fault], [("Content-Type", "text/plain"), ("Connection", "close")])
            return [b"a fault of this test"]
        if fault:
            time.sleep(float(fault) / 1000)
        return application(environ, start_response)

    return answer


def main() -> None:
    host, port, file = sys.argv[1:]
    application = faulty(DomainDispatcherApplication(create_backend_app), Path(file))
    run_simple(host, int(port), application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
