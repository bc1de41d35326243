"""`cloakwork tenants`: who may use the service. Works on its database, while the service runs or not."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Awaitable, Callable
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cloakwork.app.cli.shared.console import FailureError, JsonOption, WrongCallError, write_json
from cloakwork.app.cli.shared.program import Program, shows_first
from cloakwork.app.cli.shared.service_extra import require_data_folder
from cloakwork.app.cli.shared.tables import Column, emit, folded, number, print_rows
from cloakwork.fhe_core.errors import how_to_install

if TYPE_CHECKING:
    from cloakwork.api.service.tenants.tenants import Tenants
    from cloakwork.api.settings import Settings

T = TypeVar("T")

DAY_SECONDS = 86400.0
COUNTED = ("requests", "samples", "bootstraps", "uploaded_bytes")
LIMITS = ("max_bytes", "max_bootstraps_per_day", "max_queue", "max_answers_per_day")
_LIMIT = "N|default"
_DEFAULT = "default"  # the service's own limit

app = Program("Manage who may use the service, and their API keys.")

DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="FOLDER", help="Use this data folder of the service.")
]
DatabaseOption = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="Use the service's database, such as postgresql://user@host/name."),
]
ScopeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="Allow score, models, metrics, priority or admin; may be repeated (default: score).",
    ),
]
ModelOption = Annotated[
    list[str] | None, typer.Option("--model", metavar="NAME", help="Allow this model; may be repeated (default: all).")
]


def _with_service(
    data: Path | None, database_url: str | None, work: Callable[[Tenants, Settings], Awaitable[T]], begins: bool = False
) -> T:
    """begins: whether it may be the first that uses the folder or database; other commands find nothing in a new one."""
    if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("pydantic_settings") is None:
        raise FailureError(f"the service is not installed; {how_to_install('service')}")
    from cloakwork.api.database.connection import DATABASE_FILE, Database
    from cloakwork.api.database.connection import database_url as url_of
    from cloakwork.api.service.storage.data_folder import own_folder
    from cloakwork.api.service.tenants.tenants import Tenants
    from cloakwork.api.settings import load_settings
    from cloakwork.api.start_checks import migrate

    settings = load_settings(data_folder=data, database_url=database_url)
    if data is not None:
        require_data_folder(data)
    if not begins and settings.database_url is None and not (settings.data_folder / DATABASE_FILE).is_file():
        raise FailureError(
            f"there are no tenants in '{settings.data_folder}'; correct --data, or begin with 'cloakwork tenants add NAME'"
        )
    own_folder(settings.data_folder)

    async def run() -> T:
        database = Database(url_of(settings.database_url, settings.data_folder))
        try:
            try:
                await migrate(database, url_of(settings.database_url, settings.data_folder))
            except OSError as error:
                if settings.database_url is None:
                    raise
                raise FailureError(
                    f"database: its server gives no connection ({error.strerror or type(error).__name__}); is the address right, and does it run?"
                ) from None
            return await work(Tenants(database), settings)
        finally:
            await database.close()

    return asyncio.run(run())


def _with_tenants(
    data: Path | None, database_url: str | None, work: Callable[[Tenants], Awaitable[T]], begins: bool = False
) -> T:
    return _with_service(data, database_url, lambda tenants, _: work(tenants), begins)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the tenant, of a-z, 0-9 and '-'.")],
    max_bytes: Annotated[int | None, typer.Option("--max-bytes", min=0, help="Store at most N bytes.")] = None,
    max_bootstraps: Annotated[
        int | None, typer.Option("--max-bootstraps", min=0, help="Compute at most N bootstraps a day.")
    ] = None,
    max_queue: Annotated[
        int | None, typer.Option("--max-queue", min=0, help="Let at most N requests and jobs wait.")
    ] = None,
    max_answers: Annotated[
        int | None, typer.Option("--max-answers", min=0, help="Give at most N answers of each model a day.")
    ] = None,
    models: ModelOption = None,
    scopes: ScopeOption = None,
    data: DataOption = None,
    database: DatabaseOption = None,
    json_path: JsonOption = None,
) -> None:
    """Add a tenant, and make its first API key."""

    async def work(tenants: Tenants, settings: Settings) -> tuple[str, str]:
        from cloakwork.api.service.tenants.tenants import Terms, text_of_scopes

        text_of_scopes(tuple(scopes or ["score"]))  # before there is a tenant without an API key
        terms = Terms(max_bytes, max_bootstraps, max_queue, max_answers, None if models is None else tuple(models))
        await tenants.add(name, terms)
        token = await tenants.new_api_key(name, tuple(scopes or ["score"]))
        return token, "the database" if settings.database_url is not None else str(settings.data_folder)

    token, place = _with_service(data, database, work, begins=True)
    emit({"tenant": name, "api_key": token, "service": place}, json_path, "This is shown once")


def _limit(text: str) -> int | None:
    """Returns a number, or `default`: the service's own limit."""
    if text == _DEFAULT:
        return None
    if not text.isdecimal():
        raise WrongCallError(f"expected a number or '{_DEFAULT}', got '{text}'")
    return int(text)


