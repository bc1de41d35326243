"""The page of an error in a browser; programs get JSON."""

from __future__ import annotations

import html
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from cloakwork.api.http.page_content import policy

_POLICY: Final = policy()
_HTML: Final = """\
<!doctype html>
<html lang="en">
    <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <title>Page not found: cloakwork</title>
        <link rel="icon" href="data:," />
        <link rel="stylesheet" href="{start}page/page.css" />
    </head>
    <body>
        <main>
            <div>
                <h1>Page not found</h1>
                <p>This service has no page at this address. The link may be old, or the address may have a typing error.</p>
                <p><a href="{start}">Go to the start page</a></p>
                <p class="quiet">Request {request_id}</p>
            </div>
        </main>
    </body>
</html>
"""


def asks_for_page(request: Request) -> bool:
    """Whether somebody opened an address outside the API in a browser."""
    return (
        request.method in ("GET", "HEAD")
        and "text/html" in request.headers.get("accept", "")
        and not request.url.path.startswith("/v2/")
    )


def not_found(request: Request) -> Response:
    """Says it in a sentence, with a link to the start page."""
    # Relative, as a proxy may serve this service below a path of its own.
    raw = request.scope.get("raw_path") or request.url.path.encode()
    start = "../" * (raw.partition(b"?")[0].count(b"/") - 1) or "./"
    content = _HTML.format(start=start, request_id=html.escape(getattr(request.state, "request_id", "")))
    headers = {"Cache-Control": "no-store", "Content-Security-Policy": _POLICY, "Vary": "Accept"}
    return HTMLResponse(content, 404, headers)
