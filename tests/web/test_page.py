"""The page in a real Chromium, against a real service: a person draws, fills in, forgets a passphrase, loses the connection."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scoring_server import Server, becomes, new_tenant, running

from cloakwork.api.http.page_files import FOLDER
from cloakwork.app.cli.shared.sample_digits import STROKES
from cloakwork.fhe_core.parameters import parameter_set, upload_bytes
from cloakwork.models import zoo

NETWORK, TREE = "mnist-mlp-1x30", "iris-tree"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 60_000
PHONE = {"width": 360, "height": 640}
PART = 4 << 20  # of a key, in one request

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: install one of {', '.join(BROWSERS)}")
    if not (FOLDER / "worker.js").exists():
        pytest.skip("the page is not built: run 'make web' and install again")
    with playwright.sync_playwright() as started:
        # Chromium refuses its sandbox to root, as whom CI runs; it opens nothing but our own page.
        launched = started.chromium.launch(executable_path=found, chromium_sandbox=os.geteuid() != 0)
        yield launched
        launched.close()


def with_models(data: Path) -> Path:
    for name in (NETWORK, TREE):
        (data / "models" / name).mkdir(parents=True)
        zoo.load_model(name).save(data / "models" / name / "1.clkm")
    return data


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(with_models(tmp_path_factory.mktemp("page") / "data")) as started:
        yield started


Opened = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, server: Server) -> Iterator[Opened]:
    """opened(path, of=server, **options of the window): a page that asks nothing of others and breaks no rule of its policy."""
    contexts, problems = [], []

    def open_page(path: str = "/", of: Server = server, **options: Any) -> Any:
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: "Content Security Policy" in line.text and problems.append(line.text))
        page.on("request", lambda each: each.url.startswith((of.url, "data:", "about:")) or problems.append(each.url))
        page.goto(of.url + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def answer_of(page: Any) -> str:
    """Waits for it, or for what went wrong."""
    page.locator("#answer:not([hidden]), #error:not([hidden])").first.wait_for()
    assert page.locator("#error").is_hidden(), page.locator("#error").inner_text()
    return str(page.locator("#label").inner_text())


def ask(page: Any) -> str:
    page.get_by_role("button", name="Encrypt and ask").click()
    return answer_of(page)


def draw(page: Any, digit: int) -> None:
    """With the mouse, through the points of our own strokes (x to 9, y to 12)."""
    page.locator(".board").scroll_into_view_if_needed()
    box = page.locator(".board").bounding_box()
    scale = box["height"] / 18

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return box["x"] + (point[0] + 5) * scale, box["y"] + (point[1] + 3) * scale

    for stroke in STROKES[digit]:
        page.mouse.move(*place(stroke[0]))
        page.mouse.down()
        for point in stroke[1:]:
            page.mouse.move(*place(point), steps=6)
        page.mouse.up()


def test_a_drawn_digit_is_read(opened: Opened, server: Server):
    page = opened()
    draw(page, 3)
    assert ask(page) == "3"
    assert page.locator("#status").inner_text() == "Answered: 3."
    assert page.locator("meter").count() == 10
    assert f"{upload_bytes(parameter_set('lut2')) / 1e6:.1f} MB" in page.locator("#costs").inner_text()
    assert re.match(r"\d+\.\d KB of ciphertexts", page.locator("#sent").inner_text())
    page.get_by_role("button", name="Clear").click()
    draw(page, 7)
    assert ask(page) == "7"
    assert "the server has them" in page.locator("#costs").inner_text()


def test_a_table_is_scored(opened: Opened):
    page = opened()
    page.get_by_label("Ask the model").select_option(TREE)
    for species in ("versicolor", "setosa", "virginica"):
        page.get_by_role("button", name=f"Example: {species}").click()
        assert ask(page) == species
    page.get_by_label("petal width").fill("99")
    page.get_by_role("button", name="Encrypt and ask").click()
    assert page.get_by_role("alert").inner_text() == "petal width (cm): a number from 0.1 to 2.5 is needed."


def test_a_wrong_passphrase_opens_nothing(opened: Opened):
    page = opened()
    page.get_by_label("Ask the model").select_option(TREE)
    page.get_by_text("Keys", exact=True).click()
    page.get_by_label("Passphrase").fill("right")
    assert ask(page) == "setosa"
    page.reload()
    page.get_by_label("Ask the model").select_option(TREE)
    page.get_by_text("Keys", exact=True).click()
    page.get_by_label("Passphrase").fill("wrong")
    page.get_by_role("button", name="Encrypt and ask").click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text().startswith("The passphrase is wrong")
    page.get_by_label("Passphrase").fill("right")
    assert ask(page) == "setosa"
    assert "the server has them" in page.locator("#costs").inner_text()


def test_a_phone_a_dark_screen_and_a_keyboard(opened: Opened):
    page = opened(viewport=PHONE, has_touch=True, color_scheme="dark")
    page.wait_for_selector(".board")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    page.get_by_role("button", name="Sample digit 5").press("Enter")
    page.get_by_role("button", name="Encrypt and ask").press("Enter")
    assert answer_of(page) == "5"
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_an_upload_that_is_cut_off_goes_on_where_it_stopped(opened: Opened):
    page = opened()
    page.wait_for_selector(".board")
    sent: list[int] = []

    def cut(route: Any) -> None:
        if route.request.method == "PATCH":
            sent.append(int(route.request.headers["upload-offset"]))
            if len(sent) == 2:
                route.abort("connectionreset")
                return
        route.continue_()

    page.context.route("**/v2/keys/*", cut)
    page.get_by_role("button", name="Sample digit 1").click()
    assert ask(page) == "1"
    assert sent[:4] == [0, PART, PART, 2 * PART]


def test_keys_that_end_with_the_page_leave_the_server_with_it(opened: Opened, server: Server):
    with server.client() as http:

        def keys() -> set[str]:
            return {key["id"] for key in http.get("/v2/keys").json()["keys"]}

        before = keys()
        page = opened()
        page.get_by_label("Ask the model").select_option(TREE)
        assert ask(page) == "setosa" and len(keys() - before) == 1
        page.goto("about:blank")
        assert becomes(lambda: keys() <= before, True)


def test_an_api_key_is_asked_for(opened: Opened, tmp_path: Path):
    data = tmp_path / "data"
    (data / "models" / TREE).mkdir(parents=True)
    zoo.load_model(TREE).save(data / "models" / TREE / "1.clkm")
    with ThreadPoolExecutor() as beside:  # Playwright's event loop runs in this thread
        token = beside.submit(new_tenant, data, "owner", "score").result()
    with running(data, insecure=False) as server:
        page = opened(of=server)
        page.get_by_role("alert").wait_for()
        assert "API key" in page.get_by_role("alert").inner_text()
        page.get_by_label("This service asks for an API key").fill(token)
        page.get_by_role("button", name="Use it").click()
        page.get_by_role("button", name="Example: setosa").click()
        assert ask(page) == "setosa"
        assert token not in server.log.read_text(encoding="utf-8")


def test_the_routes_are_described_without_a_network(opened: Opened):
    page = opened("/docs")
    page.get_by_text("POST /v2/models/{model}/infer", exact=True).click()
    assert page.get_by_text("Answers").first.is_visible()
