"""Options of the engine process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class EngineOptions:
    """`device` as in `EvaluationKeys.expand`: `cuda:0,1` is one device of several GPUs."""

    device: str = "cpu"
    threads: int = 1  # CPU threads of all runs together
    memory_key_bytes: int = 1 << 30  # keys as they travel, kept in memory
    device_key_bytes: int = 4 << 30  # expanded keys on the device
    log_level: str = "info"
    cpu_key_bytes: int | None = None  # expanded keys of all engines on CPUs; None: `device_key_bytes` is each one's
    program_bytes: int = 1 << 30  # programs that were read
    data_bytes: int = 0  # that the kernel gives an engine on a CPU, at most; 0: no limit but the machine's

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> EngineOptions:
        return cls(**json.loads(text))
