"""`cloakwork tenants`: who may use the service. Works on its database, while the service runs or not."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from cloakwork.app.cli.console import FailureError, JsonOption, emit, write_json
from cloakwork.fhe_core.errors import how_to_install

if TYPE_CHECKING:
    from cloakwork.api.service.tenants import Tenants

T = TypeVar("T")

DAY_SECONDS = 86400.0

app = typer.Typer(help="Tenants of the scoring service and their API keys.", no_args_is_help=True)

DataOption = Annotated[Path | None, typer.Option("--data", help="The service's data folder.")]
DatabaseOption = Annotated[str | None, typer.Option("--database", help="postgresql://.., where the service uses one.")]
ScopeOption = Annotated[
    list[str] | None, typer.Option("--scope", help="score, models or metrics; may be repeated. Default: score.")
]


def _with_tenants(data: Path | None, database_url: str | None, work: Callable[[Tenants], Awaitable[T]]) -> T:
    if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("pydantic_settings") is None:
        raise FailureError(f"the service is not installed; {how_to_install('service')}")
    from cloakwork.api.database.connection import Database
    from cloakwork.api.service.services import database_url as url_of
    from cloakwork.api.service.services import migrate
    from cloakwork.api.service.tenants import Tenants
    from cloakwork.api.settings import load_settings

    settings = load_settings(data_folder=data, database_url=database_url)
    settings.data_folder.mkdir(parents=True, exist_ok=True)

    async def run() -> T:
        database = Database(url_of(settings))
        try:
            await migrate(database, url_of(settings))
            return await work(Tenants(database))
        finally:
            await database.close()

    return asyncio.run(run())


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="a-z, 0-9 and '-'.")],
    max_bytes: Annotated[int | None, typer.Option("--max-bytes", min=0, help="Stored bytes, at most.")] = None,
    max_bootstraps: Annotated[
        int | None, typer.Option("--max-bootstraps", min=0, help="Bootstraps a day, at most.")
    ] = None,
    scopes: ScopeOption = None,
    data: DataOption = None,
    database: DatabaseOption = None,
    json_path: JsonOption = None,
) -> None:
    """Add a tenant, and make its first API key."""

    async def work(tenants: Tenants) -> str:
        await tenants.add(name, max_bytes=max_bytes, max_bootstraps_per_day=max_bootstraps)
        return await tenants.new_api_key(name, tuple(scopes or ["score"]))

    token = _with_tenants(data, database, work)
    emit({"tenant": name, "api_key": token}, json_path, "This is shown once")


@app.command()
def key(
    name: str,
    scopes: ScopeOption = None,
    days: Annotated[float | None, typer.Option("--days", min=0, help="It expires after so many.")] = None,
    data: DataOption = None,
    database: DatabaseOption = None,
    json_path: JsonOption = None,
) -> None:
    """Make another API key for a tenant."""
    lifetime = None if days is None else days * DAY_SECONDS
    token = _with_tenants(
        data, database, lambda tenants: tenants.new_api_key(name, tuple(scopes or ["score"]), lifetime)
    )
    emit({"tenant": name, "api_key": token}, json_path, "This is shown once")


@app.command()
def rotate(
    identity: Annotated[str, typer.Argument(help="The API key's public part: cw_THIS_..")],
    grace_hours: Annotated[float, typer.Option("--grace-hours", min=0, help="The old one works so long.")] = 24.0,
    data: DataOption = None,
    database: DatabaseOption = None,
    json_path: JsonOption = None,
) -> None:
    """Replace an API key by a new one with the same scopes."""
    token = _with_tenants(data, database, lambda tenants: tenants.rotate(identity, grace_hours * 3600))
    emit({"replaces": identity, "api_key": token}, json_path, "This is shown once")


@app.command()
def revoke(identity: str, data: DataOption = None, database: DatabaseOption = None) -> None:
    """End an API key, within seconds in a running service."""
    _with_tenants(data, database, lambda tenants: tenants.revoke(identity))
    typer.echo(f"{identity} is revoked")


@app.command("list")
def list_tenants(data: DataOption = None, database: DatabaseOption = None, json_path: JsonOption = None) -> None:
    """Tenants, limits, API keys without their secrets."""
    found = _with_tenants(data, database, lambda tenants: tenants.overview())
    if json_path is not None:
        write_json({"tenants": found}, json_path)
    if json_path != "-":
        for tenant in found:
            keys = tenant["api_keys"]
            typer.echo(
                f"{tenant['tenant']}: {', '.join(str(each['id']) for each in keys) if isinstance(keys, list) else ''}"
            )
