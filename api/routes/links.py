"""OpenAPI's links: which operations take the identifiers that an answer gives.

One table says what each answer gives; the links follow from the parameters of the operations. Answers for administrators lead to operations for
administrators, others to others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_ADMIN: Final = "/v2/admin/"
_BODY: Final = "$response.body#"
_VERSION: Final = dict.fromkeys(("path.version", "query.version"), f"{_BODY}/version")
_ONE_VERSION: Final = {"path.model": f"{_BODY}/name", **_VERSION}
_VERSIONS: Final = {"path.model": f"{_BODY}/name", "path.version": f"{_BODY}/versions/0"}

GIVES: Final[dict[str, dict[str, str]]] = {
    "ModelList": {"path.model": f"{_BODY}/models/0"},
    "ModelMetadata": _VERSIONS,
    "ModelReady": _ONE_VERSION,
    "RepositoryAnswer": _VERSIONS,
    "RepositoryUpload": _ONE_VERSION,
    "KeyAnswer": {
        "path.key": f"{_BODY}/id",
        "header.upload-offset": f"{_BODY}/offset",
        "header.Fhe-Key-Id": f"{_BODY}/id",
    },
    "KeyList": {"path.key": f"{_BODY}/keys/0/id", "header.Fhe-Key-Id": f"{_BODY}/keys/0/id"},
    "JobAnswer": {"path.job": f"{_BODY}/id"},
    "JobList": {"path.job": f"{_BODY}/jobs/0/id"},
    "ModelRows": {"path.model": f"{_BODY}/models/0/name"},
    "TenantRows": dict.fromkeys(("path.tenant", "query.tenant"), f"{_BODY}/tenants/0/tenant"),
    "ApiKeyRows": {"path.api_key": f"{_BODY}/api_keys/0/id", "path.tenant": f"{_BODY}/api_keys/0/tenant"},
    "KeyRows": {"path.key": f"{_BODY}/keys/0/id", "path.tenant": f"{_BODY}/keys/0/tenant"},
    "JobRows": {"path.job": f"{_BODY}/jobs/0/id", "path.tenant": f"{_BODY}/jobs/0/tenant"},
}
"""Where an answer of this schema has the value of a parameter, as a runtime expression."""

_OFFSET: Final = {"path.key": "$request.path.key", "header.upload-offset": "$response.header.Upload-Offset"}


def add_links(schema: dict[str, Any]) -> None:
    """Add to each answer of 200 to 206 the operations that it leads to, by their `operationId`."""
    operations = list(_operations(schema))
    for path, method, operation in operations:
        for status, response in operation["responses"].items():
            links = _links(path, method, operation, response, operations) if status.startswith("2") else {}
            if links:
                response["links"] = links


def _operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def _links(
    path: str,
    method: str,
    operation: dict[str, Any],
    response: dict[str, Any],
    operations: list[tuple[str, str, dict[str, Any]]],
) -> dict[str, Any]:
    schema = _schema_name(response)
    given = _OFFSET if method == "head" else GIVES.get(schema, {})
    links = {}
    for other, verb, target in operations:
        parameters = _parameters(target, given, {"path.version"} if verb == "put" else set())
        if parameters and target is not operation and _leads(path, other):
            links[target["operationId"]] = {"operationId": target["operationId"], "parameters": parameters}
    if schema.endswith("Rows"):
        links["next"] = {"operationId": operation["operationId"], "parameters": {"query.after": f"{_BODY}/next"}}
    return links


def _leads(path: str, other: str) -> bool:
    """What is unloaded answers nothing until it is loaded."""
    return path.startswith(_ADMIN) == other.startswith(_ADMIN) and (
        not path.endswith("/unload") or other.endswith("/load")
    )


def _schema_name(response: dict[str, Any]) -> str:
    content = response.get("content", {}).get("application/json", {})
    return str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]


def _parameters(target: dict[str, Any], given: dict[str, str], chosen: set[str]) -> dict[str, str]:
    """Returns the parameters that are given, but those that the client chooses; none if a part of the path is not given: it would be another
    object's."""
    names = [f"{each['in']}.{each['name']}" for each in target.get("parameters", [])]
    kept = {name: given[name] for name in names if name in given and name not in chosen}
    of_path = [name for name in names if name.startswith("path.") and name not in chosen]
    return {} if 0 < sum(name in kept for name in of_path) < len(of_path) else kept
