"""`cloakwork page`: the page from this machine's own disk, for a service anywhere."""

from __future__ import annotations

import sys
import webbrowser
from typing import Annotated, Final

import typer

from cloakwork.api.http.page_content import read_content
from cloakwork.app.cli.shared.console import FailureError, standard_output
from cloakwork.app.cli.shared.interrupts import ends_well
from cloakwork.app.cli.shared.page_proxy import Service
from cloakwork.app.cli.shared.page_server import PageServer
from cloakwork.app.cli.shared.service_options import CaOption, UrlOption

_PORT: Final = 8124


def page(
    url: UrlOption,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port to listen on; 0: a free one. Keys that a browser keeps belong to the port.",
        ),
    ] = _PORT,
    certificates: CaOption = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Serve the page that is installed here, to this machine alone, and pass on what it encrypts to a service; Ctrl-C ends it."""
    files = read_content()
    if "index.html" not in files:
        raise FailureError("the page was not built; run 'make web' in the repository's folder and install again")
    try:
        server = PageServer(port, files, Service(url, certificates))
    except OSError as error:
        raise FailureError(f"port {port}: {error.strerror or error}; --port 0 takes a free one") from error
    with server, ends_well():
        standard_output().print(
            f"{server.url} is open to this machine alone, and asks {server.service.url}. Ctrl-C ends it."
        )
        sys.stdout.flush()
        if browser:
            webbrowser.open(server.url)
        server.serve_forever()
