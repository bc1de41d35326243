"""Options of every command that talks to a server."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cloakwork.app.cli.shared.console import WrongCallError, in_one_line
from cloakwork.app.cli.shared.failures import reading

API_KEY_VARIABLE = "CLOAKWORK_API_KEY"
URL_VARIABLE = "CLOAKWORK_URL"

UrlOption = Annotated[
    str,
    typer.Option("--url", metavar="URL", envvar=URL_VARIABLE, help="Use this server, such as http://127.0.0.1:8123."),
]
ApiKeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        help=f"Read the API key from the first line of this file (default: {API_KEY_VARIABLE}, or no key).",
    ),
]
HeaderOption = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header", help="Say whether a .csv begins with names of columns (default: as the file looks)."
    ),
]
LargeKeysOption = Annotated[
    bool,
    typer.Option("--accept-large-keys", help="Make and send evaluation keys of more than 100 MB without a question."),
]
ChangeOption = Annotated[
    bool, typer.Option("--accept-change", help="Accept a model that has changed since it was first used.")
]
ShareKeysOption = Annotated[
    bool,
    typer.Option(
        "--share-keys",
        help="Use one key for all servers, also one of an earlier release; servers can recognise you by it.",
    ),
]
CaOption = Annotated[
    Path | None, typer.Option("--certificates", help="Trust these certificates (PEM) instead of the system's.")
]


def api_key(file: Path | None) -> str | None:
    """Reads the API key, never from an argument: the list of processes would show it."""
    if file is None:
        return os.environ.get(API_KEY_VARIABLE) or None
    with reading(file, "an API key in its first line"), file.open(encoding="utf-8") as stream:
        key = stream.readline().strip()
    if not key:
        raise WrongCallError(f"{file}: expected an API key in its first line, it is empty")
    return key


def connect(
    url: str,
    key_file: Path | None,
    certificates: Path | None,
    keyring: Any = None,
    structured: bool = False,
    **agreed: bool,
) -> Any:
    """Creates a `Client`; imported here, because it needs the extra `client`.

    Args:
        agreed: `share_keys`, `accept_large_keys`, `accept_changes` of it; what was not agreed to is asked on a terminal.
    """
    import ssl

    from cloakwork.app.client.client import Client

    verify: Any = True
    if certificates is not None:
        try:
            verify = ssl.create_default_context(cafile=str(certificates))
        except (OSError, ssl.SSLError) as error:  # an SSLError is an OSError; neither names the file
            raise WrongCallError(
                f"--certificates: {certificates} has no certificates in PEM that can be read ({error.strerror or error})"
            ) from error
    return Client(
        url,
        api_key(key_file),
        keyring=keyring,
        verify=verify,
        structured=structured,
        confirm=_confirmed if sys.stdin.isatty() else None,
        **agreed,
    )


def _confirmed(question: str) -> bool:
    return typer.confirm(in_one_line(question), err=True)
