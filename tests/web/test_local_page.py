"""The page from its visitor's own disk (`cloakwork page`), in Chromium, for services that know nothing of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from page_visits import BROWSER, TREE, Opened, ask, choose, costs_of, with_models
from scoring_server import Server, becomes, new_tenant, running

from cloakwork.api.http.page_content import read_content
from cloakwork.app.cli.shared.page_proxy import Service
from cloakwork.app.cli.shared.page_server import PageServer

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy, BROWSER]


class Local:
    """What `opened` wants of a server: an address without a slash at its end."""

    def __init__(self, server: PageServer) -> None:
        self.url = server.url.rstrip("/")


@contextmanager
def local_page(service: str) -> Iterator[Local]:
    server = PageServer(0, read_content(), Service(service))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield Local(server)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Without a page of its own, and every answer a job."""
    data = with_models(tmp_path_factory.mktemp("local") / "data", TREE)
    with running(data, environment={"PAGE": "false", "SYNCHRONOUS_SECONDS": "1e-9"}) as started:
        yield started


def test_the_page_of_this_disk_is_answered_by_a_service_elsewhere(browser: Any, opened: Opened, server: Server):
    with server.client() as http, local_page(server.url) as local:
        page = opened(of=local)
        choose(page, TREE)
        for species in ("versicolor", "setosa"):
            page.get_by_role("button", name=f"Example: {species}").click()
            assert ask(page) == species
        assert "the server has them" in costs_of(page)
        trust = page.locator("#trust").inner_text()
        assert "came from this machine" in trust and server.url in trust
        assert len(http.get("/v2/keys").json()["keys"]) == 1
        page.goto(f"{local.url}/docs")
        page.get_by_text("POST /v2/models/{model}/infer", exact=True).wait_for()
        assert becomes(lambda: http.get("/v2/keys").json()["keys"], [])  # they went with the page
    assert '"foreign_page"' not in server.log.read_text(encoding="utf-8")


def test_scripts_come_from_the_disk_alone(opened: Opened, server: Server):
    """Not even a service that answers with one, on the page's own origin, has it run."""
    with local_page(server.url) as local:
        page = opened(of=local)
        choose(page, TREE)
        refused = page.evaluate("""() => new Promise((resolve) => {
            document.addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective), { once: true });
            document.head.append(Object.assign(document.createElement("script"), { src: "/v2/models" }));
        })""")
        assert refused == "script-src-elem"
        forget_policy_lines(opened)


def forget_policy_lines(opened: Any) -> None:
    """The violation above is the test's own."""
    opened.problems.clear()


@pytest.mark.tier("release")
def test_an_api_key_goes_through_and_a_service_that_has_gone_is_said(opened: Opened, tmp_path: Path):
    data = with_models(tmp_path / "data", TREE)
    with ThreadPoolExecutor() as beside:  # Playwright's event loop runs in this thread
        token = beside.submit(new_tenant, data, "owner", "score").result()
    with running(data, insecure=False) as service, local_page(service.url) as local:
        page = opened(of=local)
        page.get_by_role("alert").wait_for()
        page.get_by_label("This service asks for an API key").fill(token)
        page.get_by_role("button", name="Use it").click()
        page.get_by_role("button", name="Example: virginica").click()
        assert ask(page) == "virginica"
        service.stop()
        page.get_by_role("button", name="Encrypt and ask").click()
        page.get_by_role("alert").wait_for()
        assert (
            page.get_by_role("alert").inner_text()
            == "The service does not answer. Is it running, and are you connected?"
        )
        service.start()
        assert ask(page) == "virginica" and token not in service.log.read_text(encoding="utf-8")


def test_a_page_that_the_service_does_not_know_is_refused_in_words(opened: Opened, server: Server):
    """A relay that passes on what browsers say of themselves, as somebody's own might, meets the service's gate."""
    with local_page(server.url) as local:
        page = opened("/docs", of=local)
        page.context.route(
            "**/v2/models", lambda route: route.fulfill(response=route.fetch(headers={"Origin": "http://evil.example"}))
        )
        page.goto(f"{local.url}/")
        page.get_by_role("alert").wait_for()
        assert page.get_by_role("alert").inner_text().startswith("The service answers only its own page.")
