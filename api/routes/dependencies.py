"""Dependencies of routes: the services, and the caller; OpenAPI beyond their signatures."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer

from cloakwork.api.http.connections import Connection
from cloakwork.api.http.gate import bearer_token
from cloakwork.api.routes.schemas import ErrorBody
from cloakwork.api.service.administration.actions import Administrator
from cloakwork.api.service.models.models import TenantModels
from cloakwork.api.service.services import Services
from cloakwork.api.service.tenants.tenants import LOCAL_TENANT, NAME_PATTERN, SCOPES, VERSION_PATTERN, Tenant

BINARY = "application/octet-stream"

_DESCRIPTIONS = {
    400: "The request cannot be understood",
    401: "No valid API key",
    403: "The API key lacks a scope, or a page of another site asks",
    404: "There is no such object",
    405: "The route has no such method",
    408: "The body stopped coming, or came too slowly",
    409: "The object's state, or another parameter set, does not allow this",
    410: "Retired, or past its retention",
    411: "The body has no Content-Length",
    413: "Larger than anything that the route takes",
    415: "The body is compressed, or in a form that is not taken",
    416: "Range asks for bytes that there are not",
    422: "Malformed",
    428: "Evaluation keys are needed first",
    429: "Over a limit; see Retry-After",
    431: "The header is too large",
    499: "Cancelled",
    500: "The storage has lost or damaged what the service kept there",
    503: "The engine or the database does not answer, or there are too many connections; see Retry-After",
    507: "The device's memory, or the storage, does not suffice",
}

Responses = dict[int | str, dict[str, Any]]
_LOCAL = Tenant(LOCAL_TENANT, frozenset(SCOPES))
# For the schema; `authenticated` reads the header.
_bearer = HTTPBearer(auto_error=False, scheme_name="api_key", description="An API key as bearer token.")
ModelName = Annotated[str, Path(pattern=NAME_PATTERN, description="A model's name.", examples=["mnist-mlp-1x30"])]
ModelVersion = Annotated[str, Path(pattern=VERSION_PATTERN, description="A version of it.", examples=["1"])]
Identity = Annotated[
    str,
    Path(pattern="^[0-9a-f]{32}$", description="An identifier that the service gave.", examples=["c41d" * 8]),
]


def errors(*codes: int, anonymous: bool = False) -> Responses:
    """Returns the answers of 400 and above. Every route has those about headers and pages; one that asks for an API key, also about it and small
    bodies."""
    every = {*codes, 400, 403, 415, 431, 503} if anonymous else {*codes, 400, 401, 403, 408, 413, 415, 422, 431, 503}
    return {code: {"model": ErrorBody, "description": _DESCRIPTIONS[code]} for code in sorted(every)}


def binary_request(description: str) -> dict[str, Any]:
    schema = {"type": "string", "format": "binary"}
    return {"requestBody": {"required": True, "description": description, "content": {BINARY: {"schema": schema}}}}


def binary_response(description: str) -> dict[str, Any]:
    return {"description": description, "content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}}


async def services_of(request: Request) -> Services:  # async: FastAPI would run it on a thread otherwise
    services: Services = request.app.state.services
    return services


AllServices = Annotated[Services, Depends(services_of)]


async def authenticated(request: Request, services: Services) -> Tenant:
    """Returns the tenant that sends the request; the connection counts as theirs from now on.

    Raises:
        UnauthorisedError, TooManyConnectionsError.
    """
    if services.settings.insecure_local:
        return _LOCAL
    tenant = await services.tenants.authenticate(bearer_token(request.scope["headers"]))
    request.state.tenant = tenant.name
    connection: Connection | None = getattr(request.state, "connection", None)
    if connection is not None:
        connection.register.claim(connection, tenant.name)
    return tenant


async def caller(request: Request, services: AllServices, _: Annotated[object, Depends(_bearer)]) -> Tenant:
    return await authenticated(request, services)


async def scoring_caller(tenant: Annotated[Tenant, Depends(caller)]) -> Tenant:
    tenant.require("score")
    return tenant


async def reading_caller(tenant: Annotated[Tenant, Depends(caller)]) -> Tenant:
    """Returns the caller if they may read models: those who score with them, or manage them."""
    tenant.require("score", "models")
    return tenant


async def visible_models(services: AllServices, tenant: Annotated[Tenant, Depends(reading_caller)]) -> TenantModels:
    return services.models.of(tenant)


async def managing_caller(tenant: Annotated[Tenant, Depends(caller)]) -> Tenant:
    tenant.require("models")
    return tenant


async def administrator(request: Request, tenant: Annotated[Tenant, Depends(caller)]) -> Administrator:
    tenant.require("admin")
    return Administrator(tenant.name, tenant.api_key, request.state.request_id)


ScoringCaller = Annotated[Tenant, Depends(scoring_caller)]
ManagingCaller = Annotated[Tenant, Depends(managing_caller)]
AdministratingCaller = Annotated[Administrator, Depends(administrator)]
VisibleModels = Annotated[TenantModels, Depends(visible_models)]
