"""The model repository extension of the Open Inference Protocol."""

from __future__ import annotations

from fastapi import APIRouter

from cloakwork.api.routes.dependencies import AllServices, ManagingCaller, ModelName, ModelVersion
from cloakwork.api.routes.documents import errors
from cloakwork.api.routes.schemas import RepositoryAnswer, RepositoryEntry, RepositoryQuery

router = APIRouter(tags=["repository"])


@router.post("/v2/repository/index", responses=errors())
async def index(
    services: AllServices, tenant: ManagingCaller, query: RepositoryQuery | None = None
) -> list[RepositoryEntry]:
    entries = [RepositoryEntry.model_validate(entry) for entry in services.models.of(tenant).index()]
    return [entry for entry in entries if entry.state == "READY" or not (query and query.ready)]


@router.post("/v2/repository/models/{model}/load", responses=errors(404))
async def load(model: ModelName, services: AllServices, tenant: ManagingCaller) -> RepositoryAnswer:
    """Reads the repository again and puts every version that is not retired into service."""
    await services.models.of(tenant).load(model)
    return RepositoryAnswer(name=model, versions=[each.version for each in services.models.of(tenant).versions(model)])


@router.post("/v2/repository/models/{model}/unload", responses=errors(404))
async def unload(model: ModelName, services: AllServices, tenant: ManagingCaller) -> RepositoryAnswer:
    """Takes every version out of service, until `load`."""
    await services.models.of(tenant).unload(model)
    return RepositoryAnswer(name=model, versions=[])


@router.delete("/v2/repository/models/{model}/versions/{version}", responses=errors(404), status_code=204)
async def retire(model: ModelName, version: ModelVersion, services: AllServices, tenant: ManagingCaller) -> None:
    """Retires a version for good: it answers 410 from now on."""
    await services.models.of(tenant).retire(model, version)
