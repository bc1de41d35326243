"""The page at `/` and the description of the routes at `/docs`: files, for everyone who can connect."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, HTTPException, Request, Response

from cloakwork.api.http.page_files import PageFile, not_built


def page_router(files: Mapping[str, PageFile]) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def page(request: Request) -> Response:
        return _answer("index.html", request)

    @router.get("/docs")
    async def routes(request: Request) -> Response:
        return _answer("docs.html", request)

    @router.get("/page/{name}")
    async def asset(name: str, request: Request) -> Response:
        if name not in files:
            raise HTTPException(404)
        return files[name].answer(request)

    def _answer(name: str, request: Request) -> Response:
        return files[name].answer(request) if name in files else not_built()

    return router
