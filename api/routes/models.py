"""Models: lists, metadata, the client specification."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from cloakwork.api.http import tensors
from cloakwork.api.routes.dependencies import AllServices, ModelName, ModelVersion, VisibleModels
from cloakwork.api.routes.documents import errors
from cloakwork.api.routes.schemas import ModelList, ModelMetadata, ModelReady, Tensor
from cloakwork.api.service.models.model import Model
from cloakwork.api.service.services import Services

router = APIRouter(tags=["models"])

_NOT_MODIFIED = 304


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


_SPECIFICATION: dict[int | str, dict[str, Any]] = {
    200: {"description": "The specification", "content": {"application/json": {"schema": {"type": "object"}}}},
    304: {"description": "It is the one whose ETag was sent"},
    **errors(404, 410),
}


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
