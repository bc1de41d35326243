"""Models: lists, metadata, the client specification, and the model repository extension of the Open Inference Protocol."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic_core import from_json

from cloakwork.api.errors import MalformedError
from cloakwork.api.http import tensors
from cloakwork.api.http.bodies import chunks, content_length
from cloakwork.api.routes.dependencies import (
    AllServices,
    ManagingCaller,
    ModelName,
    ModelVersion,
    VisibleModels,
    binary_request,
    errors,
)
from cloakwork.api.routes.schemas import (
    ModelList,
    ModelMetadata,
    ModelReady,
    RepositoryAnswer,
    RepositoryEntry,
    RepositoryQuery,
    RepositoryUpload,
    Sha256,
    Tensor,
)
from cloakwork.api.service.models.model import Model
from cloakwork.api.service.models.records import LOADED
from cloakwork.api.service.models.uploads import Announced
from cloakwork.api.service.services import Services

router = APIRouter(tags=["models"])

_NOT_MODIFIED = 304
_SPECIFICATION: dict[int | str, dict[str, Any]] = {
    200: {"description": "The specification", "content": {"application/json": {"schema": {"type": "object"}}}},
    304: {"description": "It is the one whose ETag was sent"},
    **errors(404, 410),
}
repository_router = APIRouter(tags=["repository"])
_UPLOADED: dict[int | str, dict[str, Any]] = {
    200: {"model": RepositoryUpload, "description": "The same bytes are there already"},
    **errors(404, 408, 409, 410, 411, 413, 507),
}


@router.get("/v2/models", responses=errors())
async def list_models(models: VisibleModels) -> ModelList:
    """Names of the models that have a version in service."""
    return ModelList(models=[name for name in models.names() if models.versions(name)])


@router.get("/v2/models/{model}", responses=errors(404, 410))
async def model_metadata(model: ModelName, services: AllServices, models: VisibleModels) -> ModelMetadata:
    """Describes the newest version."""
    return _metadata(services, models.find(model))


@router.get("/v2/models/{model}/versions/{version}", responses=errors(404, 410))
async def version_metadata(
    model: ModelName, version: ModelVersion, services: AllServices, models: VisibleModels
) -> ModelMetadata:
    return _metadata(services, models.find(model, version))


@router.get("/v2/models/{model}/ready", responses=errors(404, 410))
async def model_ready(model: ModelName, models: VisibleModels) -> ModelReady:
    return ModelReady(name=model, version=models.find(model).version, ready=True)


@router.get("/v2/models/{model}/versions/{version}/ready", responses=errors(404, 410))
async def version_ready(model: ModelName, version: ModelVersion, models: VisibleModels) -> ModelReady:
    return ModelReady(name=model, version=models.find(model, version).version, ready=True)


@router.get("/v2/models/{model}/client", responses=_SPECIFICATION, response_class=Response)
async def newest_client_specification(model: ModelName, request: Request, models: VisibleModels) -> Response:
    return _specification(models.find(model), request)


@router.get("/v2/models/{model}/versions/{version}/client", responses=_SPECIFICATION, response_class=Response)
async def client_specification(
    model: ModelName, version: ModelVersion, request: Request, models: VisibleModels
) -> Response:
    """Returns what a client needs to encrypt inputs and to read results; its ETag is its digest."""
    return _specification(models.find(model, version), request)


def _specification(model: Model, request: Request) -> Response:
    etag = f'"{model.client_digest}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Fhe-Model-Version": model.version}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    return Response(model.client, media_type="application/json", headers=headers)


def _clear_tensors(model: Model, which: str) -> list[dict[str, Any]]:
    """Returns what is encrypted in the objects: several inputs or outputs by their names in the model; the only one as "input" or "output"."""
    single = [{"name": which, "shape": model.facts[f"{which}_shape"]}]
    named = model.facts["report"].get(f"{which}_tensors") or single
    return [{"name": each["name"], "datatype": "FP64", "shape": [-1, *each["shape"]]} for each in named]


def _object(name: str) -> list[Tensor]:
    """Returns what the service sees: the bytes of one object."""
    return [Tensor(name=name, datatype=tensors.DATATYPE, shape=[-1])]


def _metadata(services: Services, model: Model) -> ModelMetadata:
    facts = {name: value for name, value in model.facts.items() if name not in ("client", "format")}
    measured = services.scoring.estimates.measured(model)
    fhe = {
        **facts,
        "version": model.version,
        "inputs": _clear_tensors(model, "input"),
        "outputs": _clear_tensors(model, "output"),
        "client_digest": model.client_digest,
        "input_bytes_one_sample": model.input_bytes(1),
        "output_bytes_one_sample": model.output_bytes(1),
        "largest_batch": services.scoring.largest_batch(model),
        "devices": list(services.dispatcher.engines.devices),
        "estimated_seconds": services.scoring.estimates.seconds(model, 1),
        "estimate_is_measured": measured is not None,
    }
    return ModelMetadata(
        name=model.name,
        versions=[known.version for known in services.models.versions(model.name)],
        platform="cloakwork",
        inputs=_object(tensors.INPUT),
        outputs=_object(tensors.OUTPUT),
        parameters={"fhe": fhe},
    )


@repository_router.post("/v2/repository/index", responses=errors())
async def index(
    services: AllServices, tenant: ManagingCaller, query: RepositoryQuery | None = None
) -> list[RepositoryEntry]:
    entries = [RepositoryEntry.model_validate(entry) for entry in services.models.of(tenant).index()]
    return [entry for entry in entries if entry.state == "READY" or not (query and query.ready)]


@repository_router.post("/v2/repository/models/{model}/load", responses=errors(404))
async def load(model: ModelName, request: Request, services: AllServices, tenant: ManagingCaller) -> RepositoryAnswer:
    """Reads the repository again and puts every version that is not retired into service."""
    _refuse_overrides(await request.body())
    await services.models.of(tenant).load(model)
    return RepositoryAnswer(name=model, versions=[each.version for each in services.models.of(tenant).versions(model)])


def _refuse_overrides(body: bytes) -> None:
    """Clients of Triton may send a configuration and files for this one load, and would believe that they are used."""
    try:
        fields = from_json(body) if body else {}
    except ValueError:
        return
    parameters = fields.get("parameters") if isinstance(fields, dict) else None
    if isinstance(parameters, dict) and any(name == "config" or name.startswith("file:") for name in parameters):
        raise MalformedError(
            "a model is loaded as it is in the repository: send no config and no files (PUT /v2/repository/models/.. takes a new version)"
        )


@repository_router.post("/v2/repository/models/{model}/unload", responses=errors(404))
async def unload(model: ModelName, services: AllServices, tenant: ManagingCaller) -> RepositoryAnswer:
    """Takes every version out of service, until `load`."""
    await services.models.of(tenant).unload(model)
    return RepositoryAnswer(name=model, versions=[])


@repository_router.put(
    "/v2/repository/models/{model}/versions/{version}",
    status_code=201,
    responses=_UPLOADED,
    openapi_extra=binary_request(
        "A compiled model (.clkm, of batches .clkb) or an index of nearest neighbours (.clkn)."
    ),
)
async def upload(
    model: ModelName,
    version: ModelVersion,
    request: Request,
    response: Response,
    services: AllServices,
    tenant: ManagingCaller,
    load: Annotated[bool, Query(description="Put the version into service.")] = True,
    fhe_artefact_sha256: Annotated[
        Sha256 | None, Header(description="SHA-256 of the body in hexadecimal, checked when all of it is here.")
    ] = None,
) -> RepositoryUpload:
    """Adds a version from a file, in service afterwards unless `load=false`. A version never changes: the same bytes again are answered with 200,
    others with 409."""
    announced = Announced(content_length(request), fhe_artefact_sha256, load)
    body = chunks(request, announced.bytes, services.settings.body_idle_seconds)
    record, new = await services.model_uploads.receive(tenant, (model, version), announced, body)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v2/models/{model}/versions/{version}"
    ready = record.state == LOADED
    return RepositoryUpload(
        name=model,
        version=version,
        state="READY" if ready else "UNAVAILABLE",
        reason="" if ready else record.state,
        bytes=record.bytes or 0,
        sha256=record.artefact_sha256 or "",
    )


@repository_router.delete("/v2/repository/models/{model}/versions/{version}", responses=errors(404), status_code=204)
async def retire(
    model: ModelName,
    version: ModelVersion,
    services: AllServices,
    tenant: ManagingCaller,
    remove: Annotated[
        bool,
        Query(description="Remove its bytes too, as soon as no job needs them; audits need the file elsewhere then."),
    ] = False,
) -> None:
    """Retires a version for good: it answers 410 from now on, and its number is not given again."""
    await services.models.of(tenant).retire(model, version, remove)
