"""Inference: at once for short programs, as a job for long ones."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from cloakwork.api.errors import MalformedError, TooLargeError
from cloakwork.api.http import tensors
from cloakwork.api.http.bodies import BodyReader, HeldResponse, content_length, while_connected
from cloakwork.api.routes.dependencies import (
    BINARY,
    AllServices,
    ModelName,
    ModelVersion,
    Responses,
    ScoringCaller,
    binary_request,
    binary_response,
    errors,
)
from cloakwork.api.routes.jobs import AUDIT_KEY_HEADER, job_answer
from cloakwork.api.routes.schemas import JobAnswer
from cloakwork.api.service.jobs.jobs import JobOptions
from cloakwork.api.service.models.model import PREFIX_BYTES, Model
from cloakwork.api.service.scoring.scoring import Answer
from cloakwork.api.service.scoring.work import DEFAULT_PRIORITY
from cloakwork.api.service.services import Services
from cloakwork.api.service.tenants.tenants import Tenant

router = APIRouter(tags=["inference"])

_BODY = binary_request(
    "One object of seeded packed ciphertexts of shape [samples, numbers], or of an index one seeded levelled ciphertext, or of a model for "
    "batches an object of seeded levelled ciphertexts for each plaintext modulus, as the client specification encrypts them; with the header "
    f"{tensors.HEADER}, behind a JSON header of the Open Inference Protocol's binary tensor data extension, as the {tensors.DATATYPE} tensor "
    f"'{tensors.INPUT}'."
)
_ERRORS = errors(404, 408, 409, 410, 411, 413, 428, 429, 507)
_ACCEPTED: dict[str, Any] = {
    "model": JobAnswer,
    "description": "Accepted as a job, which no restart loses",
    "headers": {"Location": {"description": "The job", "schema": {"type": "string"}}},
}
_INFER: Responses = {
    200: binary_response(
        "One object of ciphertexts of shape [samples, outputs]; of an index or a model for batches levelled ciphertexts. A tensor is answered by "
        f"one, '{tensors.OUTPUT}', behind a JSON header"
    ),
    202: _ACCEPTED,
    **_ERRORS,
}

KeyChoice = Annotated[
    str | None,
    Header(
        alias="Fhe-Key-Id",
        pattern="^[0-9a-f]{32}$",
        description="Evaluation keys to use; without it, those of the secret key that the ciphertexts name.",
    ),
]
Prefer = Annotated[str | None, Header(description="`respond-async` asks for a job.")]
IdempotencyKey = Annotated[
    str | None,
    Header(pattern="^[!-~]{1,128}$", description="A repeated request with the same one gets the first job."),
]


@router.post("/v2/models/{model}/infer", responses=_INFER, openapi_extra=_BODY, response_class=Response)
async def infer(
    model: ModelName,
    request: Request,
    services: AllServices,
    tenant: ScoringCaller,
    key: KeyChoice = None,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Runs the newest version."""
    options = JobOptions(idempotency_key=idempotency_key)
    return await _score(
        services, request, tenant, services.models.of(tenant).find(model), key, options, _asynchronous(prefer)
    )


@router.post(
    "/v2/models/{model}/versions/{version}/infer", responses=_INFER, openapi_extra=_BODY, response_class=Response
)
async def infer_version(
    model: ModelName,
    version: ModelVersion,
    request: Request,
    services: AllServices,
    tenant: ScoringCaller,
    key: KeyChoice = None,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    options = JobOptions(idempotency_key=idempotency_key)
    served = services.models.of(tenant).find(model, version)
    return await _score(services, request, tenant, served, key, options, _asynchronous(prefer))


@router.post(
    "/v2/models/{model}/jobs",
    status_code=202,
    responses={202: _ACCEPTED, **_ERRORS},
    openapi_extra=_BODY,
    response_class=Response,
)
async def create_job(
    model: ModelName,
    request: Request,
    services: AllServices,
    tenant: ScoringCaller,
    key: KeyChoice = None,
    version: Annotated[
        str | None,
        Query(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$", description="Of the model; the newest without it."),
    ] = None,
    priority: Annotated[
        int,
        Query(
            ge=0, le=9, description="Larger goes first; above 5, before other tenants too, needs the scope `priority`."
        ),
    ] = DEFAULT_PRIORITY,
    deadline_seconds: Annotated[
        float | None, Query(gt=0, le=1e7, description="A job that is not done by then fails.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Accepts a job: when this answers, the job survives whatever happens to the service."""
    if priority > DEFAULT_PRIORITY:
        tenant.require("priority")
    options = JobOptions(priority, deadline_seconds, idempotency_key)
    return await _score(services, request, tenant, services.models.of(tenant).find(model, version), key, options, True)


def _asynchronous(prefer: str | None) -> bool:
    return prefer is not None and "respond-async" in (part.strip().lower() for part in prefer.split(","))


async def _score(
    services: Services,
    request: Request,
    tenant: Tenant,
    model: Model,
    key: str | None,
    options: JobOptions,
    as_job: bool,
) -> Response:
    request.state.model = model.name
    length = content_length(request)
    json_bytes = tensors.header_bytes(request, length)
    object_bytes = length - json_bytes
    try:
        services.scoring.check_length(model, object_bytes)
    except (TooLargeError, MalformedError) as error:
        raise tensors.wrong_length(error, json_bytes) from None
    with ExitStack() as held:
        held.enter_context(services.bodies.hold(tenant.name, length))
        reader = BodyReader(request, length, services.settings.body_idle_seconds)
        tensor = await tensors.read_tensor_request(reader, json_bytes, object_bytes) if json_bytes else None
        header = services.scoring.check_header(model, await reader.start(PREFIX_BYTES), object_bytes)
        if not as_job:  # several numbers of samples may have one length, and the header says which it is
            held.enter_context(services.bodies.hold(tenant.name, model.output_bytes(header.samples)))
        accepted = await services.scoring.admit(tenant, model, header, key)
        if tensor is not None and not as_job:
            services.scoring.require_soon(accepted)
        body = await reader.whole()
        if as_job or (tensor is None and not services.scoring.is_short(accepted)):
            job = await services.jobs.take(accepted, body, options)
            accepted_job = job_answer(job, services.jobs.events.progress(job.id))
            return JSONResponse(accepted_job.model_dump(), 202, {"Location": f"/v2/jobs/{job.id}"})
        answer = await while_connected(request, services.scoring.run_now(accepted, body))
        return _result(services, model, answer, tensor, held)


def _result(
    services: Services, model: Model, answer: Answer, tensor: tensors.TensorRequest | None, held: ExitStack
) -> Response:
    timing = f"queue;dur={answer.queue_seconds * 1e3:.3f}, run;dur={answer.run_seconds * 1e3:.3f}"
    headers = {
        "Fhe-Compute-Seconds": f"{answer.run_seconds:.6f}",
        "Fhe-Model-Version": model.version,
        AUDIT_KEY_HEADER: services.audit_key.id,
        "Server-Timing": timing,
        "Cache-Control": "no-store",
    }
    body = answer.body
    if tensor is not None:
        body, json_bytes = tensor.answer(model.name, model.version, body)
        headers[tensors.HEADER] = str(json_bytes)
    return HeldResponse(body, held.pop_all(), media_type=BINARY, headers=headers)
