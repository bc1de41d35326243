"""Paths of requests: their methods, the templates that name them in metrics, and targets in absolute form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match, Route, compile_path
from starlette.types import Scope

NO_ROUTE: Final = "none"
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?#@]+)(/.*)?\Z", re.DOTALL)


def answer_head(router: APIRouter) -> None:
    """Answers HEAD by the route of GET, where there is none of its own. OpenAPI says it once for all."""
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    head_paths = {route.path for route in routes if "HEAD" in (route.methods or ())}
    for route in routes:
        if route.methods == {"GET"} and route.path not in head_paths:
            router.add_api_route(
                route.path.removeprefix(router.prefix),
                route.endpoint,
                methods=["HEAD"],
                include_in_schema=False,
                response_model=route.response_model,
                response_class=route.response_class,
                status_code=route.status_code,
            )


class Methods:
    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes = [route for route in routes if isinstance(route, Route)]
        self.has_page = any(route.path == "/" for route in self._routes)

    def of(self, scope: Scope) -> str:
        """Lists all that the path of a request has, as `Allow` lists them."""
        matching = [route for route in self._routes if route.matches(scope)[0] != Match.NONE]
        return ", ".join(sorted({method for route in matching for method in route.methods or ()}))


class RouteNames:
    def __init__(self, templates: Iterable[str]) -> None:
        self._patterns = [(template, compile_path(template)[0]) for template in dict.fromkeys(templates)]

    def of(self, path: str) -> str:
        return next((template for template, pattern in self._patterns if pattern.match(path)), NO_ROUTE)


def method_name(method: str) -> str:
    """Returns the method if it is HTTP's, else "other": clients make methods up."""
    return method if method in _METHODS else "other"


def to_origin_form(scope: Scope) -> None:
    """Changes path and host to what they are without it. Any other target stays, and has no route."""
    match = _ABSOLUTE.match(scope["raw_path"])
    if match is None:
        return
    scope["raw_path"] = match[2] or b"/"
    scope["path"] = unquote(scope["raw_path"].decode("ascii"))
    scope["headers"] = [(b"host", match[1]), *((name, value) for name, value in scope["headers"] if name != b"host")]
