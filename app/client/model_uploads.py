"""A compiled model or an index on its way into a server's repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from cloakwork.app.client.conversations import Progress, json_of
from cloakwork.app.client.errors import ServiceError
from cloakwork.app.client.exchange import ClientRequest, Conversation, FileBody
from cloakwork.app.client.keyring import sha256_of
from cloakwork.fhe_core.errors import ParameterError

_TAKEN: Final = (409, 410)  # other bytes, or a retired version
_LONG_LIST: Final = 16 << 20  # bytes of all versions of all models
_MOST_DIGITS: Final = 18  # of a version that is a number
_NUMBERS: Final = 8  # of versions that others take at the same moment, before giving up


def add_model(
    path: Path, name: str | None, version: str | None, load: bool, progress: Progress
) -> Conversation[dict[str, Any]]:
    """Sends a file as a version of a model: the given one, or the next number that is free.

    Raises:
        ParameterError: the file is empty.
        ServiceError: the server refuses it.
    """
    size = path.stat().st_size
    if not size:
        raise ParameterError(f"{path}: expected a compiled model or an index, got an empty file")
    chosen, headers = path.stem if name is None else name, {"Fhe-Artefact-Sha256": sha256_of(path)}
    body = FileBody(path, size, lambda done: progress("upload", done, size))
    number = 0 if version is not None else (yield from _next_version(chosen))
    for attempt in range(_NUMBERS):
        which = str(number + attempt) if version is None else version
        place = f"/v2/repository/models/{quote(chosen, safe='')}/versions/{quote(which, safe='')}"
        options = "" if load else "?load=false"
        # Sent again where no answer came: the same bytes twice are one version.
        accepted = _TAKEN if version is None and attempt + 1 < _NUMBERS else ()
        response = yield ClientRequest("PUT", place + options, headers=headers, content=body, accepted=accepted)
        if response.status not in _TAKEN:
            return json_of(response)
    raise AssertionError("the last attempt returns or raises")


def versions() -> Conversation[list[dict[str, Any]]]:
    """Lists every version with its name, state and reason."""
    return _list_of((yield ClientRequest("POST", "/v2/repository/index", most_bytes=_LONG_LIST)).content)


def _next_version(name: str) -> Conversation[int]:
    """After every number that is or was one."""
    entries = yield from versions()
    numbers = [str(entry.get("version")) for entry in entries if entry.get("name") == name]
    return 1 + max((int(number) for number in numbers if number.isdecimal() and len(number) <= _MOST_DIGITS), default=0)


def _list_of(content: bytes) -> list[dict[str, Any]]:
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ServiceError("expected JSON from the server, got something else; is it a cloakwork server?") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ServiceError("expected a list from the server, got something else; is it a cloakwork server?")
    return entries
