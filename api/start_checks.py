"""Checks of the machine before a service listens; each fault is one line that names the file or the setting."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final

from cloakwork.api.settings import Settings
from cloakwork.fhe_core.engine import has_cuda
from cloakwork.fhe_core.errors import ParameterError

_DEVICE: Final = re.compile(r"cpu|cuda(:\d+(,\d+)*)?")
_LOOK_SECONDS: Final = 60
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
