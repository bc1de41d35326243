"""Logs as one JSON object a line, on standard error; plain lines on a terminal. No payloads: bodies, keys and tokens never reach a logger."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message", "taskName"}
_UNSEEN: Final = frozenset(("settings", "request_id", "route", "client"))  # on a terminal

AUDIT: Final = "cloakwork.administration"
"""Logger of what administrators do; its lines are written whatever the level."""


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


class LineFormatter(logging.Formatter):
    """A formatter of log lines for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = {name: value for name, value in record.__dict__.items() if name not in _STANDARD | _UNSEEN}
        about = "".join(f" {name}={value}" for name, value in fields.items() if value is not None)
        line = f"{moment} {record.levelname.lower()}: {record.getMessage()}{about}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter() if sys.stderr.isatty() else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("cloakwork").setLevel(level.upper())
    logging.getLogger(AUDIT).setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
