"""The model repository extension of the Open Inference Protocol."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic_core import from_json

from cloakwork.api.errors import MalformedError
from cloakwork.api.http.bodies import chunks, content_length
from cloakwork.api.routes.dependencies import AllServices, ManagingCaller, ModelName, ModelVersion
from cloakwork.api.routes.documents import binary_request, errors
from cloakwork.api.routes.schemas import RepositoryAnswer, RepositoryEntry, RepositoryQuery, RepositoryUpload, Sha256
from cloakwork.api.service.models.records import LOADED
from cloakwork.api.service.models.uploads import Announced

router = APIRouter(tags=["repository"])


@router.post("/v2/repository/index", responses=errors())
async def index(
    services: AllServices, tenant: ManagingCaller, query: RepositoryQuery | None = None
) -> list[RepositoryEntry]:
    entries = [RepositoryEntry.model_validate(entry) for entry in services.models.of(tenant).index()]
    return [entry for entry in entries if entry.state == "READY" or not (query and query.ready)]


@router.post("/v2/repository/models/{model}/load", responses=errors(404))
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


@router.post("/v2/repository/models/{model}/unload", responses=errors(404))
async def unload(model: ModelName, services: AllServices, tenant: ManagingCaller) -> RepositoryAnswer:
    """Takes every version out of service, until `load`."""
    await services.models.of(tenant).unload(model)
    return RepositoryAnswer(name=model, versions=[])


_UPLOADED: dict[int | str, dict[str, Any]] = {
    200: {"model": RepositoryUpload, "description": "The same bytes are there already"},
    **errors(404, 408, 409, 410, 411, 413, 507),
}


@router.put(
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


@router.delete("/v2/repository/models/{model}/versions/{version}", responses=errors(404), status_code=204)
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
