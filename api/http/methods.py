"""Methods of a path: HEAD wherever GET is, and which ones there are, for `Allow`."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope


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
