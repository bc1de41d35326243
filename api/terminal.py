"""Output of `serve` on a terminal; in a pipe the log has it in JSON."""

from __future__ import annotations

import sys
from typing import Any, Final

from cloakwork.api.release import release
from cloakwork.api.service.services import Services

_GONE: Final = ("retired", "removed")
_REASONS: Final = {
    "structured_refused": "its parameter set has structured secrets; start with --structured",
    "unloaded": "unloaded; POST /v2/repository/models/NAME/load loads it",
    "missing": "its file is missing",
}


def is_terminal() -> bool:
    return sys.stderr.isatty()


def models_by_state(services: Services) -> tuple[list[str], dict[str, str]]:
    """Names with versions: those in service, and the others with the reason."""
    entries = [entry for entry in services.models.index() if entry["reason"] not in _GONE]
    ready = [_name(entry) for entry in entries if entry["state"] == "READY"]
    refused = {_name(entry): _REASONS.get(entry["reason"], entry["reason"]) for entry in entries if entry["reason"]}
    return ready, refused


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['name']}/{entry['version']}"


def listening(urls: list[str]) -> str:
    return f"cloakwork {release()} listens on {' '.join(urls)} and reads its models; Ctrl-C ends it."


def ready(services: Services, urls: list[str], has_page: bool) -> str:
    models, refused = models_by_state(services)
    lines = [f"ready: {', '.join(models) or 'no model; put one into ' + str(services.models.repository)}"]
    lines += [f"refused: {name}: {reason}" for name, reason in refused.items()]
    settings = services.settings
    if settings.page and settings.serves:
        where = ", ".join(f"{urls[0]}{path}" for path in ("/", "/docs", "/admin")[: 3 if settings.admin_page else 2])
        lines.append(f"page: {where}" if has_page else f"page: not built; {urls[0]}/ says how")
    return "\n".join(lines)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
