"""Content of the page: files that `make web` builds into api/page, by name, with their types. Needs no web framework."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "page"

_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
}


@dataclass(frozen=True)
class PageContent:
    content: bytes
    media_type: str
    etag: str

    @classmethod
    def of(cls, content: bytes, suffix: str) -> PageContent:
        return cls(content, _MEDIA_TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()}"')

    def is_known(self, if_none_match: str) -> bool:
        """Whether the client has this file, by the header of that name."""
        return self.etag in [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]


def read_content(folder: Path = FOLDER) -> Mapping[str, PageContent]:
    """Reads the page's files by name; nothing where the page was not built. A name that is not in it leads nowhere, whatever it looks like."""
    return {
        path.name: PageContent.of(path.read_bytes(), path.suffix)
        for path in sorted(folder.glob("*"))
        if path.suffix in _MEDIA_TYPES
    }


def policy(scripts: str = "'self'", connections: str = "'self'") -> str:
    """Returns the content security policy of the page's files. Args: where its scripts and workers, and where its answers, come from."""
    return (
        f"default-src 'none'; script-src {scripts} 'wasm-unsafe-eval'; style-src 'self'; connect-src {connections}; "
        f"img-src 'self' data: blob:; worker-src {scripts}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
