"""Routes of a tenant's usage."""

from __future__ import annotations

from fastapi import APIRouter

from cloakwork.api.routes.dependencies import AllServices, ScoringCaller
from cloakwork.api.routes.documents import errors
from cloakwork.api.routes.schemas import UsageAnswer

router = APIRouter(tags=["usage"])


@router.get("/v2/usage", responses=errors())
async def usage(services: AllServices, tenant: ScoringCaller) -> UsageAnswer:
    """Returns bytes stored, bootstraps and requests by day (UTC), jobs by state, limits."""
    return UsageAnswer.model_validate(await services.usage.report(tenant))
