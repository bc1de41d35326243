"""The files of the page, as `make web` builds them into api/page: read once, served by their names and no others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

FOLDER: Final = Path(__file__).resolve().parents[1] / "page"

_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_NOT_MODIFIED: Final = 304
_NOT_BUILT: Final = """\
cloakwork: the service runs; its page was not built.

To get it, run `make web` (needs Node 20.19 or newer) in the repository's folder, install again, and start the service again.
Everything else is there: /openapi.json describes every route, and docs/service.md says how to use them.
"""


@dataclass(frozen=True)
class PageFile:
    content: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, path: Path) -> PageFile:
        content = path.read_bytes()
        return cls(content, _MEDIA_TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()}"')

    def answer(self, request: Request) -> Response:
        """The file; 304 for who has it already. A browser asks each time, so that nobody runs the client of an earlier release."""
        headers = {"ETag": self.etag, "Cache-Control": "no-cache", "Content-Security-Policy": _POLICY}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in known:
            return Response(status_code=_NOT_MODIFIED, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def read_page(folder: Path = FOLDER) -> Mapping[str, PageFile]:
    """By name; nothing where the page was not built. A name that is not in it leads nowhere, whatever it looks like."""
    return {path.name: PageFile.read(path) for path in sorted(folder.glob("*")) if path.suffix in _MEDIA_TYPES}


def not_built() -> Response:
    return PlainTextResponse(_NOT_BUILT, headers={"Cache-Control": "no-store"})
