"""Memory budgets: defaults shrink if the service may use little memory; settings that were given stay."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from cloakwork.api.errors import BusyError
from cloakwork.api.settings import Settings
from cloakwork.fhe_core.machine import is_limited, memory_bytes

IDLE_BYTES: Final = 256 << 20
"""Both processes, before they keep anything."""
RUNNING_BYTES: Final = 512 << 20
"""These, and runs with the keys that they use beside those that are kept."""
WHOLE_BYTES: Final = 10 << 30
"""With so much memory the defaults are those of `Settings`; with less they are in proportion to what is there beyond `RUNNING_BYTES`."""
PROGRAM_BYTES: Final = 1 << 30
_LEAST: Final = 8 << 20
_SHRINKING: Final = ("memory_key_bytes", "device_key_bytes", "body_memory_bytes", "tenant_body_memory_bytes")

_log = logging.getLogger("cloakwork.server")


@dataclass(frozen=True)
class Budgets:
    memory_bytes: int  # that all processes of the service together may use
    memory_key_bytes: int
    device_key_bytes: int
    cpu_key_bytes: int | None  # of all engines on CPUs together; None: `device_key_bytes` is each one's
    program_bytes: int
    body_memory_bytes: int
    tenant_body_memory_bytes: int
    data_bytes: int  # that engines on CPUs together may take from the kernel; 0: as much as there is

    @classmethod
    def of(cls, settings: Settings, memory: int | None = None, limited: bool | None = None) -> Budgets:
        """`memory`: bytes, of this machine and its cgroups without it. `limited`: whether more than that is not given but killed for."""
        memory = memory_bytes() if memory is None else memory
        limited = is_limited() if limited is None else limited
        share = min(1.0, max(0, memory - RUNNING_BYTES) / (WHOLE_BYTES - RUNNING_BYTES))

        def fit(name: str) -> int:
            value: int = getattr(settings, name)
            return value if name in settings.model_fields_set else min(value, max(_LEAST, int(value * share)))

        sizes = {name: fit(name) for name in _SHRINKING}
        device, is_set = sizes.pop("device_key_bytes"), "device_key_bytes" in settings.model_fields_set
        return cls(
            memory_bytes=memory,
            device_key_bytes=settings.device_key_bytes,
            cpu_key_bytes=None if is_set else device,
            program_bytes=max(_LEAST, int(PROGRAM_BYTES * share)),
            data_bytes=max(_LEAST, memory - IDLE_BYTES) if limited else 0,
            **sizes,
        )

    def tell(self) -> None:
        """Writes the budgets to the log, with a warning where settings allow more than there is."""
        keys = self.device_key_bytes if self.cpu_key_bytes is None else self.cpu_key_bytes
        kept_bytes = RUNNING_BYTES + self.memory_key_bytes + keys + self.body_memory_bytes
        facts = {"memory_bytes": self.memory_bytes, "kept_bytes": kept_bytes}
        _log.info("memory", extra=facts)
        if kept_bytes > self.memory_bytes:
            _log.warning(
                "what the settings keep in memory is more than the service may use, unless its devices are GPUs; lower device_key_bytes and "
                "memory_key_bytes, or give it more",
                extra=facts,
            )


class BodyBudget:
    """A limit for all together, and one for each tenant. The first body may be of any size: its model limits it."""

    def __init__(self, limit: int, tenant_limit: int) -> None:
        self._limit, self._tenant_limit = limit, tenant_limit
        self._held: Counter[str] = Counter()

    def facts(self) -> dict[str, int]:
        return {"held_bytes": self._held.total(), "limit_bytes": self._limit}

    @contextmanager
    def hold(self, tenant: str, count: int) -> Iterator[None]:
        """Holds memory for a body.

        Raises:
            BusyError: there is no room, for this tenant or for anybody.
        """
        every, mine = self._held.total(), self._held[tenant]
        if (every and every + count > self._limit) or (mine and mine + count > self._tenant_limit):
            whose = "requests" if every + count > self._limit else "of your requests"
            raise BusyError(f"too many {whose} are in memory at once; try again", retry_after=1)
        self._held[tenant] += count
        try:
            yield
        finally:
            self._held[tenant] -= count
            if not self._held[tenant]:
                del self._held[tenant]
