"""The FastAPI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.routing import BaseRoute, Route

from cloakwork.api.http.client_addresses import ClientAddresses
from cloakwork.api.http.error_answers import add_handlers
from cloakwork.api.http.gate import Gate
from cloakwork.api.http.methods import Methods, answer_head
from cloakwork.api.http.middleware import ServiceMiddleware
from cloakwork.api.http.observer import Observer
from cloakwork.api.http.page_files import read_page
from cloakwork.api.http.route_names import RouteNames
from cloakwork.api.release import release
from cloakwork.api.routes import administration, health, inference, jobs, keys, models, repository, usage
from cloakwork.api.routes.examples import add_examples
from cloakwork.api.routes.links import add_links
from cloakwork.api.routes.page import page_router
from cloakwork.api.service.services import Services

_DESCRIPTION = "Machine-learning inference on encrypted data. Names follow the Open Inference Protocol v2. HEAD is answered where GET is."


def create_app(services: Services) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await services.life.start()
        try:
            yield
        finally:
            await services.life.stop()

    settings = services.settings
    app = FastAPI(
        title="cloakwork",
        version=release(),
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads its scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    modules = (
        inference,
        health,
        models,
        repository,
        keys,
        jobs,
        usage,
        administration,
    )  # the frequent one is found first
    routers = [module.router for module in (modules if settings.serves else (health,))]
    if settings.page and settings.serves:
        routers.append(page_router(read_page(), settings.admin_page))
    for router in routers:
        answer_head(router)
        app.include_router(router)
    routes = [*app.routes, *(route for router in routers for route in router.routes)]
    app.add_middleware(
        ServiceMiddleware,
        gate=Gate(settings, services.tenants),
        error_answer=add_handlers(app, services.metrics, services.disk, Methods(routes)),
        observer=Observer(
            services.metrics, RouteNames(_paths(routes)), ClientAddresses(settings.trusted_proxies.split())
        ),
        tls=settings.tls_certificate is not None,
    )
    _say_what_is_true(app, settings.insecure_local)
    if settings.telemetry:
        from cloakwork.api.telemetry import instrument

        instrument(app)
    return app


def _paths(routes: Iterable[BaseRoute]) -> list[str]:
    return [route.path for route in routes if isinstance(route, Route)]


def _say_what_is_true(app: FastAPI, anonymous: bool) -> None:
    """The schema without the validation answers that FastAPI would add, and without API keys where none are asked for."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        schema = original()
        if anonymous:
            schema.get("components", {}).pop("securitySchemes", None)
        for path in schema["paths"].values():
            for operation in path.values():
                if anonymous:
                    operation.pop("security", None)
        for name in ("HTTPValidationError", "ValidationError"):
            schema.get("components", {}).get("schemas", {}).pop(name, None)
        add_examples(schema)
        add_links(schema)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
