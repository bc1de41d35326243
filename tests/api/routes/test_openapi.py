"""The schema is true: schemathesis asks a running server for what the schema says, and for what it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import serving
from scoring_server import User, becomes, new_tenant

from cloakwork.api.routes import administration_schemas, schemas
from cloakwork.api.routes.examples import EXAMPLES, GIVES

CASES = int(os.environ.get("CLOAKWORK_TEST_CASES", "10"))  # for each operation and phase

# Not: positive_data_acceptance (random bytes are no ciphertexts, though the schema cannot say so).
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,"
    "negative_data_rejection,missing_required_header,unsupported_method,ignored_auth"
)


def test_every_route_of_the_surface_is_described(http: httpx.Client):
    paths = http.get("/openapi.json").json()["paths"]
    for path in (
        "/v2",
        "/v2/health/live",
        "/v2/health/ready",
        "/metrics",
        "/v2/models",
        "/v2/repository/index",
        "/v2/repository/models/{model}/load",
        "/v2/repository/models/{model}/unload",
        "/v2/repository/models/{model}/versions/{version}",
        "/v2/models/{model}",
        "/v2/models/{model}/versions/{version}",
        "/v2/models/{model}/versions/{version}/client",
        "/v2/keys",
        "/v2/keys/{key}",
        "/v2/models/{model}/infer",
        "/v2/models/{model}/jobs",
        "/v2/jobs/{job}",
        "/v2/jobs/{job}/events",
        "/v2/jobs/{job}/result",
        "/v2/usage",
        *(f"/v2/admin/{name}" for name in ("load", "models", "tenants", "api-keys", "keys", "jobs")),
        "/v2/admin/models/{model}/load",
        "/v2/admin/models/{model}/unload",
        "/v2/admin/jobs/{job}/cancel",
        "/v2/admin/keys/{key}",
        "/v2/admin/api-keys/{api_key}/revoke",
        "/v2/admin/tenants/{tenant}",
    ):
        assert path in paths, path
    assert http.get("/docs").status_code == 200


def test_every_operation_has_an_example(http: httpx.Client):
    """In its parameters, its body or an answer of 200 to 206."""
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            good = [each for status, each in operation["responses"].items() if status.startswith("2")]
            places = json.dumps([operation.get("parameters"), operation.get("requestBody"), good])
            assert '"example' in places, (method, path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_what_their_schemas_say(name: str):
    model = getattr(schemas if name in vars(schemas) else administration_schemas, name)
    assert model.model_validate(EXAMPLES[name]).model_dump(mode="json") == EXAMPLES[name]


def test_answers_have_the_fields_of_their_examples(http: httpx.Client):
    """Of a service, not of a schema."""
    described = http.get("/openapi.json").json()["paths"]
    for path in ("/v2", "/v2/health/live", "/v2/models", "/v2/usage", "/v2/admin/load", "/v2/admin/models", "/v2/keys"):
        example = described[path]["get"]["responses"]["200"]["content"]["application/json"]["example"]
        assert http.get(path).json().keys() == example.keys(), path


def test_an_answer_of_a_part_is_described(http: httpx.Client):
    responses = http.get("/openapi.json").json()["paths"]["/v2/jobs/{job}/result"]["get"]["responses"]
    assert {"200", "206", "416"} <= responses.keys()


def test_links_lead_from_an_announcement_to_a_result(http: httpx.Client):
    """As a client that knows `operationId`s, and no path, follows them."""
    schema = http.get("/openapi.json").json()
    user = User.of(http)

    def follow(answer: httpx.Response, source: str, target: str, **content: Any) -> httpx.Response:
        link = _operation(schema, source)[2]["responses"][str(answer.status_code)]["links"][target]
        method, path, _ = _operation(schema, link["operationId"])
        values = {name: _value(answer, expression) for name, expression in link["parameters"].items()}
        headers = {name.partition(".")[2]: str(value) for name, value in values.items() if name.startswith("header.")}
        inside = {name.partition(".")[2]: value for name, value in values.items() if name.startswith("path.")}
        return http.request(method, path.format(**{"model": "toy", **inside}), headers=headers, **content)

    announce, send = "announce_v2_keys_post", "send_part_v2_keys__key__patch"
    create, state = "create_job_v2_models__model__jobs_post", "get_job_v2_jobs__job__get"
    ready = follow(http.post("/v2/keys", json=user.announcement()), announce, send, content=user.keys)
    assert ready.json()["state"] == "ready"
    job = follow(ready, send, create, content=user.encrypt()[1])
    assert job.status_code == 202 and job.json()["key"] == ready.json()["id"]
    assert becomes(lambda: follow(job, create, state).json()["state"], "done")
    assert follow(job, create, "job_result_v2_jobs__job__result_get").status_code == 200


def _operation(schema: dict[str, Any], identity: str) -> tuple[str, str, dict[str, Any]]:
    return next(
        (method, path, operation)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
        if operation["operationId"] == identity
    )


def _value(answer: httpx.Response, expression: str) -> Any:
    value = answer.json()
    for part in expression.removeprefix("$response.body#/").split("/"):
        value = value[int(part) if isinstance(value, list) else part]
    return value


def test_links_name_operations_and_parameters_that_there_are(http: httpx.Client):
    schema = http.get("/openapi.json").json()
    every = [operation for operations in schema["paths"].values() for operation in operations.values()]
    links = [
        link
        for operation in every
        for response in operation["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert links
    for link in links:
        target = _operation(schema, link["operationId"])[2]
        assert link["parameters"].keys() <= {f"{each['in']}.{each['name']}" for each in target["parameters"]}
    reached = {link["operationId"] for link in links}
    missed = {each["operationId"] for each in every if "{" in _operation(schema, each["operationId"])[1]} - reached
    assert missed == set()


@pytest.mark.parametrize("name", GIVES)
def test_links_find_their_values_in_examples(name: str):
    for expression in GIVES[name].values():
        assert _value(httpx.Response(200, json=EXAMPLES[name]), expression) is not None


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_schemathesis_finds_nothing(tmp_path: Path, fill: Callable[[Path], Path]):
    """10,000 cases: CLOAKWORK_TEST_CASES=200."""
    data = fill(tmp_path / "data")
    token = new_tenant(data, "tester", "score", "models", "metrics", "priority", "admin")
    other = new_tenant(data, "other")
    with serving(data, insecure=False, environment={"BODY_IDLE_SECONDS": "2"}) as server:
        with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
            user = User.of(http)
            key = user.upload()
            job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
        # Objects that are there, so that requests come further than 404; what would end them for the others is left out.
        known = {"path.model": "toy", "path.version": "1", "path.key": key, "path.job": job}
        known |= {"path.tenant": "other", "path.api_key": other.split("_")[1]}
        lines = ["[parameters]", *(f'"{name}" = "{value}"' for name, value in known.items())]
        (tmp_path / "schemathesis.toml").write_text("\n".join(lines) + "\n")
        result = subprocess.run(
            [
                str(Path(sys.executable).with_name("schemathesis")),
                "run",
                f"{server.url}/openapi.json",
                "--header",
                f"Authorization: Bearer {token}",
                "--checks",
                CHECKS,
                "--phases",
                "examples,coverage,fuzzing",
                "--max-examples",
                str(CASES),
                "--seed",
                "1",
                "--generation-database",
                "none",
                "--request-timeout",
                "60",
                "--exclude-operation-id-regex",
                "^(unload|retire)_",
                "--no-color",
            ],
            capture_output=True,
            text=True,
            timeout=3000,
            cwd=tmp_path,
        )
        (tmp_path / "schemathesis.txt").write_text(result.stdout)
        assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
        with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
            assert http.get("/v2/health/ready").status_code == 200
        assert [line for line in server.log_lines() if line["level"] == "error"] == []