@app.command("set")
@shows_first("--max-bytes", "--max-bootstraps", "--max-queue", "--max-answers", "--model", "--scope", "--data")
def change(
    name: Annotated[str, typer.Argument(help="Name of the tenant.")],
    max_bytes: Annotated[
        str | None, typer.Option("--max-bytes", metavar=_LIMIT, help=f"Store at most N bytes, or {_DEFAULT}.")
    ] = None,
    max_bootstraps: Annotated[
        str | None,
        typer.Option("--max-bootstraps", metavar=_LIMIT, help=f"Compute at most N bootstraps a day, or {_DEFAULT}."),
    ] = None,
    max_queue: Annotated[
        str | None,
        typer.Option("--max-queue", metavar=_LIMIT, help=f"Let at most N requests and jobs wait, or {_DEFAULT}."),
    ] = None,
    max_answers: Annotated[
        str | None,
        typer.Option(
            "--max-answers", metavar=_LIMIT, help=f"Give at most N answers of each model a day, or {_DEFAULT}."
        ),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="Allow only this model from now on; may be repeated."),
    ] = None,
    all_models: Annotated[bool, typer.Option("--all-models", help="Allow every model.")] = False,
    no_models: Annotated[bool, typer.Option("--no-models", help="Allow no model.")] = False,
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="SCOPE", help="Give its valid API keys this scope; may be repeated."),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(
            "--api-key", metavar="ID", help="Change the scopes only of this API key (its public part: cw_THIS_..)."
        ),
    ] = None,
    data: DataOption = None,
    database: DatabaseOption = None,
) -> None:
    """Change limits, models and scopes of a tenant.

    What is not named stays as it is. A running service follows within seconds.
    """
    limits = {
        "max_bytes": max_bytes,
        "max_bootstraps_per_day": max_bootstraps,
        "max_queue": max_queue,
        "max_answers_per_day": max_answers,
    }
    terms: dict[str, Any] = {field: _limit(text) for field, text in limits.items() if text is not None}
    if sum((models is not None, all_models, no_models)) > 1:
        raise WrongCallError("--model, --all-models and --no-models exclude each other; give one of them")
    if models is not None or all_models or no_models:
        terms["models"] = None if all_models else tuple(models or ())
    if not terms and not scopes:
        raise WrongCallError("nothing to change; give a limit, --model, --all-models, --no-models or --scope")
    if identity is not None and not scopes:
        raise WrongCallError("--api-key names the API key that gets the scopes; give --scope as well")

    async def work(tenants: Tenants) -> None:
        await tenants.change(name, terms)
        if scopes:
            await tenants.change_scopes(name, tuple(scopes), identity)

    _with_tenants(data, database, work)
    typer.echo(f"{name} is changed")


@app.command()
def suspend(
    name: Annotated[str, typer.Argument(help="Name of the tenant.")],
    data: DataOption = None,
    database: DatabaseOption = None,
) -> None:
    """Refuse a tenant's API keys until 'resume'.

    What the tenant stored stays, and jobs that were accepted are finished. A running service follows within seconds.
    """
    _with_tenants(data, database, lambda tenants: tenants.change(name, {"suspended": True}))
    typer.echo(f"{name} is suspended; 'cloakwork tenants resume {name}' lets it in again")


@app.command()
def resume(
    name: Annotated[str, typer.Argument(help="Name of the tenant.")],
    data: DataOption = None,
    database: DatabaseOption = None,
) -> None:
    """Let a suspended tenant in again."""
    _with_tenants(data, database, lambda tenants: tenants.change(name, {"suspended": False}))
    typer.echo(f"{name} may use the service")


