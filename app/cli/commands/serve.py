"""`cloakwork serve`: the scoring service."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.program import shows_first
from cloakwork.app.cli.shared.service_extra import require_service


@shows_first(
    "--insecure-local",
    "--data",
    "--host",
    "--port",
    "--config",
    "--devices",
    "--threads",
    "--tls-certificate",
    "--tls-key",
)
def serve(
    insecure_local: Annotated[
        bool,
        typer.Option(
            "--insecure-local", help="Ask for no API keys, and serve only this machine: for a laptop, not for a server."
        ),
    ] = False,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Listen on this address (default: 127.0.0.1).")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", help="Listen on port N (default: 8123).")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FOLDER", help="Keep everything of the service here.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Read settings from this TOML file; docs/howto/service.md lists them."),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices",
            metavar="LIST",
            help="Compute on these, such as cpu or 'cuda:0 cuda:1' (default: what is there).",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="Use N threads of the CPU; 0 uses all.")] = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            help="Use this database, such as postgresql://user@host/name (default: SQLite in the data folder).",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="web|worker",
            help="Run only this part, if several processes share a database (default: both).",
        ),
    ] = None,
    structured: Annotated[
        bool, typer.Option("--structured", help="Allow models and keys of sets with a structured secret.")
    ] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="Serve HTTPS with this certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="Use this private key of the certificate (PEM).")
    ] = None,
) -> None:
    """Start the scoring service.

    It serves compiled models over HTTP. GET /v2/health/ready answers 200 once it is up.
    """
    require_service()
    flags = {
        "INSECURE_LOCAL": "true" if insecure_local else None,
        "HOST": host,
        "PORT": port,
        "DATA_FOLDER": data,
        "CONFIG": config,
        "DEVICES": devices,
        "THREADS": threads,
        "DATABASE_URL": database,
        "ROLE": role,
        "STRUCTURED": "true" if structured else None,
        "TLS_CERTIFICATE": tls_certificate,
        "TLS_KEY": tls_key,
    }
    environment = {f"CLOAKWORK_{name}": str(value) for name, value in flags.items() if value is not None}
    # In place of this process: a service that runs for weeks should not carry the command line in memory.
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "cloakwork.api"], {**os.environ, **environment})
