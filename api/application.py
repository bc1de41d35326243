"""The FastAPI application, with OpenTelemetry traces if they are asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.routing import BaseRoute, Route

from cloakwork.api.http.error_answers import add_handlers
from cloakwork.api.http.gate import Gate
from cloakwork.api.http.middleware import ServiceMiddleware
from cloakwork.api.http.observer import ClientAddresses, Observer
from cloakwork.api.http.route_names import Methods, RouteNames, answer_head
from cloakwork.api.routes import administration, health, inference, jobs, keys, models
from cloakwork.api.routes.examples import add_examples, add_links
from cloakwork.api.routes.page import page_router, read_page
from cloakwork.api.service.services import Services
from cloakwork.api.settings import release
from cloakwork.fhe_core.errors import ParameterError, how_to_install

_DESCRIPTION = "Machine-learning inference on encrypted data. Names follow the Open Inference Protocol v2. HEAD is answered where GET is."


def instrument(app: FastAPI) -> None:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ParameterError(f"telemetry needs the extra 'telemetry'; {how_to_install('telemetry')}") from None
    provider = TracerProvider(resource=Resource.create({"service.name": "cloakwork"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    FastAPIInstrumentor.instrument_app(app, tracer_provider=provider, excluded_urls="health,metrics,livez,readyz")


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
    routers = [
        inference.router,  # the frequent one is found first
        health.router,
        models.router,
        models.repository_router,
        keys.router,
        jobs.router,
        jobs.usage_router,
        administration.router,
    ]
    if not settings.serves:
        routers = [health.router]
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
