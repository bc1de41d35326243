"""`cloakwork models`, `keys`, `jobs`: what a server has and does, and what of it is yours."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from cloakwork.app.cli.shared.console import (
    FailureError,
    JsonOption,
    WrongCallError,
    in_one_line,
    progress,
    progress_of_stages,
    write_json,
)
from cloakwork.app.cli.shared.failures import reading
from cloakwork.app.cli.shared.program import Program
from cloakwork.app.cli.shared.service_extra import make_data_folder
from cloakwork.app.cli.shared.service_options import URL_VARIABLE, ApiKeyFileOption, CaOption, UrlOption, connect
from cloakwork.app.cli.shared.tables import Column, emit, print_rows, readable
from cloakwork.app.client.client import Client
from cloakwork.app.client.errors import ServiceError
from cloakwork.fhe_core.wire.files import atomic_writer
from cloakwork.models.batches.batch_file import is_batch_file
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.neighbours.index_file import is_index_file, load_index
from cloakwork.models.program.artefact import load_program
from cloakwork.models.repository import ARTEFACT, BATCH, INDEX, next_version

models = Program("Manage the models of a server.")
keys = Program("Manage your evaluation keys on a server.")
jobs = Program("Manage your jobs on a server.")

REPOSITORY = "models"  # in the data folder
_NUMBERS = {"bytes", "offset", "samples", "run_seconds", "security_bits", "bootstraps", "evaluation_key_bytes"}
_FORBIDDEN = 403
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

ModelName = Annotated[str, typer.Argument(help="Name of the model on the server.")]
Identity = Annotated[str, typer.Argument(help="Identifier, as 'list' shows it.")]


# --- models ----------------------------------------------------------------------------------------------------------------------


@models.command("list")
def list_models(
    url: UrlOption, api_key_file: ApiKeyFileOption = None, certificates: CaOption = None, json_path: JsonOption = None
) -> None:
    """List the models with their newest versions, parameter sets and costs.

    An API key with the scope 'models' sees the versions that are out of service too, and why.
    """
    with connect(url, api_key_file, certificates) as client:
        rows = [_model_row(client.call("GET", f"/v2/models/{quote(name, safe='')}")) for name in client.models()]
        rows += _out_of_service(client)
    reason = ("reason",) if any("reason" in row for row in rows) else ()
    shown = ("name", "version", "parameter_set", "security_bits", "bootstraps", "evaluation_key_bytes")
    _show_rows(rows, "Models", json_path, (*shown, *reason))


def _model_row(metadata: dict[str, Any]) -> dict[str, Any]:
    try:
        fhe = dict(metadata["parameters"]["fhe"])
        name, version = str(metadata["name"]), str(metadata["versions"][-1])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise FailureError("the server describes a model in another way than a cloakwork server does") from error
    shown = ("parameter_set", "security_bits", "structured_secret", "bootstraps", "evaluation_key_bytes")
    return {"name": name, "version": version, **{each: fhe.get(each) for each in shown}}


def _out_of_service(client: Client) -> list[dict[str, Any]]:
    """Lists versions that are not ready; nothing for an API key that may not see them."""
    try:
        entries = client.versions()
    except ServiceError as error:
        if error.status == _FORBIDDEN:
            return []
        raise
    return [
        {"name": entry.get("name"), "version": entry.get("version"), "reason": _reason(str(entry.get("reason")))}
        for entry in entries
        if entry.get("state") != "READY"
    ]


def _reason(code: str) -> str:
    """Returns words for a state; what is wrong with a file is said in words already."""
    words = {
        "structured_refused": "keys with a structured secret, which this service refuses",
        "missing": "its file is missing",
        "unloaded": "unloaded; 'models load' takes it into service",
        "retired": "retired for good",
        "removed": "removed for good",
    }
    return words.get(code, code)


@models.command("add")
def add_model(
    artefact: Annotated[
        Path,
        typer.Argument(help="Model of 'cloakwork compile' or cloakwork.compile, or index of 'cloakwork index build'."),
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="FOLDER",
            help="Use the server's data folder on this machine instead of --url; it is made if needed.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", envvar=URL_VARIABLE, help="Use this server; the API key needs the scope 'models'."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Give the model this name on the server (default: the name of the file)."
        ),
    ] = None,
    load: Annotated[
        bool, typer.Option("--load/--no-load", help="Put it into service at once (only with --url).")
    ] = True,
    api_key_file: ApiKeyFileOption = None,
    certificates: CaOption = None,
    json_path: JsonOption = None,
) -> None:
    """Add a compiled model or an index to a server, as its next version.

    With --data the server serves it after 'cloakwork models load'.
    """
    chosen = artefact.stem if name is None else name
    if _NAME.fullmatch(chosen) is None:
        raise WrongCallError(f"--name: expected letters, digits, dots, dashes and underscores, got '{chosen}'")
    if data is None and url is None:
        raise WrongCallError("expected --url with the server's address, or --data with its folder on this machine")
    with progress("reading the model"):
        suffix, parameter_set = _described(artefact)  # refused here rather than by the server
    if data is None:
        assert url is not None
        with connect(url, api_key_file, certificates) as client, progress_of_stages("upload") as update:
            record = client.add_model(artefact, chosen, load=load, progress=update)
    else:
        record = _put_into(data, artefact, chosen, suffix)
    emit({**record, "parameter_set": parameter_set}, json_path, "Model")


def _put_into(data: Path, artefact: Path, name: str, suffix: str) -> dict[str, Any]:
    make_data_folder(data)
    folder = data / REPOSITORY / name
    folder.mkdir(parents=True, exist_ok=True)
    version = next_version(folder)
    target = folder / f"{version}{suffix}"
    with artefact.open("rb") as source, atomic_writer(target) as stream:
        shutil.copyfileobj(source, stream)
    return {"name": name, "version": str(version), "file": str(target)}


def _described(artefact: Path) -> tuple[str, str]:
    """Returns the ending that files of its kind have in a repository, and the parameter set."""
    with reading(artefact, "a compiled model or an index"):
        return _kind_and_set(artefact)


def _kind_and_set(artefact: Path) -> tuple[str, str]:
    if is_index_file(artefact):
        return INDEX, load_index(artefact).client.parameters.set.name
    if is_batch_file(artefact):
        return BATCH, str(BatchModel.load(artefact).report()["parameter_set"])
    return ARTEFACT, load_program(artefact).parameters.name


@models.command("load")
def load_model(
    name: ModelName, url: UrlOption, api_key_file: ApiKeyFileOption = None, certificates: CaOption = None
) -> None:
    """Make a running server read its folder again and serve the model."""
    path = f"/v2/repository/models/{quote(name, safe='')}/load"
    versions = _change(url, api_key_file, certificates, "POST", path).get("versions", [])
    typer.echo(in_one_line(f"{name} is in service: version {', '.join(map(str, versions))}"))


@models.command("unload")
def unload_model(
    name: ModelName, url: UrlOption, api_key_file: ApiKeyFileOption = None, certificates: CaOption = None
) -> None:
    """Take every version of a model out of service, until 'models load'."""
    _change(url, api_key_file, certificates, "POST", f"/v2/repository/models/{quote(name, safe='')}/unload")
    typer.echo(in_one_line(f"{name} is out of service"))


@models.command("remove")
def remove_model(
    name: ModelName,
    version: Annotated[str, typer.Argument(help="Number of the version.")],
    url: UrlOption,
    with_bytes: Annotated[
        bool,
        typer.Option(
            "--bytes", help="Remove the file too, once no job needs it; 'replay' then needs a copy elsewhere."
        ),
    ] = False,
    api_key_file: ApiKeyFileOption = None,
    certificates: CaOption = None,
) -> None:
    """Retire a version for good; clients that ask for it get an error that says so."""
    path = f"/v2/repository/models/{quote(name, safe='')}/versions/{quote(version, safe='')}"
    path += "?remove=true" if with_bytes else ""
    _change(url, api_key_file, certificates, "DELETE", path)
    typer.echo(in_one_line(f"version {version} of {name} is {'removed' if with_bytes else 'retired'}"))


# --- keys ------------------------------------------------------------------------------------------------------------------------


@keys.command("list")
def list_keys(
    url: UrlOption, api_key_file: ApiKeyFileOption = None, certificates: CaOption = None, json_path: JsonOption = None
) -> None:
    """List the evaluation keys that the server holds for you."""
    with connect(url, api_key_file, certificates) as client:
        rows = _rows(client.call("GET", "/v2/keys"), "keys")
    _show_rows(rows, "Evaluation keys", json_path, ("id", "parameter_set", "bytes", "offset", "state"))


@keys.command("delete")
def delete_key(
    identity: Identity, url: UrlOption, api_key_file: ApiKeyFileOption = None, certificates: CaOption = None
) -> None:
    """Delete evaluation keys from the server's disk, memory and devices.

    Your secret key stays as it is.
    """
    _change(url, api_key_file, certificates, "DELETE", f"/v2/keys/{quote(identity, safe='')}")
    typer.echo(in_one_line(f"{identity} is deleted"))


# --- jobs ------------------------------------------------------------------------------------------------------------------------


@jobs.command("list")
def list_jobs(
    url: UrlOption, api_key_file: ApiKeyFileOption = None, certificates: CaOption = None, json_path: JsonOption = None
) -> None:
    """List your jobs, the newest first."""
    with connect(url, api_key_file, certificates) as client:
        rows = _rows(client.call("GET", "/v2/jobs"), "jobs")
    _show_rows(rows, "Jobs", json_path, ("id", "state", "created_at", "model", "samples", "run_seconds"))


@jobs.command("show")
def show_job(
    identity: Identity,
    url: UrlOption,
    api_key_file: ApiKeyFileOption = None,
    certificates: CaOption = None,
    json_path: JsonOption = None,
) -> None:
    """Show the status of a job."""
    with connect(url, api_key_file, certificates) as client:
        emit(client.call("GET", f"/v2/jobs/{quote(identity, safe='')}"), json_path, "Job")


@jobs.command("cancel")
def cancel_job(
    identity: Identity, url: UrlOption, api_key_file: ApiKeyFileOption = None, certificates: CaOption = None
) -> None:
    """Cancel a job, or delete one that has ended, with its result."""
    _change(url, api_key_file, certificates, "DELETE", f"/v2/jobs/{quote(identity, safe='')}")
    typer.echo(in_one_line(f"{identity} is cancelled, or deleted if it had ended"))


def _change(url: str, key_file: Path | None, certificates: Path | None, method: str, path: str) -> dict[str, Any]:
    with connect(url, key_file, certificates) as client:
        answer: dict[str, Any] = client.call(method, path)
        return answer


def _rows(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows = answer.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise FailureError(f"the server answered with something else than a list of {name}; is it a cloakwork server?")
    return rows


def _show_rows(rows: list[dict[str, Any]], title: str, destination: str | None, columns: tuple[str, ...]) -> None:
    if destination is not None:
        write_json(rows, destination)
    if destination == "-":
        return
    headings = [Column(name, right=name in _NUMBERS) for name in columns]
    print_rows(title, headings, [[readable(name, row.get(name)) for name in columns] for row in rows])
