"""The client of web/ in Node and its page in Chromium, as `make web` builds them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from page_visits import MODELS, PATIENCE_MS, PHOTOGRAPHS, TREE, Opened, colour_reader, with_models
from requirements import needs
from scoring_server import Server, new_tenant, running, toy_model

from cloakwork.api.http.page_content import FOLDER

WEB = Path(__file__).parents[2] / "web"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NODE = shutil.which("node")


@pytest.fixture(scope="session")
def web() -> Path:
    """The folder of the package."""
    needs(NODE, "node is not installed: the client for browsers cannot be run")
    missing = [name for name in ("dist/browser.js", "dist/client.wasm", "node_modules") if not (WEB / name).exists()]
    needs(not missing, f"web/{''.join(missing[:1])} is not built: run 'make web'")
    return WEB


@pytest.fixture
def party(web: Path) -> Callable[..., None]:
    """party("keys+encrypt", folder): steps of the client in a process of its own."""

    def run(*arguments: str | Path) -> None:
        assert NODE is not None
        done = subprocess.run(
            [NODE, str(web / "test" / "party.mjs"), *map(str, arguments)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="module")  # while it runs, nothing else of this thread uses asyncio
def browser() -> Iterator[Any]:
    needs(find_spec("playwright"), "playwright is not installed")
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    needs(program, f"no browser: install one of {', '.join(BROWSERS)}")
    needs((FOLDER / "worker.js").exists(), "the page is not built: run 'make web' and install again")
    with sync_playwright() as started:
        # Chromium refuses its sandbox to root, as whom CI runs; it opens nothing but our own page.
        launched = started.chromium.launch(executable_path=program, chromium_sandbox=os.geteuid() != 0)
        yield launched
        launched.close()


def beside(work: Callable[[], Any]) -> Any:
    """Its answer, from a thread: while a browser runs, Playwright's event loop is that of this thread."""
    with ThreadPoolExecutor() as pool:
        return pool.submit(work).result()


@pytest.fixture(scope="session")
def page_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service of whoever changes none of its settings: models of the zoo, one that needs structured keys, those of test_page_forms."""
    data = with_models(tmp_path_factory.mktemp("pages") / "data", *MODELS)
    (data / "models" / PHOTOGRAPHS).mkdir()
    colour_reader().save(data / "models" / PHOTOGRAPHS / "1.clkm")
    with running(data) as started:
        yield started


@pytest.fixture(scope="module")
def server(page_server: Server) -> Server:
    return page_server


@pytest.fixture(scope="session")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that asks for an API key, with a toy model and the tree; there is a tenant."""
    data = with_models(tmp_path_factory.mktemp("guarded") / "data", TREE)
    (data / "models" / "toy").mkdir()
    toy_model().save(data / "models" / "toy" / "1.clkm")
    beside(partial(new_tenant, data, "first"))
    with running(data, insecure=False) as started:
        yield started


@pytest.fixture
def opened(browser: Any, server: Server) -> Iterator[Opened]:
    """opened(path, of=the module's server, beside=a page, **options of the window): a page that asks nothing of others and breaks no rule
    of its policy; `beside` another one it is a tab of the same browser, and has its storage. `opened.problems`: what was asked or broken."""
    contexts: list[Any] = []
    problems: list[str] = []

    def open_page(path: str = "/", of: Server = server, beside: Any = None, **options: Any) -> Any:
        context = browser.new_context(**options) if beside is None else beside.context
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: "Content Security Policy" in line.text and problems.append(line.text))
        page.on(
            "request",
            lambda each: each.url.startswith((of.url, "data:", "about:", "blob:")) or problems.append(each.url),
        )
        page.goto(of.url + path)
        return page

    open_page.problems = problems  # type: ignore[attr-defined]
    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
