"""Several tabs of one browser, and a service that ends and comes back while the page is open: a sentence, and no reload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_visits import BROWSER, TREE, Opened, answer_of, ask, choose, costs_of, listening, with_models, with_passphrase
from scoring_server import Server, becomes, running

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy, BROWSER]

NONE_SENT = "none: the server has them"
STORED = """async () => {
    const opened = await new Promise((resolve) => (indexedDB.open("cloakwork", 1).onsuccess = (event) => resolve(event.target.result)));
    const names = opened.transaction("keys").objectStore("keys").getAllKeys();
    return await new Promise((resolve) => (names.onsuccess = () => resolve(names.result)));
}"""


@pytest.fixture
def ending_server(tmp_path: Path) -> Iterator[Server]:
    with running(with_models(tmp_path / "data", TREE)) as started:
        yield started


@pytest.fixture
def others(server: Server) -> set[str]:
    """Keys that are there before a test."""
    return keys_of(server)


def keys_of(server: Server) -> set[str]:
    with server.client() as http:
        return {key["id"] for key in http.get("/v2/keys").json()["keys"]}


def click(page: Any) -> None:
    page.get_by_role("button", name="Encrypt and ask").click()


def test_two_tabs_at_once_share_one_key(opened: Opened, server: Server, others: set[str]):
    first = opened()
    tabs = [first, opened(beside=first)]
    for page in tabs:
        choose(page, TREE)
        with_passphrase(page, "violet tram counts nine owls")
        listening(page)
    for page in tabs:
        click(page)
    assert [answer_of(page) for page in tabs] == ["setosa", "setosa"]
    assert sorted(NONE_SENT in costs_of(page) for page in tabs) == [False, True]
    waited = "Another tab makes the keys and sends them. This one waits"
    assert sorted(waited in page.evaluate("window.said") for page in tabs) == [False, True]
    assert len(keys_of(server) - others) == 1
    stored = first.evaluate(STORED)
    assert len(stored) == 2 and len([name for name in stored if name.endswith(".evaluation.keys")]) == 1
    third = opened(beside=first)
    choose(third, TREE)
    with_passphrase(third, "violet tram counts nine owls")
    assert ask(third) == "setosa" and NONE_SENT in costs_of(third)


def test_two_passphrases_at_once_are_one_key_and_one_refusal(opened: Opened, server: Server, others: set[str]):
    first = opened()
    tabs = [first, opened(beside=first)]
    for page, word in zip(tabs, ("violet tram counts nine owls", "slate kite pours eleven maps"), strict=True):
        choose(page, TREE)
        with_passphrase(page, word)
    for page in tabs:
        click(page)
    for page in tabs:
        page.locator("#answer:not([hidden]), #error:not([hidden])").first.wait_for()
    refused = [page for page in tabs if page.get_by_role("alert").is_visible()]
    assert len(refused) == 1 and refused[0].get_by_role("alert").inner_text().startswith("The passphrase is wrong")
    assert len(keys_of(server) - others) == 1


@pytest.mark.tier("release")
def test_tabs_without_a_passphrase_have_keys_of_their_own(opened: Opened, server: Server, others: set[str]):
    first = opened()
    second = opened(beside=first)
    for page in (first, second):
        choose(page, TREE)
        click(page)
    assert [answer_of(first), answer_of(second)] == ["setosa", "setosa"]
    assert (
        len(keys_of(server) - others) == 2 and first.evaluate("async () => (await indexedDB.databases()).length") == 0
    )
    first.close(run_before_unload=True)
    assert becomes(lambda: len(keys_of(server) - others), 1)
    assert ask(second) == "setosa" and NONE_SENT in costs_of(second)


@pytest.mark.parametrize(
    "passphrase", [pytest.param("", marks=pytest.mark.tier("release")), "violet tram counts nine owls"]
)
def test_a_service_that_comes_back_is_asked_on(opened: Opened, ending_server: Server, tmp_path: Path, passphrase: str):
    """With its keys, and without: on another data folder it asks for them, and gets them."""
    server, page = ending_server, opened(of=ending_server)
    choose(page, TREE)
    if passphrase:
        with_passphrase(page, passphrase)
    assert ask(page) == "setosa"

    server.stop()
    page.get_by_role("button", name="Example: virginica").click()
    click(page)
    page.get_by_role("alert").wait_for()
    assert (
        page.get_by_role("alert").inner_text() == "The service does not answer. Is it running, and are you connected?"
    )
    server.start()  # on its port
    assert ask(page) == "virginica" and NONE_SENT in costs_of(page)
    assert page.get_by_role("alert").is_hidden()

    server.stop()
    listening(page)
    with running(with_models(tmp_path / "other", TREE), port=server.port) as other:
        assert ask(page) == "virginica" and NONE_SENT not in costs_of(page)
        assert "The service does not have the keys any more. Sending them again" in page.evaluate("window.said")
        assert len(keys_of(other)) == 1
        assert ask(page) == "virginica" and NONE_SENT in costs_of(page)


@pytest.mark.tier("release")
def test_a_model_that_was_replaced_is_read_again(opened: Opened):
    page = opened()
    choose(page, TREE)
    assert ask(page) == "setosa"
    refused: list[str] = []

    def refuse(route: Any) -> None:
        if refused:
            route.continue_()
            return
        refused.append(route.request.url)
        route.fulfill(
            status=409, content_type="application/json", body='{"error": "another program", "code": "wrong_model"}'
        )

    page.context.route("**/infer", refuse)
    click(page)
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text() == "The service has another version of this model now. Ask again."
    with page.expect_request("**/v2/models/*/versions/*/client"):
        assert ask(page) == "setosa"
