"""Health, the server's own metadata, metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.security import HTTPBearer

from cloakwork.api.routes.dependencies import AllServices, authenticated, errors
from cloakwork.api.routes.schemas import Health, ServerMetadata
from cloakwork.api.settings import release

router = APIRouter(tags=["health"])
_bearer = HTTPBearer(auto_error=False, scheme_name="api_key")


@router.get("/v2", responses=errors(anonymous=True))
async def server_metadata() -> ServerMetadata:
    return ServerMetadata(
        name="cloakwork", version=release(), extensions=["model_repository", "binary_tensor_data", "fhe"]
    )


@router.get("/livez", include_in_schema=False)
@router.get("/v2/health/live", responses=errors(anonymous=True))
async def live() -> Health:
    """Checks that the process answers."""
    return Health(status="live")


@router.get("/readyz", include_in_schema=False)
@router.get("/v2/health/ready", responses=errors(anonymous=True))
async def ready(services: AllServices) -> Health:
    """Checks that models are read, the database can be written, the engine answers."""
    await services.life.require_ready()
    return Health(status="ready")


@router.get(
    "/metrics",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **errors()},
    response_class=Response,
)
async def metrics(request: Request, services: AllServices, _: Annotated[object, Depends(_bearer)]) -> Response:
    """Renders metrics in the text format of Prometheus."""
    tenant = None
    if not services.settings.metrics_public:
        tenant = await authenticated(request, services)
        tenant.require("metrics")
    return Response(await services.exposition.text(tenant), media_type="text/plain; version=0.0.4")
