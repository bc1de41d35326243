"""`cloakwork serve`: the scoring service."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.service_extra import require_service


def serve(
    insecure_local: Annotated[
        bool, typer.Option("--insecure-local", help="No API keys; this machine alone. For a laptop, not for a server.")
    ] = False,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Folder of everything the service keeps.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings in TOML; docs/howto/service.md lists them.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option("--devices", help="'cpu', 'cuda:0 cuda:1', ..; without it, what is there.")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="CPU threads; 0: all.")] = None,
    database: Annotated[
        str | None, typer.Option("--database", help="postgresql://user@host/name; without it, SQLite in the folder.")
    ] = None,
    role: Annotated[
        str | None,
        typer.Option("--role", help="'web' or 'worker' of several processes on one database; without it, both."),
    ] = None,
    structured_keys: Annotated[
        bool, typer.Option("--structured-keys", help="Serve models and take keys of sets with structured secrets too.")
    ] = False,
    tls_certificate: Annotated[Path | None, typer.Option("--tls-certificate", help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its private key, PEM.")] = None,
) -> None:
    """Serve compiled models over HTTP; GET /v2/health/ready answers 200 when it is up."""
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
        "STRUCTURED_KEYS": "true" if structured_keys else None,
        "TLS_CERTIFICATE": tls_certificate,
        "TLS_KEY": tls_key,
    }
    environment = {f"CLOAKWORK_{name}": str(value) for name, value in flags.items() if value is not None}
    # In place of this process: a service that runs for weeks should not carry the command line in memory.
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "cloakwork.api"], {**os.environ, **environment})
