"""Routes of jobs: status, events, results."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from cloakwork.api.errors import ForbiddenError, UnauthorisedError
from cloakwork.api.http.ranges import check_range
from cloakwork.api.routes.dependencies import AllServices, Identity, ScoringCaller, authenticated
from cloakwork.api.routes.documents import BINARY, binary_response, errors
from cloakwork.api.routes.job_answers import AUDIT_KEY_HEADER, job_answer, job_events
from cloakwork.api.routes.schemas import JobAnswer, JobList

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
