"""Checks of the machine, the database and the storage before a service listens; each fault is one line that names the file or the setting."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final

from cloakwork.api.database.connection import DATABASE_FILE, Database, database_url
from cloakwork.api.database.steps import NEWEST
from cloakwork.api.service.children import run_module
from cloakwork.api.service.fleet.queue import WorkQueue
from cloakwork.api.service.housekeeping import object_folders
from cloakwork.api.service.jobs.store import JobStore
from cloakwork.api.service.keys.keys import Keys
from cloakwork.api.service.storage.objects import Storage
from cloakwork.api.service.storage.pairing import Pairing, refuse_lost_file
from cloakwork.api.service.tenants.tenants import Tenants
from cloakwork.api.settings import Settings
from cloakwork.fhe_core.engine import has_cuda
from cloakwork.fhe_core.errors import FheError, ParameterError

_DEVICE: Final = re.compile(r"cpu|cuda(:\d+(,\d+)*)?")
_LOOK_SECONDS: Final = 60
_SERVER_SECONDS: Final = 3600.0  # a server makes tables while the process that asked it only waits
_NO_PASSPHRASE: Final = "it is encrypted, and nobody is here to type a passphrase"


def require_certificate(settings: Settings) -> None:
    """Requires a readable certificate and its key.

    Raises:
        ParameterError: a file is missing, cannot be read or is none, or the key belongs to another certificate.
    """
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None or key is None:
        return
    for name, path in (("tls_certificate", certificate), ("tls_key", key)):
        _require_readable(name, path)

    def passphrase() -> str:
        raise ParameterError(f"tls_key: {key}: {_NO_PASSPHRASE}")

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password=passphrase)
    except (ssl.SSLError, ValueError) as error:
        reason = (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
        raise ParameterError(
            f"tls_certificate: {certificate} with tls_key {key} cannot be used ({reason}); expected a certificate chain and its key in PEM"
        ) from None


def require_places(settings: Settings) -> None:
    """Raises:
    ParameterError: the data folder is a file, or a device has a name that is none, or is a GPU that cannot be used.
    """
    folder = settings.data_folder
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"data_folder: expected a folder, got the file '{folder}'")
    for device in settings.named_devices:
        if not _DEVICE.fullmatch(device):
            raise ParameterError(f"devices: expected auto, cpu, cuda, cuda:N or cuda:N,M,.., got '{device}'")
    if settings.computes:
        _require_devices([device for device in settings.named_devices if device != "cpu"])


def _require_devices(named: list[str]) -> None:
    """Requires that GPUs are there: an engine that cannot start on its device looks ready, and answers nothing."""
    if not named:
        return
    if not has_cuda():
        raise ParameterError(
            f"devices: this build has no CUDA, and cannot compute on '{named[0]}'; expected auto or cpu"
        )
    command = [
        sys.executable,
        "-m",
        "cloakwork.api.engine.devices",
    ]  # looking takes memory on a GPU, until the process ends
    try:
        usable = json.loads(subprocess.run(command, capture_output=True, timeout=_LOOK_SECONDS, check=True).stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return  # a driver that does not answer now: the engine is started again until it does
    for device in named:
        numbers = device.removeprefix("cuda").removeprefix(":") or "0"
        if missing := [number for number in numbers.split(",") if f"cuda:{int(number)}" not in usable]:
            raise ParameterError(
                f"devices: '{device}': GPU {missing[0]} cannot be used here; 'cloakwork devices' says why and which can"
            )


def _require_readable(name: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ParameterError(f"{name}: {path}: {error.strerror}") from None


def require_port(host: str, port: int) -> None:
    """Requires a free port.

    Raises:
        ParameterError: the address is not this machine's, or somebody listens there.
    """
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                trial.bind(address)
                trial.listen()
    except OSError as error:
        raise ParameterError(
            f"port: cannot listen on {host}:{port} ({error.strerror}); stop what listens there, or choose another host or port"
        ) from None


def reason_of(error: OSError) -> str:
    """Says what the system does not let the service do, and with which file."""
    reason = error.strerror or type(error).__name__
    return f"'{error.filename}' cannot be used: {reason}" if error.filename is not None else reason


# --- database and storage ---


def _data_option(settings: Settings) -> str:
    return "" if settings.database_url is not None else f" --data {settings.data_folder}"


async def prepare(settings: Settings, node: str, storage: Storage) -> None:
    """Checks what must be right before anything listens: storage that every service on the database finds, the tables, a database and a storage that
    belong together, and somebody who may use them.

    Raises:
        ParameterError: one of these is missing, or the database cannot be used.
    """
    if settings.database_url is not None and settings.storage_url is None and not settings.single_host:
        raise ParameterError(
            "serve: services that share a database would not find the objects in each other's data folder; set storage_url to storage that all "
            "of them share, or single_host = true where this is the only one"
        )
    url = database_url(settings.database_url, settings.data_folder)
    database = Database(url)
    try:
        if settings.database_url is None:
            await refuse_lost_file(settings.data_folder / DATABASE_FILE, storage, settings.adopt_storage)
        await database.require_whole()
        await migrate(database, url)
        await require_pair(settings, node, database, storage)
        if settings.single_host and await JobStore(database, node).others_alive(settings.takeover_seconds):
            raise ParameterError(
                f"serve: single_host is set, and another service has used this database in the last {settings.takeover_seconds:g} seconds; "
                "stop it and wait, or set storage_url on both"
            )
        tenants = Tenants(database)
        if settings.insecure_local:
            await tenants.local()
        elif not await tenants.any_api_key():
            raise ParameterError(
                f"serve: there is no API key, so nobody could use the service; make one with 'cloakwork tenants add NAME{_data_option(settings)}', "
                "or pass --insecure-local for this machine alone"
            )
    except FheError:
        raise
    except Exception as error:  # a driver's own classes; its text may hold the URL
        raise ParameterError(f"database: {_place(url)} cannot be used ({_reason(url, error)})") from None
    finally:
        await database.close()


async def require_pair(settings: Settings, node: str, database: Database, storage: Storage) -> None:
    """Requires the storage that belongs to the database.

    Raises:
        ParameterError: the storage belongs to another database, or cannot be asked.
    """
    calls = None
    if settings.shared:
        calls = WorkQueue(database, node, settings.takeover_seconds, settings.max_attempts).existing
    folders = object_folders(storage, JobStore(database, node), Keys(database), calls)
    try:
        await Pairing(database, storage, settings.adopt_storage).require(folders)
    except OSError as error:
        raise ParameterError(
            f"storage: {storage.where} cannot be used ({error}); check storage_url and data_folder"
        ) from None


async def migrate(database: Database, url: str) -> None:
    """Brings the tables to this release's form, in a process of its own; quick when they are."""
    if await database.revision() == NEWEST:
        return
    still_seconds = None if database.is_sqlite else _SERVER_SECONDS
    try:
        ended = await run_module(
            "cloakwork.api.database.migrate", standard_input=url.encode(), still_seconds=still_seconds
        )
    except TimeoutError as error:
        raise ParameterError(f"database: the tables of {_place(url)} are not made ({error}); start again") from None
    if ended.status:
        lines = [line for line in ended.errors if line and not line.startswith(("[SQL", "(Back"))]
        raise ParameterError(
            f"database: the tables of {_place(url)} cannot be made ({lines[-1] if lines else ended.status})"
        )


def _place(url: str) -> str:
    """For messages: of a database that has a file, that file."""
    _, is_file, path = url.partition("sqlite:///")
    return path if is_file else "the server that CLOAKWORK_DATABASE_URL names"


def _reason(url: str, error: Exception) -> str:
    """Returns what SQLite says of a file; of a server's error the class, because its text may hold a password."""
    message = str(getattr(error, "orig", error)) if url.startswith("sqlite") else ""
    return " ".join(message.split()) or type(error).__name__
