"""The page at `/`, the description of the routes at `/docs` and the administrator's page at `/admin`: files, for everyone who can connect."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse

from cloakwork.api.http.page_content import FOLDER, PageContent, policy, read_content

_POLICY: Final = policy()
_NOT_MODIFIED: Final = 304
_NOT_BUILT: Final = """\
cloakwork: the service runs; its page was not built.

To get it, install it again where Node (20.19 or newer) is, and start the service again. Wheels and images have it.
Everything else is there: /openapi.json describes every route, and docs/howto/service.md says how to use them.
"""
_ADMIN: Final = "admin."  # names of the administrator's files begin so


class PageFile:
    def __init__(self, file: PageContent) -> None:
        self._file = file

    def answer(self, request: Request) -> Response:
        """Answers with the file; 304 if the browser has it already. A browser asks each time, so that nobody runs the client of an earlier
        release."""
        file = self._file
        headers = {"ETag": file.etag, "Cache-Control": "no-cache", "Content-Security-Policy": _POLICY}
        if file.is_known(request.headers.get("if-none-match", "")):
            return Response(status_code=_NOT_MODIFIED, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)


def read_page(folder: Path = FOLDER) -> Mapping[str, PageFile]:
    """Reads the page by name; nothing where the page was not built."""
    return {name: PageFile(file) for name, file in read_content(folder).items()}


def not_built() -> Response:
    return PlainTextResponse(_NOT_BUILT, headers={"Cache-Control": "no-store"})


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
