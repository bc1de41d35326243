"""The rates of a machine as JSON. It is read strictly: a cache may hold anything."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from json import loads
from pathlib import Path
from typing import Any, Final

from cloakwork.fhe_core import _engine, engine
from cloakwork.fhe_core.errors import DeviceError, ParameterError, SerializationError
from cloakwork.fhe_core.machine import usable_cores
from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, parameter_set
from cloakwork.fhe_core.wire.files import atomic_writer, cache_folder
from cloakwork.models import fields
from cloakwork.models.forecast.rates import LINEAR, MOVED, SetRates, Work, nearest_set

# Identification of this machine, as far as the time of a program depends on it.

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


FORMAT: Final = 1
MOST_BYTES: Final = 1 << 20
_MOST_SETS, _MOST_POINTS, _LONGEST_TEXT = 256, 64, 500
_LARGEST_BATCH: Final = 1 << 24
_LONGEST: Final = 1e6  # seconds of anything


@dataclass(frozen=True)
class MachineProfile:
    """Measurements of a machine, by the names of parameter sets; at least one."""

    machine: Machine
    measured: str  # when, ISO 8601
    sets: Mapping[str, SetRates]
    source: str = ""  # of stored figures: where they come from

    def rates(self, params: ParameterSet) -> tuple[SetRates, str | None]:
        """Returns the rates of a set, and the set that they were scaled from, None for those that were measured."""
        known = {name: parameter_set(name) for name in self.sets}
        nearest = nearest_set(params, known)
        rates = self.sets[nearest]
        return (rates, None) if nearest == params.name else (rates.scaled(known[nearest], params), nearest)

    def seconds(self, params: ParameterSet, work: Work) -> float:
        return sum(self.rates(params)[0].parts(work).values())

    def to_fields(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "machine": self.machine.to_fields(),
            "measured": self.measured,
            "source": self.source,
            "sets": {name: _rates_to_fields(rates) for name, rates in self.sets.items()},
        }

    def to_json(self) -> str:
        return json.dumps(self.to_fields(), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> MachineProfile:
        """Sets whose row of parameters has changed since are left out.

        Raises:
            SerializationError: anything is missing, of another type or out of range, or no set is left.
        """
        try:
            if len(text) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes")
            return cls.from_fields(fields.parsed_object(text))
        except (ValueError, KeyError) as error:
            what = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise SerializationError(
                f"measurement of a machine: {what}; run 'cloakwork calibrate-machine' again"
            ) from error

    @classmethod
    def from_fields(cls, profile_fields: dict[str, Any]) -> MachineProfile:
        """Raises ValueError or KeyError for what is not one."""
        if profile_fields["format"] != FORMAT:
            raise ValueError(f"expected format {FORMAT}, got {str(profile_fields['format'])[:20]}")
        datetime.fromisoformat(_text(profile_fields["measured"]))
        entries = _object(profile_fields["sets"], _MOST_SETS)
        sets = {name: rates for name, each in entries.items() if (rates := _rates(name, _object(each))) is not None}
        if not sets:
            raise ValueError("its parameter sets are none of this release's")
        machine = Machine.from_fields(_object(profile_fields["machine"]))
        return cls(machine, profile_fields["measured"], sets, _text(profile_fields.get("source", "")))


def _rates_to_fields(rates: SetRates) -> dict[str, Any]:
    return {
        "parameter_digest": parameter_digest(parameter_set(rates.parameter_set)).hex(),
        "run": rates.run,
        "call": rates.call,
        "seconds": dict(rates.seconds),
        "lookups": [[count, value] for count, value in sorted(rates.lookups.items())],
        "answers": [[count, value] for count, value in sorted(rates.answers.items())],
        "switched": [[count, value] for count, value in sorted(rates.switched.items())],
    }


def _rates(name: str, set_fields: dict[str, Any]) -> SetRates | None:
    """Returns None for a set that this release does not have, or has with other numbers."""
    seconds = _object(set_fields["seconds"])
    if not seconds.keys() <= {*LINEAR, *MOVED}:
        raise ValueError("expected the seconds of known kinds of work")
    lookups, answers, switched = (_curve(set_fields[key]) for key in ("lookups", "answers", "switched"))
    if not lookups or not max(lookups.values()) > 0:
        raise ValueError("expected look-ups that take time")
    rates = SetRates(
        name, _seconds(set_fields["run"]), _seconds(set_fields["call"]), {key: _seconds(value) for key, value in seconds.items()},
        lookups, answers, switched,
    )  # fmt: skip
    try:
        same = parameter_digest(parameter_set(name)).hex() == _text(set_fields["parameter_digest"])
    except ParameterError:
        return None
    return rates if same else None


def _curve(value: Any) -> dict[int, float]:
    points = {}
    for entry in fields.entries(value, _MOST_POINTS):
        pair = fields.entries(entry, 2)
        if len(pair) != 2:
            raise ValueError("expected pairs of a batch and its seconds")
        points[fields.integer(pair[0], 1, _LARGEST_BATCH)] = _seconds(pair[1])
    return points


def _seconds(value: Any) -> float:
    number = fields.real(value)
    if not 0 <= number <= _LONGEST:
        raise ValueError(f"expected seconds from 0 to {_LONGEST:g}")
    return number


def _text(value: Any) -> str:
    text = fields.text(value)
    if len(text) > _LONGEST_TEXT or not text.isprintable():
        raise ValueError(f"expected a printable text of at most {_LONGEST_TEXT} characters")
    return text


def _object(value: Any, most: int = 64) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > most:
        raise ValueError(f"expected an object of at most {most} entries")
    return value


# Measurements of machines in the user's cache, `cloakwork/machine` there, a file for each machine, device and number of threads.

_MOST_FILES: Final = 256


def machine_folder() -> Path:
    return cache_folder() / "machine"


def save_profile(profile: MachineProfile) -> Path:
    """Saves a profile under the name of its machine, in place of an earlier measurement."""
    folder = machine_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / profile.machine.file_name
    with atomic_writer(path) as stream:
        stream.write(profile.to_json().encode())
    return path


def measured_profiles() -> tuple[list[MachineProfile], list[str]]:
    """Reads what was measured on this machine with this release, and a line for each file that cannot be read; other machines' are left alone."""
    profiles, problems = [], []
    for path in _stored_files():
        try:
            profile = MachineProfile.from_json(_contents(path))
        except (SerializationError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            problems.append(f"{path.name}: {reason}")
            continue
        if _is_here(profile.machine):
            profiles.append(profile)
    return profiles, problems


def stored_profiles() -> dict[str, MachineProfile]:
    """Returns stored profiles by name: machines that cloakwork was measured on, for those that were not."""
    text = files("cloakwork.models.forecast").joinpath("stored.json").read_text(encoding="utf-8")
    return {name: MachineProfile.from_fields(each) for name, each in loads(text).items()}


def _stored_files() -> list[Path]:
    try:
        return sorted(path for path in machine_folder().glob("*.json") if path.is_file())[:_MOST_FILES]
    except (OSError, RuntimeError):  # a folder that may not be read, or a user without a home
        return []


def _contents(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(MOST_BYTES + 1)


def _is_here(machine: Machine) -> bool:
    try:
        return machine == Machine.here(machine.device, machine.threads)
    except DeviceError:
        return False
