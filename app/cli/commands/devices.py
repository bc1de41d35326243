"""`cloakwork devices`: what this build can compute on, and why something is unusable."""

from __future__ import annotations

from typing import Any

from cloakwork.app.cli.shared.console import JsonOption, write_json
from cloakwork.app.cli.shared.tables import Column, folded, print_rows
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.engine import has_cuda
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.machine import usable_cores


def list_devices() -> list[dict[str, Any]]:
    return [cpu_device(), *cuda_devices()]


def cpu_device() -> dict[str, Any]:
    cores = usable_cores()
    try:
        return {
            "device": "cpu",
            "usable": True,
            "details": f"instruction set {_engine.cpu_features()}, {cores} threads",
        }
    except FheError as error:
        return {"device": "cpu", "usable": False, "details": str(error)}


def cuda_devices() -> list[dict[str, Any]]:
    """Returns one entry per device, or one that says why there is none."""
    if not has_cuda():
        return [
            {"device": "cuda", "usable": False, "details": f"this build has no CUDA back end: {_engine.without_cuda}"}
        ]
    try:
        return [
            {
                "device": gpu["device"],
                "usable": gpu["usable"],
                "details": f"{gpu['name']}, compute capability {gpu['compute_capability']}, {gpu['multiprocessors']} multiprocessors, "
                f"{gpu['free_bytes'] / 2**30:.1f} of {gpu['total_bytes'] / 2**30:.1f} GiB free; {gpu['details']}",
            }
            for gpu in _engine.cuda_devices()
        ]
    except FheError as error:
        return [{"device": "cuda", "usable": False, "details": str(error)}]


def devices(json_path: JsonOption = None) -> None:
    """List what this machine can compute on."""
    entries = list_devices()
    if json_path != "-":
        columns = (Column("device"), Column("usable"), folded("details"))
        print_rows("Devices", columns, [(each["device"], each["usable"], each["details"]) for each in entries])
    if json_path is not None:
        write_json({"devices": entries}, json_path)
