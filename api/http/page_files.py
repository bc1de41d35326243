"""The files of the page over HTTP: read once, served by their names and no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cloakwork.api.http.page_content import FOLDER, PageContent, policy, read_content

_POLICY: Final = policy()
_NOT_MODIFIED: Final = 304
_NOT_BUILT: Final = """\
cloakwork: the service runs; its page was not built.

To get it, install it again where Node (20.19 or newer) is, and start the service again. Wheels and images have it.
Everything else is there: /openapi.json describes every route, and docs/howto/service.md says how to use them.
"""


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
