"""Device options: those of every command that runs it here."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import WrongCallError

DeviceOption = Annotated[
    str,
    typer.Option("--device", metavar="DEVICE", help="Compute on cpu, cuda or cuda:N; 'cloakwork devices' lists them."),
]
ThreadsOption = Annotated[int, typer.Option("--threads", min=1, help="Use N threads of the CPU.")]


def checked_device(device: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+(,\d+)*)?", device):
        raise WrongCallError(f"--device: expected cpu, cuda or cuda:N, got '{device}'")
    return device
