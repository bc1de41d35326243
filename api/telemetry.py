"""OpenTelemetry traces (extra `telemetry`): one span for each request, without bodies. OTEL_* variables say where they go."""

from __future__ import annotations

from fastapi import FastAPI

from cloakwork.fhe_core.errors import ParameterError, how_to_install


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
