"""Routes of jobs: status, events, results; and of the usage that they add up to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from cloakwork.api.errors import ForbiddenError, UnauthorisedError
from cloakwork.api.http.bodies import check_range
from cloakwork.api.routes.dependencies import (
    BINARY,
    AllServices,
    Identity,
    ScoringCaller,
    authenticated,
    binary_response,
    errors,
)
from cloakwork.api.routes.schemas import JobAnswer, JobError, JobList, ProgressAnswer, UsageAnswer
from cloakwork.api.service.jobs.jobs import Jobs
from cloakwork.api.service.jobs.store import DONE, FAILED, QUEUED, RUNNING, Job, JobProgress
from cloakwork.api.service.tenants.tenants import Tenant

AUDIT_KEY_HEADER: Final = "Fhe-Audit-Key"  # the id of the audit key that an answer was re-randomised with

_LOOK_SECONDS: Final = 1.0  # at the database: another service may be running the job
_SILENT_LOOKS: Final = 15  # after so many a comment keeps proxies from closing the connection
_NAMES: Final = {QUEUED: "queued", RUNNING: "started", DONE: "done", FAILED: "failed"}
router = APIRouter(tags=["jobs"])
_EVENT_STREAM = "text/event-stream"
_EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["queued", "started", "progress", "done", "failed", "cancelled"]},
        "data": {"type": "string", "description": "The job, or {done, total, eta_seconds}, as JSON."},
    },
    "required": ["event", "data"],
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {_EVENT_STREAM: {"schema": _EVENT}}},
    **errors(404),
}
_PARTS = {"type": "string", "format": "binary"}
_RESULT: dict[int | str, dict[str, Any]] = {
    200: binary_response("One object of ciphertexts of shape [samples, outputs]"),
    206: {
        "description": "The bytes that Range asks for",
        "headers": {"Content-Range": {"description": "Of a single range", "schema": {"type": "string"}}},
        "content": {BINARY: {"schema": _PARTS}, "multipart/byteranges": {"schema": _PARTS}},
    },
    **errors(404, 409, 410, 416, 500),
}
usage_router = APIRouter(tags=["usage"])


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


async def _wait(bell: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            return await bell.wait()
    except TimeoutError:
        return False


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


@router.get("/v2/jobs", responses=errors())
async def list_jobs(
    services: AllServices, tenant: ScoringCaller, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> JobList:
    """Lists jobs, the newest first."""
    jobs = await services.jobs.of_tenant(tenant, limit)
    return JobList(jobs=[job_answer(job, services.jobs.events.progress(job.id)) for job in jobs])


@router.get("/v2/jobs/{job}", responses=errors(404))
async def get_job(job: Identity, services: AllServices, tenant: ScoringCaller) -> JobAnswer:
    record = await services.jobs.get(tenant, job)
    return job_answer(record, services.jobs.events.progress(job))


@router.get("/v2/jobs/{job}/events", responses=_EVENTS, response_class=StreamingResponse)
async def watch_job(job: Identity, request: Request, services: AllServices, tenant: ScoringCaller) -> Response:
    """Streams queued, started, progress {done, total, eta_seconds}, done, failed, cancelled; ends with the API key's validity."""
    record = await services.jobs.get(tenant, job)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if request.method == "HEAD":
        return Response(media_type=_EVENT_STREAM, headers=headers)

    async def allowed() -> bool:
        if services.life.draining:
            return False
        try:
            (await authenticated(request, services)).require("score")
        except (UnauthorisedError, ForbiddenError):
            return False
        return True

    events = job_events(services.jobs, tenant, record, allowed)
    return StreamingResponse(events, media_type=_EVENT_STREAM, headers=headers)


@router.get(
    "/v2/jobs/{job}/result",
    responses=_RESULT,
    response_class=FileResponse,
)
async def job_result(job: Identity, request: Request, services: AllServices, tenant: ScoringCaller) -> FileResponse:
    """Sends the result of a job; the ETag is the SHA-256 of the result."""
    finished_job, path = await services.jobs.result(tenant, job)
    etag = f'"{finished_job.result_sha256}"'
    check_range(request, finished_job.result_bytes or 0, etag)
    headers = {
        "ETag": etag,
        AUDIT_KEY_HEADER: services.audit_key.id,
        "Cache-Control": "no-store",
    }
    return FileResponse(path, media_type=BINARY, headers=headers)


@router.delete("/v2/jobs/{job}", status_code=204, responses=errors(404), response_class=Response)
async def delete_job(job: Identity, services: AllServices, tenant: ScoringCaller) -> Response:
    """Cancels a job that has not ended; deletes one that has, with its result."""
    await services.jobs.cancel_or_forget(tenant, job)
    return Response(status_code=204)


@usage_router.get("/v2/usage", responses=errors())
async def usage(services: AllServices, tenant: ScoringCaller) -> UsageAnswer:
    """Returns bytes stored, bootstraps and requests by day (UTC), jobs by state, limits."""
    return UsageAnswer.model_validate(await services.usage.report(tenant))
