"""HTTP as RFC 9110 and 9112 have it: HEAD, Allow, ranges, targets in absolute form, headers that may come once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from in_process import LocalServer, serving
from scoring_server import User, becomes, new_tenant
from sockets import ask

NOBODY = "0" * 32


@pytest.fixture(scope="module")
def result(server: LocalServer) -> str:
    """The path of a job's result."""
    with server.client() as http:
        user = User.of(http)
        user.upload()
        job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
        assert becomes(lambda: http.get(f"/v2/jobs/{job}").json()["state"], "done")
        return f"/v2/jobs/{job}/result"


def test_head_is_answered_where_get_is(http: httpx.Client, result: str):
    job = result.removesuffix("/result")
    paths = [path for path, methods in http.get("/openapi.json").json()["paths"].items() if "get" in methods]
    key = http.get("/v2/keys").json()["keys"][0]["id"]
    known = {"{model}": "toy", "{version}": "1", "/v2/jobs/{job}": job, "{key}": key}
    for template in [*paths, "/", "/docs", "/admin", "/livez", "/readyz", "/openapi.json"]:
        path = template
        for name, value in known.items():
            path = path.replace(name, value)
        head, get = http.head(path), http.get(path)
        assert head.status_code == get.status_code == 200 and head.content == b"", path
        if path.startswith("/v2/keys/"):
            continue  # which says how far an upload is
        assert head.headers["content-type"] == get.headers["content-type"], path
        if path not in ("/metrics", "/v2/admin/load", f"{job}/events"):  # whose length is another each time, or unknown
            assert head.headers.get("content-length") == get.headers.get("content-length"), path
    assert http.head(f"/v2/jobs/{NOBODY}").status_code == 404
    assert http.head("/v2/models/toy/infer").status_code == 405


def test_allow_lists_what_the_path_takes(http: httpx.Client):
    """By what OpenAPI says of it."""
    for path, described in http.get("/openapi.json").json()["paths"].items():
        asked = re.sub(r"\{(key|job)\}", NOBODY, path).replace("{model}", "toy").replace("{version}", "1")
        asked = asked.replace("{tenant}", "alice").replace("{api_key}", NOBODY[:16])
        methods = {method.upper() for method in described} | ({"HEAD"} if "get" in described else set())
        answer = http.request("TRACE", asked)
        assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed"), path
        assert set(answer.headers["allow"].split(", ")) == methods, path
        assert answer.json()["error"] == f"this address takes {answer.headers['allow']}"
    nowhere = http.get("/v2/nothing")
    assert nowhere.status_code == 404 and "/openapi.json lists" in nowhere.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", "/v2/jobs/UPPER", r"path job: expected text of the form \^\[0-9a-f\]"),
        ("POST", "/v2/models/toy/jobs?deadline_seconds=soon", r"query deadline_seconds: expected a valid number"),
        ("POST", "/v2/keys", "body .*: expected, but it is missing"),
    ],
)
def test_what_is_malformed_is_named_in_words(http: httpx.Client, method: str, path: str, says: str):
    answer = http.request(method, path, json={} if method == "POST" else None)
    assert (answer.status_code, answer.json()["code"]) == (422, "malformed")
    assert re.match(says, answer.json()["error"]), answer.json()["error"]
    assert "should" not in answer.json()["error"] and "UPPER" not in answer.json()["error"]


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ("bytes=0-9", 206),
        ("bytes=-5", 206),
        ("bytes=3-", 206),
        ("bytes=0-1, 4-5", 206),
        ("items=0-5", 200),
        ("bytes=99999999-", 416),
        ("bytes=-0", 416),
        ("bytes=5-2", 400),
        ("bytes=a-b", 400),
        ("bytes=", 400),
        ("bytes=-", 400),
        ("bytes", 400),
    ],
)
def test_ranges(http: httpx.Client, result: str, wanted: str, status: int):
    whole = http.get(result)
    answer = http.get(result, headers={"Range": wanted})
    assert answer.status_code == status
    if status == 200:
        assert answer.content == whole.content
    if status >= 400:
        codes = {400: "bad_request", 416: "range_not_satisfiable"}
        assert answer.json()["code"] == codes[status] and answer.json()["request_id"] == answer.headers["x-request-id"]
    if status == 416:
        assert answer.headers["content-range"] == f"bytes */{len(whole.content)}"


def test_a_part_is_of_the_version_that_was_meant(http: httpx.Client, result: str):
    etag = http.head(result).headers["etag"]
    assert http.get(result, headers={"Range": "bytes=0-9", "If-Range": etag}).status_code == 206
    assert http.get(result, headers={"Range": "bytes=0-9", "If-Range": '"another"'}).status_code == 200
    assert http.get(result, headers={"Range": "bytes=a-b", "If-Range": '"another"'}).status_code == 200


@pytest.mark.parametrize("path", ["/v2/models", "/v2/models/toy?x=1", "/v2/health/live", ""])
def test_targets_in_absolute_form_are_those_of_their_path(server: LocalServer, path: str):
    here = f"127.0.0.1:{server.port}"
    for target in (f"http://{here}{path}", f"HTTP://localhost{path}"):
        answer = ask(server, f"GET {target} HTTP/1.1\r\nHost: {here}\r\nConnection: close\r\n\r\n".encode())
        assert answer.status == 200, (target, answer)


def test_the_host_of_an_absolute_target_counts(server: LocalServer):
    """Or a page could reach the service under a name of its own."""
    head = f"GET http://evil.example/v2/models HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    assert ask(server, head.encode()).status == 403


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], Path]
) -> Iterator[tuple[LocalServer, str]]:
    data = fill(tmp_path_factory.mktemp("guarded") / "data")
    token = new_tenant(data, "alice")
    with serving(data, insecure=False) as server:
        yield server, token


@pytest.mark.parametrize("second", ["Bearer cw_x", None])
def test_two_api_keys_are_none(guarded: tuple[LocalServer, str], second: str | None):
    server, token = guarded
    with server.client() as http:
        own = f"Bearer {token}"
        assert http.get("/v2/usage", headers={"Authorization": own}).status_code == 200
        answer = http.get("/v2/usage", headers=[("Authorization", own), ("Authorization", second or own)])
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize("name", ["Idempotency-Key", "Fhe-Key-Id", "Content-Type"])
def test_other_headers_that_come_once(http: httpx.Client, name: str):
    answer = http.post("/v2/models/toy/jobs", content=b"x", headers=[(name, NOBODY), (name, "1" * 32)])
    assert answer.status_code == 400 and name in json.loads(answer.text)["error"]
