"""Load of this service: its engine, queue, memory, disk, connections and requests."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

from cloakwork.api.budgets import BodyBudget, Budgets
from cloakwork.api.engine.messages import Pong
from cloakwork.api.errors import UnavailableError
from cloakwork.api.metrics import STEP_SECONDS, Activity
from cloakwork.api.service.fleet.fleet import Fleet
from cloakwork.api.service.jobs.store import JobStore
from cloakwork.api.service.scoring.dispatcher import Dispatcher
from cloakwork.api.service.scoring.work import Work
from cloakwork.api.service.storage.disk import Disk
from cloakwork.api.settings import Settings

_PING_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Load:
    """Load of this process and its engine; jobs by state are those of every service on the database."""

    budgets: Budgets
    settings: Settings
    dispatcher: Dispatcher
    store: JobStore
    bodies: BodyBudget
    disk: Disk
    activity: Activity
    fleet: Fleet
    began: float = field(default_factory=time.monotonic)

    async def report(self) -> dict[str, Any]:
        """Reports the load. An engine that does not answer within a second is said to; everything else is told all the same."""
        engines = self.dispatcher.engines
        try:
            facts = await engines.ping(_PING_SECONDS)
        except UnavailableError:
            facts = {}
        places = {name: (each.device, seconds) for each in facts.values() for name, seconds in each.runs.items()}
        return {
            "service": self.store.node,
            "uptime_seconds": time.monotonic() - self.began,
            "engine": {
                "answers": bool(facts),
                "restarts": engines.restarts,
                "devices": list(engines.devices),
                "workers": engines.workers,
                "processes": [
                    {
                        "name": engine.name,
                        "answers": engine.name in facts,
                        "process": engine.link.pid,
                        "restarts": engine.link.restarts,
                        "workers": engine.workers,
                        "running": len(engine.runs),
                    }
                    for engine in engines.all
                ],
            },
            "queue": self._queue(),
            "nodes": await self._nodes(),
            "runs": [_run(work, places) for work in self.dispatcher.in_flight() if work.subject],
            "jobs": await self.store.counts(),
            "keys": self._keys(facts),
            "bodies": self.bodies.facts(),
            "disk": {
                "free_bytes": self.disk.free_bytes(),
                "room_bytes": self.disk.room_bytes(),
                "reserve_bytes": self.settings.disk_reserve_bytes,
            },
            "requests": {"step_seconds": STEP_SECONDS, **vars(self.activity.recent())},
        }

    def _queue(self) -> dict[str, Any]:
        line = self.fleet.line
        return {"waiting": line.waiting, "limit": self.settings.max_queue, "seconds": line.backlog_seconds()}

    async def _nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "id": member.id,
                "role": member.role,
                "release": member.release,
                "devices": member.devices.split(),
                "workers": member.workers,
                "running": member.running,
                "draining": member.draining,
                "heartbeat_seconds": member.age,
                "uptime_seconds": member.uptime,
            }
            for member in await self.fleet.members()
        ]

    def _keys(self, facts: dict[str, Pong]) -> dict[str, int]:
        engines = self.dispatcher.engines

        return {
            "resident": len(engines.resident_keys) if facts else 0,
            "memory_bytes": sum(each.memory_bytes for each in facts.values()),
            "memory_limit_bytes": self.budgets.memory_key_bytes,
            "device_bytes": sum(each.device_bytes for each in facts.values()),
            "device_limit_bytes": engines.device_key_bytes or self.budgets.device_key_bytes,
            "hits": sum(each.hits for each in facts.values()),
            "misses": sum(each.misses for each in facts.values()),
        }


def _run(work: Work, running: dict[str, tuple[str, float]]) -> dict[str, Any]:
    """Describes a run. One without a device yet was sent ahead, or its key is on the way."""
    assert work.subject is not None
    device, seconds = running.get(work.id, (None, None))
    return {
        "id": work.id,
        "kind": "request" if work.claim is None else "job",
        "tenant": work.tenant,
        "model": work.subject.model,
        "version": work.subject.version,
        "parameter_set": work.subject.parameter_set,
        "samples": work.subject.samples,
        "priority": work.priority,
        "waited_seconds": max(0.0, time.monotonic() - work.queued_at - (seconds or 0.0)),
        "seconds": seconds,
        "estimated_seconds": work.seconds,
        "device": device,
    }
