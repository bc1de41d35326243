"""The page at `/`, the description of the routes at `/docs` and the administrator's page at `/admin`: files, for everyone who can connect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response

from cloakwork.api.http.page_files import PageFile, not_built

_ADMIN: Final = "admin."  # names of the administrator's files begin so


def page_router(files: Mapping[str, PageFile], admin: bool) -> APIRouter:
    """Creates the routes of the page. `admin`: with the administrator's page."""
    router = APIRouter(include_in_schema=False)
    if not admin:
        files = {name: file for name, file in files.items() if not name.startswith(_ADMIN)}

    @router.get("/")
    async def page(request: Request) -> Response:
        return _answer("index.html", request)

    @router.get("/docs")
    async def routes(request: Request) -> Response:
        return _answer("docs.html", request)

    if admin:

        @router.get("/admin")
        async def administration(request: Request) -> Response:
            return _answer("admin.html", request)

    @router.get("/page/{name}")
    async def asset(name: str, request: Request) -> Response:
        if name not in files:
            raise HTTPException(404)
        return files[name].answer(request)

    def _answer(name: str, request: Request) -> Response:
        return files[name].answer(request) if name in files else not_built()

    return router
