"""Identification of this machine, as far as the time of a program depends on it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from cloakwork.fhe_core import _engine, engine
from cloakwork.fhe_core.errors import DeviceError
from cloakwork.fhe_core.machine import usable_cores
from cloakwork.models import fields

_CPUINFO: Final = Path("/proc/cpuinfo")
_CPU_FIELDS: Final = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
_MOST_TEXT: Final = 200
_DEVICE: Final = re.compile(r"cpu|cuda:\d{1,4}")


@dataclass(frozen=True)
class Machine:
    """A measurement holds where all of this is the same."""

    cloakwork: str  # release
    device: str  # cpu or cuda:N
    name: str  # of the GPU, or of the CPU with its instruction set
    cpu: str  # with a GPU too: answers are re-randomised there
    threads: int
    omp_num_threads: str

    @classmethod
    def here(cls, device: str, threads: int = 1) -> Machine:
        """Describes this machine. Args: threads: of the CPU back end; a GPU's host takes all cores.

        Raises:
            DeviceError: there is no such GPU.
        """
        chosen = "cuda:0" if device == "cuda" else device
        cpu = cpu_name()
        count = threads if chosen == "cpu" else usable_cores()
        name = cpu if chosen == "cpu" else _gpu_name(chosen)
        return cls(_release(), chosen, name, cpu, count, os.environ.get("OMP_NUM_THREADS", "")[:_MOST_TEXT])

    @property
    def label(self) -> str:
        """The name in reports: cpu-1-thread, cpu-4-threads, cuda:0."""
        return f"cpu-{self.threads}-thread{'s' if self.threads > 1 else ''}" if self.device == "cpu" else self.device

    @property
    def file_name(self) -> str:
        digest = hashlib.sha256(json.dumps(self.to_fields(), sort_keys=True).encode()).hexdigest()
        return f"{self.label.replace(':', '-')}-{digest[:16]}.json"

    def to_fields(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_fields(cls, machine_fields: dict[str, Any]) -> Machine:
        """Raises ValueError or KeyError for what is not one."""
        texts = {
            key: fields.text(machine_fields[key]) for key in ("cloakwork", "device", "name", "cpu", "omp_num_threads")
        }
        if any(len(text) > _MOST_TEXT or not text.isprintable() for text in texts.values()):
            raise ValueError(f"expected printable names of at most {_MOST_TEXT} characters")
        if not _DEVICE.fullmatch(texts["device"]):
            raise ValueError("expected the device cpu or cuda:N")
        return cls(**texts, threads=fields.integer(machine_fields["threads"], 1, 1 << 16))


@cache
def cpu_name() -> str:
    """Returns model and instruction set: "AMD EPYC (family 26, model 2, stepping 1), avx512"."""
    cpu_fields = _cpu_fields()
    name = cpu_fields.pop("model name", "") or platform.processor() or platform.machine() or "unknown CPU"
    numbers = ", ".join(f"{key.removeprefix('cpu ')} {value}" for key, value in cpu_fields.items())
    text = f"{name}{f' ({numbers})' if numbers else ''}, {_engine.cpu_features()}"
    return "".join(c for c in text if c.isprintable())[:_MOST_TEXT]


def _cpu_fields() -> dict[str, str]:
    """Returns the cpu fields of the first processor, in a fixed order."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    cpu_fields = {key.strip(): value.strip() for key, _, value in pairs}
    return {key: cpu_fields[key] for key in _CPU_FIELDS if key in cpu_fields}


def _gpu_name(device: str) -> str:
    known = {gpu["device"]: gpu for gpu in gpus()}
    if device not in known:
        raise DeviceError(
            f"device: expected cpu{''.join(f', {name}' for name in known)}, got '{device}'; 'cloakwork devices' says what is usable"
        )
    return str(known[device]["name"])


def gpus() -> list[dict[str, Any]]:
    """Returns what the engine says of every usable GPU; none in a build without CUDA or on a machine without one."""
    if not engine.has_cuda():
        return []
    try:
        return [gpu for gpu in _engine.cuda_devices() if gpu["usable"]]
    except DeviceError:
        return []


def _release() -> str:
    try:
        return version("cloakwork")
    except PackageNotFoundError:  # run from its sources
        return "sources"
