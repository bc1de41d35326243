"""OpenAPI beyond the signatures: errors of a route, and bodies that are no JSON."""

from __future__ import annotations

from typing import Any

from cloakwork.api.routes.schemas import ErrorBody

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