@app.command()
def usage(
    name: Annotated[str | None, typer.Argument(help="Name of the tenant (default: all).")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DAY", help="Begin with this day (UTC), such as 2026-11-01.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="DAY", help="End with this day (UTC).")] = None,
    data: DataOption = None,
    database: DatabaseOption = None,
    json_path: JsonOption = None,
) -> None:
    """List what tenants used, day by day.

    It counts requests, samples, bootstraps and bytes of uploaded keys.
    """
    days = [_day(text) for text in (since, until)]
    rows = _with_tenants(data, database, lambda tenants: tenants.usage(name, *days))
    if json_path is not None:
        write_json({"usage": rows}, json_path)
    if json_path != "-":
        columns = (Column("day"), Column("tenant"), *(number(each) for each in COUNTED))
        print_rows("Usage", columns, [[row[column.heading] for column in columns] for row in rows])


def _day(text: str | None) -> str | None:
    """As the service writes it."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise WrongCallError(f"--since, --until: expected a day such as 2026-11-01, got '{text}'") from None


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="Name of the tenant.")],
    yes: Annotated[bool, typer.Option("--yes", help="Confirm the removal.")] = False,
    data: DataOption = None,
    database: DatabaseOption = None,
) -> None:
    """Remove a tenant with its API keys, evaluation keys, jobs and results.

    A running service forgets them within seconds.
    """
    if not yes:
        raise WrongCallError(f"this deletes everything that is stored for tenant '{name}', for good; add --yes")

    async def work(tenants: Tenants, settings: Settings) -> None:
        from cloakwork.api.service.storage.objects import open_storage

        storage = open_storage(settings.storage_url, settings.data_folder)
        for each in await tenants.remove(name):
            await storage.delete(each)

    _with_service(data, database, work)
    typer.echo(f"{name} is removed, with what was stored for it")


@app.command()
def key(
    name: Annotated[str, typer.Argument(help="Name of the tenant.")],
    scopes: ScopeOption = None,
    days: Annotated[
        float | None, typer.Option("--days", min=0, metavar="N", help="Let it expire after N days (default: never).")
    ] = None,
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
    identity: Annotated[str, typer.Argument(help="Public part of the API key: cw_THIS_..")],
    grace_hours: Annotated[
        float, typer.Option("--grace-hours", min=0, metavar="N", help="Accept the old key for N hours more.")
    ] = 24.0,
    data: DataOption = None,
    database: DatabaseOption = None,
    json_path: JsonOption = None,
) -> None:
    """Replace an API key with a new one of the same scopes."""

    async def work(tenants: Tenants) -> tuple[str, str]:
        from cloakwork.api.service.tenants.tenants import public_part

        return public_part(identity), await tenants.rotate(identity, grace_hours * 3600)

    replaced, token = _with_tenants(data, database, work)
    emit(
        {"replaces": replaced, "api_key": token},
        json_path,
        "This is shown once",
    )


@app.command()
def revoke(
    identity: Annotated[str, typer.Argument(help="Public part of the API key: cw_THIS_..")],
    data: DataOption = None,
    database: DatabaseOption = None,
) -> None:
    """Revoke an API key; a running service follows within seconds."""
    _with_tenants(data, database, lambda tenants: tenants.revoke(identity))
    typer.echo("the API key is revoked")


@app.command("list")
def list_tenants(data: DataOption = None, database: DatabaseOption = None, json_path: JsonOption = None) -> None:
    """List the tenants, their limits and the public parts of their API keys."""
    overview = _with_tenants(data, database, lambda tenants: tenants.overview())
    if json_path is not None:
        write_json({"tenants": overview}, json_path)
    if json_path != "-":
        columns = (
            Column("tenant"),
            Column("API key"),
            Column("valid"),
            *(folded(each) for each in ("scopes", "models", "limits")),
        )
        print_rows("Tenants", columns, [row for tenant in overview for row in _tenant_rows(tenant)])


def _validity(key: dict[str, Any]) -> str:
    if key["revoked_at"] is not None:
        return "revoked"
    if key["expires_at"] is None:
        return "yes"
    if key["expires_at"] <= time.time():
        return "expired"
    return f"until {datetime.fromtimestamp(key['expires_at']).isoformat(' ', 'minutes')}"


def _tenant_rows(tenant: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns one for each API key."""
    models = "all" if tenant["models"] is None else ", ".join(tenant["models"]) or "none"
    limits = [f"{field} {tenant[field]}" for field in LIMITS if tenant[field] is not None]
    terms = (models, ", ".join([*(["suspended"] if tenant["suspended"] else []), *limits]))
    keys = [(each["id"], _validity(each), " ".join(each["scopes"])) for each in tenant["api_keys"]]
    keys = keys or [("none", "", "")]
    return [(tenant["tenant"], *key, *terms) for key in keys]
