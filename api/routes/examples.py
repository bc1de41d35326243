"""Examples of answers, by the name of their schema, and links to the operations that take their identifiers. A test reads each example."""

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
_DIGEST: Final = "9f2c" * 16
_KEY: Final = "5b0e" * 8
_JOB: Final = "c41d" * 8
_BEGUN: Final = 1764320400.0
_SET: Final = "lut4"
_KEY_ANSWER: Final[dict[str, Any]] = {
    "id": _KEY,
    "parameter_set": _SET,
    "parameter_set_digest": _DIGEST,
    "sha256": _DIGEST,
    "bytes": 35966880,
    "offset": 35966880,
    "state": "ready",
    "created_at": _BEGUN,
    "used_at": _BEGUN + 60,
}
_JOB_ANSWER: Final[dict[str, Any]] = {
    "id": _JOB,
    "state": "running",
    "model": "mnist-mlp-1x30",
    "version": "1",
    "key": _KEY,
    "samples": 10,
    "bootstraps": 300,
    "priority": 5,
    "attempts": 1,
    "created_at": _BEGUN,
    "deadline_at": None,
    "started_at": _BEGUN + 1,
    "finished_at": None,
    "run_seconds": None,
    "progress": {"done": 120, "total": 300, "eta_seconds": 1.5},
    "result_bytes": None,
    "result_sha256": None,
    "error": None,
}
_LIMITS: Final = {"bytes": 4294967296, "bootstraps_per_day": 100000000, "answers_per_day": 1000000, "queue": 200}
_STORED: Final = {"keys": 35966880, "inputs": 12304, "results": 8192, "expected_results": 8192}
_COUNTS: Final = {"requests": 12, "samples": 120, "bootstraps": 3600, "uploaded_bytes": 35966880}
_STATES: Final = {"queued": 0, "running": 1, "done": 4, "failed": 0, "cancelled": 0}
_MODEL: Final = {"name": "mnist-mlp-1x30", "version": "1"}
EXAMPLES: Final[dict[str, Any]] = {
    "ServerMetadata": {
        "name": "cloakwork",
        "version": "0.2.0",
        "extensions": ["model_repository", "binary_tensor_data", "fhe"],
    },
    "Health": {"status": "ready"},
    "ModelList": {"models": ["iris-tree", "mnist-mlp-1x30"]},
    "ModelMetadata": {
        "name": "mnist-mlp-1x30",
        "versions": ["1"],
        "platform": "cloakwork",
        "inputs": [{"name": "ciphertexts", "datatype": "UINT8", "shape": [-1]}],
        "outputs": [{"name": "results", "datatype": "UINT8", "shape": [-1]}],
        "parameters": {"fhe": {"parameter_set": _SET, "parameter_digest": _DIGEST, "bootstraps": 30}},
    },
    "ModelReady": {**_MODEL, "ready": True},
    "RepositoryEntry": {**_MODEL, "state": "READY", "reason": ""},
    "RepositoryAnswer": {"name": "mnist-mlp-1x30", "versions": ["1"]},
    "RepositoryUpload": {**_MODEL, "state": "READY", "reason": "", "bytes": 61440, "sha256": _DIGEST},
    "KeyAnswer": _KEY_ANSWER,
    "KeyList": {"keys": [_KEY_ANSWER]},
    "JobAnswer": _JOB_ANSWER,
    "JobList": {"jobs": [_JOB_ANSWER]},
    "UsageAnswer": {
        "tenant": "alice",
        "bytes_stored": {**_STORED, "total": sum(_STORED.values())},
        "bootstraps_today": 3600,
        "answers_today": {"mnist-mlp-1x30": 120},
        "days": [{"day": "2026-11-28", **_COUNTS}],
        "jobs": {"done": 4, "running": 1},
        "limits": _LIMITS,
    },
    "LoadAnswer": {
        "version": "0.2.0",
        "service": "7d20" * 8,
        "uptime_seconds": 86400.0,
        "engine": {
            "answers": True,
            "restarts": 0,
            "devices": ["cpu"],
            "workers": 2,
            "processes": [
                {"name": "cpu", "answers": True, "process": 4711, "restarts": 0, "workers": 2, "running": 1},
            ],
        },
        "queue": {"waiting": 0, "limit": 1000, "seconds": 0.4},
        "nodes": [],
        "runs": [
            {
                "id": _JOB,
                "kind": "job",
                "tenant": "alice",
                "model": "mnist-mlp-1x30",
                "version": "1",
                "parameter_set": _SET,
                "samples": 10,
                "priority": 5,
                "waited_seconds": 1.0,
                "seconds": 0.8,
                "estimated_seconds": 2.0,
                "device": "cpu",
            }
        ],
        "jobs": _STATES,
        "keys": {
            "resident": 1,
            "memory_bytes": 35966880,
            "memory_limit_bytes": 1073741824,
            "device_bytes": 136314880,
            "device_limit_bytes": 4294967296,
            "hits": 11,
            "misses": 1,
        },
        "connections": {"open": 3, "busy": 1, "limit": 512},
        "bodies": {"held_bytes": 0, "limit_bytes": 268435456},
        "disk": {"free_bytes": 53687091200, "room_bytes": 53418655744, "reserve_bytes": 268435456},
        "requests": {"step_seconds": 10, "requests": [3, 5], "refused": [0, 1], "failed": [0, 0], "codes": {"busy": 1}},
    },
    "ModelRows": {
        "models": [
            {
                **_MODEL,
                "state": "loaded",
                "reason": "",
                "parameter_set": _SET,
                "bootstraps": 30,
                "runs": 12,
                "samples": 120,
                "run_seconds": 9.6,
            }
        ],
        "next": None,
    },
    "TenantRows": {
        "tenants": [
            {
                "tenant": "alice",
                "created_at": _BEGUN,
                "models": None,
                "max_bytes": None,
                "max_bootstraps_per_day": None,
                "max_queue": None,
                "max_answers_per_day": None,
                "suspended": False,
                "limits": _LIMITS,
                "bytes_stored": _STORED,
                "today": _COUNTS,
                "most_answers_today": 120,
                "waiting": 0,
                "api_keys": 1,
            }
        ],
        "next": None,
    },
    "ApiKeyRows": {
        "api_keys": [
            {
                "id": "5b0e5b0e5b0e5b0e",
                "tenant": "alice",
                "scopes": ["score"],
                "state": "valid",
                "created_at": _BEGUN,
                "expires_at": None,
                "revoked_at": None,
            }
        ],
        "next": None,
    },
    "KeyRows": {
        "keys": [
            {
                "id": _KEY,
                "tenant": "alice",
                "parameter_set": _SET,
                "bytes": 35966880,
                "state": "ready",
                "created_at": _BEGUN,
                "used_at": _BEGUN + 60,
                "expires_at": _BEGUN + 60 + 90 * 86400,
                "resident": True,
            }
        ],
        "next": None,
    },
    "JobRows": {
        "jobs": [
            {
                **{name: value for name, value in _JOB_ANSWER.items() if name not in ("result_sha256", "error")},
                "tenant": "alice",
                "input_bytes": 12304,
                "progress": {"done": 120, "total": 300},
                "error_code": None,
            }
        ],
        "next": None,
    },
    "ErrorBody": {
        "error": "there is no model 'mnist'; GET /v2/models lists them",
        "code": "unknown_model",
        "request_id": "1f3a" * 8,
    },
}
_TEXTS: Final = {
    "text/plain": 'fhe_requests_total{code="200",model="mnist-mlp-1x30"} 12.0\n',
    "text/event-stream": 'event: progress\ndata: {"done":120,"total":300,"eta_seconds":1.5}\n\n',
}
_LIVE: Final = "/v2/health/live"


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


def add_examples(schema: dict[str, Any]) -> None:
    """Adds examples to every answer in JSON or text, except what is a file of its own."""
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            for response in operation["responses"].values():
                for kind, content in response.get("content", {}).items():
                    example = _TEXTS.get(kind, _of(content.get("schema", {})))
                    if example is not None:
                        content["example"] = {"status": "live"} if path == _LIVE and "status" in example else example


def _of(schema: dict[str, Any]) -> Any:
    if schema.get("type") == "array":
        each = _of(schema["items"])
        return None if each is None else [each]
    return EXAMPLES.get(schema.get("$ref", "").rpartition("/")[2])
