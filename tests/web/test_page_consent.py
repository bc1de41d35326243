"""What the page asks a person in a dialog: a weak passphrase, a model that is not what it was, large keys."""

from __future__ import annotations

from typing import Any

import pytest
from page_visits import BROWSER, TREE, Opened, ask, choose, with_passphrase

from cloakwork.fhe_core.parameters import parameter_digest, parameter_set

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy, BROWSER]

SPECIFICATION = f"**/v2/models/{TREE}/versions/*/client"


def click(page: Any) -> None:
    page.get_by_role("button", name="Encrypt and ask").click()


def dialog(page: Any) -> Any:
    found = page.get_by_role("dialog")
    found.wait_for()
    return found


def test_a_weak_passphrase_is_asked_for_again(opened: Opened):
    page = opened()
    choose(page, TREE)
    with_passphrase(page, "secret")
    click(page)
    assert "it has fewer than 12 characters" in dialog(page).inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text().startswith("Choose another passphrase")
    click(page)
    dialog(page).get_by_role("button", name="Use it all the same").click()
    assert ask(page) == "setosa"  # not asked a third time


def test_a_model_that_is_not_what_it_was(opened: Opened):
    """Other steps under the same version, as a server may slip to one of its clients."""
    first = opened()
    choose(first, TREE)
    assert ask(first) == "setosa"
    page = opened("/docs", beside=first)

    def change(route: Any) -> None:
        low, high = (fields := route.fetch().json())["input_range"]
        route.fulfill(json=fields | {"input_range": [low, (low + high) / 2]})

    page.context.route(SPECIFICATION, change)
    page.goto(page.url.removesuffix("docs"))
    page.get_by_label("Ask the model").select_option(TREE)
    assert "has another program or other steps than at first use" in dialog(page).inner_text()
    dialog(page).get_by_role("button", name="Do not use it").click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text().startswith("The model is not what it was")


def test_large_keys_are_asked_for(opened: Opened):
    page = opened()

    def change(route: Any) -> None:
        fields = route.fetch().json()
        name = "fine5"
        digest = parameter_digest(parameter_set(name)).hex()
        route.fulfill(json=fields | {"parameter_set": name, "parameter_digest": digest})

    page.context.route(SPECIFICATION, change)
    page.reload()
    choose(page, TREE)
    uploads: list[str] = []
    page.on(
        "request", lambda each: each.method in ("POST", "PATCH") and "/v2/keys" in each.url and uploads.append(each.url)
    )
    click(page)
    text = dialog(page).inner_text()
    assert "629" in text and "MB" in text and "seconds" in text
    dialog(page).get_by_role("button", name="Do not").click()
    page.get_by_role("alert").wait_for()
    assert "you did not agree" in page.get_by_role("alert").inner_text() and uploads == []
