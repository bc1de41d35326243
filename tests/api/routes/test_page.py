"""The page's files over HTTP: headers, caching, names that are no files, and a service without them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from in_process import serving
from scoring_server import Server

from cloakwork.api.routes.page import PageFile, page_router, read_page

FILES = {
    "index.html": b"<p>page",
    "docs.html": b"<p>docs",
    "admin.html": b"<p>admin",
    "app.js": b"1",
    "page.css": b"p{}",
    "client.wasm": b"\0asm",
}


@pytest.fixture
def files(tmp_path: Path) -> Mapping[str, PageFile]:
    (tmp_path / "page").mkdir()
    for name, content in {**FILES, "secret.key": b"no"}.items():
        (tmp_path / "page" / name).write_bytes(content)
    (tmp_path / "outside.js").write_bytes(b"no")
    return read_page(tmp_path / "page")


def get(files: Mapping[str, PageFile], path: str, admin: bool = True, **headers: str) -> httpx.Response:
    app = FastAPI(docs_url=None)
    app.include_router(page_router(files, admin))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as http:
            return await http.get(path, headers=headers)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("path", "name", "media_type"),
    [
        ("/", "index.html", "text/html; charset=utf-8"),
        ("/docs", "docs.html", "text/html; charset=utf-8"),
        ("/admin", "admin.html", "text/html; charset=utf-8"),
        ("/page/app.js", "app.js", "text/javascript; charset=utf-8"),
        ("/page/page.css", "page.css", "text/css; charset=utf-8"),
        ("/page/client.wasm", "client.wasm", "application/wasm"),
    ],
)
def test_a_file_comes_with_its_type_and_a_strict_policy(
    files: Mapping[str, PageFile], path: str, name: str, media_type: str
):
    answer = get(files, path)
    assert (answer.status_code, answer.content) == (200, FILES[name])
    assert answer.headers["content-type"] == media_type
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[0] == "default-src 'none'" and "script-src 'self' 'wasm-unsafe-eval'" in policy
    assert not [each for each in policy if "unsafe-inline" in each or "http" in each or "*" in each]
    again = get(files, path, **{"If-None-Match": f'W/"0", {answer.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"") and again.headers["cache-control"] == "no-cache"


def test_only_files_of_the_page_have_names(files: Mapping[str, PageFile]):
    assert set(files) == set(FILES)


@pytest.mark.parametrize(
    "path", ["/page/../outside.js", "/page/..%2foutside.js", "/page/%2e%2e/outside.js", "/page/", "/page/secret.key"]
)
def test_other_names_lead_nowhere(server: Server, path: str):
    with server.client() as http:
        answer = http.get(httpx.URL(http.base_url).copy_with(raw_path=path.encode()))
    assert answer.status_code == 404, answer.text


def test_a_service_without_the_administrators_page(files: Mapping[str, PageFile]):
    assert [get(files, path, admin=False).status_code for path in ("/", "/docs", "/admin")] == [200, 200, 404]
    assert [get(files, "/page/admin.html", admin=shown).status_code for shown in (True, False)] == [200, 404]


def test_the_service_says_how_to_get_a_page_that_was_not_built():
    answer = get({}, "/")
    assert answer.status_code == 200 and "Node" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")


def test_one_policy_and_the_other_headers(server: Server):
    with server.client() as http:
        for path in ("/", "/docs", "/admin", "/v2"):
            headers = http.get(path).headers
            assert len(headers.get_list("content-security-policy")) == 1
            assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


def test_a_link_of_another_site_opens_the_page_and_nothing_else(server: Server):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    with server.client() as http:
        assert [http.get(path, headers=link).status_code for path in ("/", "/docs", "/admin", "/v2")] == [
            200,
            200,
            200,
            403,
        ]
        for change in ({"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Mode": "no-cors"}, {"Origin": "http://evil.example"}):
            assert http.get("/", headers={**link, **change}).status_code == 403
        assert http.post("/", headers=link).status_code == 403
        assert http.get("/", headers={**link, "Host": "evil.example"}).status_code == 403


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("path", "start"), [("/nowhere", "./"), ("/a/b/c", "../../"), ("/a%2Fb/c?d=/e", "../"), ("/page/x", "../")]
)
def test_a_person_reads_that_a_page_is_not_there(server: Server, path: str, start: str):
    with server.client() as http:
        answer = http.get(httpx.URL(http.base_url).copy_with(raw_path=path.encode()), headers=BROWSER)
    assert answer.status_code == 404 and answer.headers["content-type"].startswith("text/html")
    assert f'<a href="{start}">' in answer.text and "no page at this address" in answer.text
    assert "style-src 'self'" in answer.headers["content-security-policy"] and answer.headers["vary"] == "Accept"
    assert answer.headers["x-request-id"] in answer.text


@pytest.mark.parametrize(("path", "headers"), [("/nowhere", {}), ("/nowhere", {"Accept": "*/*"}), ("/v2/no", BROWSER)])
def test_a_program_reads_the_same_as_json(server: Server, path: str, headers: dict[str, str]):
    with server.client() as http:
        answer = http.get(path, headers=headers)
    assert answer.status_code == 404 and answer.json()["code"] == "not_found"


def test_a_service_without_a_page(tmp_path: Path):
    with serving(tmp_path, environment={"PAGE": "false"}) as server, server.client() as http:
        assert [http.get(path).status_code for path in ("/", "/docs", "/admin", "/page/app.js")] == [404] * 4
        assert http.get("/nowhere", headers=BROWSER).json()["code"] == "not_found"
        assert http.get("/openapi.json").status_code == 200
