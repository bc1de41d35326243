"""Names of routes for metrics: the template of a path, so that labels stay few whatever clients request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.routing import compile_path

NO_ROUTE: Final = "none"

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class RouteNames:
    def __init__(self, templates: Iterable[str]) -> None:
        self._patterns = [(template, compile_path(template)[0]) for template in dict.fromkeys(templates)]

    def of(self, path: str) -> str:
        return next((template for template, pattern in self._patterns if pattern.match(path)), NO_ROUTE)


def method_name(method: str) -> str:
    """Returns the method if it is HTTP's, else "other": clients make methods up."""
    return method if method in _METHODS else "other"
