"""On a narrow window no page of the service scrolls sideways: neither as it opens nor with everything unfolded, filled in and answered.
On a wide one no place beside a section stays empty."""

from __future__ import annotations

from typing import Any

import pytest
from page_visits import BROWSER, NETWORK, TREE, Opened, ask, choose

HEIGHT = 700
MODELS = (NETWORK, TREE, "wine-boosting", "breast-cancer-forest")
# The elements that reach out of the window, the innermost ones; what scrolls by itself may.
BEYOND = """() => {
    const width = document.documentElement.clientWidth;
    const isBeyond = (each) => each.getBoundingClientRect().right > width + 0.5 && each.closest(".scroll, pre") === null;
    const found = [...document.querySelectorAll("body, body *")].filter(isBeyond);
    const inner = found.filter((each) => !found.some((other) => other !== each && each.contains(other)));
    return [document.documentElement.scrollWidth - width, inner.map((each) => each.outerHTML.slice(0, 120))];
}"""

# How much of the page's width is free beside each section, at the better of two heights: one may lie between two sections of the other column.
FREE = """() => {
    const boxes = [...document.querySelectorAll("main > section")].map((each) => each.getBoundingClientRect()).filter(({ height }) => height > 0);
    const width = document.querySelector("main").getBoundingClientRect().width;
    const free = (y) => boxes.filter(({ top, bottom }) => top <= y && y <= bottom).reduce((rest, each) => rest - each.width, width);
    return boxes.map(({ top, height }) => Math.min(free(top + 0.4 * height), free(top + 0.6 * height)));
}"""
GAP = 16  # between two columns

narrow = pytest.mark.parametrize("width", [320, pytest.param(390, marks=pytest.mark.tier("release"))])
pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy, BROWSER]


def window(width: int) -> dict[str, Any]:
    return {"viewport": {"width": width, "height": HEIGHT}, "has_touch": True}


def fits(page: Any) -> None:
    assert page.evaluate(BEYOND) == [0, []]


def unfold(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")


@narrow
def test_the_page_with_its_forms_an_answer_and_an_audit(opened: Opened, width: int):
    page = opened(**window(width))
    for model in MODELS:
        choose(page, model)
        fits(page)
    unfold(page)
    choose(page, TREE)
    assert ask(page) == "setosa"
    with page.expect_download():
        page.get_by_role("button", name="Download for an audit").click()
    page.locator("#audited").wait_for()
    fits(page)


def test_a_wide_page_has_no_hole(opened: Opened):
    page = opened(viewport={"width": 1280, "height": HEIGHT})
    for model in (TREE, "breast-cancer-forest"):
        choose(page, model)
        assert max(page.evaluate(FREE)) <= GAP
        ask(page)
        with page.expect_download():
            page.get_by_role("button", name="Download for an audit").click()
        page.locator("#audited").wait_for()
        assert max(page.evaluate(FREE)) <= GAP


@narrow
def test_the_routes(opened: Opened, width: int):
    page = opened("/docs", **window(width))
    page.get_by_text("POST /v2/models/{model}/infer", exact=True).wait_for()
    fits(page)
    unfold(page)
    fits(page)


@narrow
def test_the_administrators_page(opened: Opened, width: int):
    page = opened("/admin", **window(width))
    page.locator("#content").wait_for()
    page.get_by_role("region", name="Models", exact=True).get_by_text(TREE).first.wait_for()
    fits(page)
