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
            help="Listen on port N; 0 takes a free one. A browser keeps keys for each port.",
        ),
    ] = _PORT,
    certificates: CaOption = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Open the page from this machine, for a service anywhere.

    Only this machine can open it. What the page encrypts is passed on to the service. Ctrl-C ends it.
    """
    files = read_content()
    if "index.html" not in files:
        raise FailureError("the page was not built; run 'make web' in the repository's folder and install again")
    try:
        server = PageServer(port, files, Service(url, certificates))
    except OSError as error:
        raise FailureError(f"port {port}: {error.strerror or error}; --port 0 takes a free one") from error
    with server, ends_well():
        standard_output().print(
            f"Only this machine can open {server.url}, which asks {server.service.url}. Ctrl-C ends it."
        )
        sys.stdout.flush()
        if browser:
            webbrowser.open(server.url)
        server.serve_forever()
