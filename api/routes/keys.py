"""Evaluation keys: announced, sent in as many parts as it takes, listed, deleted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from cloakwork.api.errors import TooLargeError
from cloakwork.api.http.bodies import chunks, content_length
from cloakwork.api.routes.dependencies import AllServices, Identity, ScoringCaller, binary_request, errors
from cloakwork.api.routes.schemas import KeyAnnouncement, KeyAnswer, KeyList
from cloakwork.api.service.keys.keys import KeyRecord
from cloakwork.api.service.keys.uploads import Progress

router = APIRouter(tags=["keys"])

_OFFSET_HEADERS = {
    "Upload-Offset": {"description": "Bytes that are here", "schema": {"type": "integer"}},
    "Upload-Length": {"description": "Bytes of the whole", "schema": {"type": "integer"}},
}


@router.post(
    "/v2/keys",
    status_code=201,
    responses={
        200: {"model": KeyAnswer, "description": "It was announced before; nothing more is sent when it is ready"},
        **errors(409, 413, 429, 507),
    },
)
async def announce(
    announcement: KeyAnnouncement, services: AllServices, tenant: ScoringCaller, response: Response
) -> KeyAnswer:
    """Opens an upload. Keys belong to the tenant and the parameter set: one upload serves every model with that set. Who makes them while they
    are sent leaves out `sha256`."""
    progress, new = await services.uploads.open(
        tenant, announcement.parameter_set_digest, announcement.bytes, announcement.sha256
    )
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v2/keys/{progress.record.id}"
    response.headers["Upload-Offset"] = str(progress.offset)
    return _answer(progress)


@router.get("/v2/keys", responses=errors())
async def list_keys(services: AllServices, tenant: ScoringCaller) -> KeyList:
    records = await services.keys.of_tenant(tenant.name)
    return KeyList(keys=[_answer(services.uploads.seen(record)) for record in records])


@router.get("/v2/keys/{key}", responses=errors(404))
async def key(key: Identity, services: AllServices, tenant: ScoringCaller) -> KeyAnswer:
    return _answer(services.uploads.seen(await services.keys.get(tenant.name, key)))


_HEAD: dict[int | str, dict[str, Any]] = {
    200: {"description": "How far the upload is", "headers": _OFFSET_HEADERS},
    **{code: {"description": each["description"]} for code, each in errors(404).items()},
}


@router.head("/v2/keys/{key}", responses=_HEAD, response_class=Response)
async def key_offset(key: Identity, services: AllServices, tenant: ScoringCaller) -> Response:
    progress = services.uploads.seen(await services.keys.get(tenant.name, key))
    return Response(headers={**_offsets(progress), "Cache-Control": "no-store"})


@router.patch(
    "/v2/keys/{key}",
    responses=errors(404, 408, 409, 411, 413, 507),
    openapi_extra=binary_request("The bytes from Upload-Offset on, all that are left or fewer."),
)
async def send_part(
    key: Identity,
    request: Request,
    response: Response,
    services: AllServices,
    tenant: ScoringCaller,
    upload_offset: Annotated[int, Header(ge=0, le=1 << 40, description="Where these bytes belong; HEAD tells.")],
) -> KeyAnswer:
    """Adds bytes. With the last one the key is checked and ready. The answer's `id` is then another one where the tenant had the same content
    already and did not say so at the beginning."""
    record = await services.keys.get(tenant.name, key)
    length = content_length(request)
    if upload_offset + length > record.bytes:
        raise TooLargeError(f"the upload has {record.bytes} bytes; {length} more at {upload_offset} are too many")
    body = chunks(request, length, services.settings.body_idle_seconds)
    progress = await services.uploads.append(record, upload_offset, body)
    response.headers.update(_offsets(progress))
    services.metrics.uploaded.inc(progress.offset - upload_offset)
    return _answer(progress)


@router.delete("/v2/keys/{key}", status_code=204, responses=errors(404))
async def delete_key(key: Identity, services: AllServices, tenant: ScoringCaller) -> None:
    """Deletes the key from the disk, the memory and the devices."""
    await services.uploads.discard(await services.keys.get(tenant.name, key))


def _offsets(progress: Progress) -> dict[str, str]:
    return {"Upload-Offset": str(progress.offset), "Upload-Length": str(progress.record.bytes)}


def _answer(progress: Progress) -> KeyAnswer:
    record: KeyRecord = progress.record
    return KeyAnswer(
        id=record.id,
        parameter_set=record.parameter_set,
        parameter_set_digest=record.parameter_digest,
        sha256=record.sha256,
        bytes=record.bytes,
        offset=progress.offset,
        state="ready" if progress.complete else "open",
        created_at=record.created_at,
        used_at=record.used_at,
    )
