"""A job as JSON, and its life as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from cloakwork.api.routes.schemas import JobAnswer, JobError, ProgressAnswer
from cloakwork.api.service.jobs.events import JobProgress
from cloakwork.api.service.jobs.jobs import Jobs
from cloakwork.api.service.jobs.store import DONE, FAILED, QUEUED, RUNNING, Job
from cloakwork.api.service.tenants.tenants import Tenant

AUDIT_KEY_HEADER: Final = "Fhe-Audit-Key"  # the id of the audit key that an answer was re-randomised with

_LOOK_SECONDS: Final = 1.0  # at the database: another service may be running the job
_SILENT_LOOKS: Final = 15  # after so many a comment keeps proxies from closing the connection


def job_answer(job: Job, progress: JobProgress | None) -> JobAnswer:
    return JobAnswer(
        id=job.id,
        state=job.state,  # type: ignore[arg-type]  # the database holds no other
        model=job.model,
        version=job.version,
        key=job.evaluation_key,
        samples=job.samples,
        bootstraps=job.bootstraps,
        priority=job.priority,
        attempts=job.attempts,
        created_at=job.created_at,
        deadline_at=job.deadline_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        run_seconds=job.run_seconds,
        progress=None if progress is None or job.over else _progress(progress),
        result_bytes=job.result_bytes,
        result_sha256=job.result_sha256,
        error=None if job.error_code is None else JobError(code=job.error_code, message=job.error_message or ""),
    )


def _progress(progress: JobProgress) -> ProgressAnswer:
    return ProgressAnswer(done=progress.done, total=progress.total, eta_seconds=progress.eta_seconds)


async def job_events(
    jobs: Jobs, tenant: Tenant, job: Job, allowed: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Streams queued, started, progress {done, total, eta_seconds}, then done, failed or cancelled; ends there, or when it is not allowed any
    more."""
    state, progress, silent = "", None, 0
    with jobs.events.watch(job.id) as bell:
        while True:
            if job.state != state:
                state, silent = job.state, 0
                yield _event(_NAMES.get(state, state), job_answer(job, None).model_dump())
            if job.over:
                return
            latest = jobs.events.progress(job.id)
            if latest is not None and latest != progress and state == RUNNING:
                progress, silent = latest, 0
                yield _event("progress", _progress(latest).model_dump())
            silent += 1
            if silent > _SILENT_LOOKS:
                silent = 0
                yield b": still here\n\n"
            rung = await _wait(bell)
            bell.clear()
            if not await allowed():
                return
            if rung and jobs.events.progress(job.id) != progress:
                continue  # progress alone needs no look at the database
            job = await jobs.get(tenant, job.id)


_NAMES: Final = {QUEUED: "queued", RUNNING: "started", DONE: "done", FAILED: "failed"}


async def _wait(bell: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            return await bell.wait()
    except TimeoutError:
        return False


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
