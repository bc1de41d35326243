"""The page in a real Chromium, against a real service: a person draws, fills in, forgets a passphrase, loses the connection."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from page_visits import BROWSER, TREE, Opened, answer_of, ask, choose, draw
from scoring_server import Server, becomes, new_tenant

from cloakwork.app.cli.main import run
from cloakwork.fhe_core.parameters import parameter_set, upload_bytes
from cloakwork.models import zoo

PHONE = {"width": 360, "height": 640}
PART = 4 << 20  # of a key, in one request

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy, BROWSER]


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
    for nothing in ("", "1e999"):
        page.get_by_label("petal width").fill(nothing)
        page.get_by_role("button", name="Encrypt and ask").click()
        assert (
            page.get_by_role("alert").inner_text()
            == "petal width (cm): a number is needed; the data set has 0.1 to 2.5."
        )


def test_an_answer_takes_the_focus_and_goes_with_its_sample(opened: Opened):
    page = opened(viewport=PHONE)
    choose(page, TREE)
    assert ask(page) == "setosa"
    assert page.evaluate("document.activeElement.id") == "answer"
    assert page.locator("#label").evaluate("(each) => each.getBoundingClientRect().bottom <= innerHeight")
    page.get_by_label("petal width").fill("2")
    shown = ("#answer", "#ciphertext", "#audit")
    assert not any(page.locator(each).is_visible() for each in shown) and page.locator("#nothing").is_visible()
    ask(page)
    choose(page, "wine-boosting")
    assert not any(page.locator(each).is_visible() for each in shown)


def test_the_list_tells_accuracy_and_seconds(opened: Opened):
    page = opened()
    page.locator("#model option[value=wine-boosting]", has_text="about").wait_for(state="attached")
    listed = page.locator(f"#model option[value={TREE}]").inner_text()
    assert re.fullmatch(r"Iris: which species\? 96\.0 % right, about [\d.]+ m?s \(iris-tree\)", listed)
    choose(page, TREE)
    assert "Right for 96.0 % of 50 samples" in page.locator("#about").inner_text()


def test_a_table_takes_values_beyond_its_data_and_says_so(opened: Opened):
    page = opened()
    choose(page, TREE)
    page.get_by_role("button", name="Example: setosa").click()
    page.get_by_label("sepal length").fill("7.9")  # the longest of the data set, in no held-out sample
    assert ask(page) == "setosa" and page.locator("#warnings").is_hidden()
    page.get_by_label("petal length").fill("7.4")
    page.get_by_label("petal width").fill("-0.25")
    ask(page)
    told = page.locator("#warnings").inner_text()
    assert told == (
        "Note: no sample of the data set is as far out in petal length (cm), petal width (cm); the answer is a guess there."
    )
    page.get_by_role("button", name="Example: virginica").click()
    assert ask(page) == "virginica" and page.locator("#warnings").is_hidden()


@pytest.mark.parametrize(
    "passphrase",
    [pytest.param("violet tram counts nine owls", marks=pytest.mark.tier("release")), None],
    ids=["kept", "temporary"],
)
def test_the_owner_computes_a_downloaded_answer_again(
    opened: Opened, server: Server, tmp_path: Path, passphrase: str | None
):
    page = opened()
    page.get_by_label("Ask the model").select_option(TREE)
    page.get_by_role("button", name="Example: versicolor").click()
    if passphrase is not None:
        page.get_by_text("Keys", exact=True).click()
        page.get_by_label("Passphrase").fill(passphrase)
    assert page.locator("#audit").is_hidden()
    assert ask(page) == "versicolor"
    for number, with_keys in enumerate((True, False)):
        page.locator("#audit-keys").set_checked(with_keys)
        with page.expect_download() as started:
            page.get_by_role("button", name="Download for an audit").click()
        assert started.value.suggested_filename == f"{TREE}-1.clka"
        path, record = tmp_path / f"{number}.clka", tmp_path / f"{number}.json"
        started.value.save_as(path)
        assert run(["replay", str(path), "--data", str(server.data), "--json", str(record)]) == 0
        found = json.loads(record.read_text())
        assert found["equal"] and found["service"] == server.url and found["samples"] == 1
        page.locator("#audited").wait_for()
        assert ("are in the file" in page.locator("#audit-note").inner_text()) is with_keys
        shown = page.locator("#audit-digests").inner_text()
        assert all(
            found[name] in shown for name in ("program", "keys_sha256", "request_sha256", "answer_sha256", "audit_key")
        )
        assert page.locator("#audit-command").inner_text() == f"cloakwork replay {TREE}-1.clka --data FOLDER"
    large, small = ((tmp_path / f"{number}.clka").stat().st_size for number in (0, 1))
    zoo_set = zoo.load_model(TREE).program.parameters
    assert large - small == pytest.approx(upload_bytes(zoo_set), abs=8)  # "true" and "false" differ in length
    page.get_by_role("button", name="Example: setosa").click()
    assert ask(page) == "setosa" and page.locator("#audited").is_hidden()


def test_a_wrong_passphrase_opens_nothing(opened: Opened):
    page = opened()
    page.get_by_label("Ask the model").select_option(TREE)
    page.get_by_text("Keys", exact=True).click()
    page.get_by_label("Passphrase").fill("violet tram counts nine owls")
    assert ask(page) == "setosa"
    page.reload()
    page.get_by_label("Ask the model").select_option(TREE)
    page.get_by_text("Keys", exact=True).click()
    page.get_by_label("Passphrase").fill("slate kite pours eleven maps")
    page.get_by_role("button", name="Encrypt and ask").click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text().startswith("The passphrase is wrong")
    page.get_by_label("Passphrase").fill("violet tram counts nine owls")
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


def test_an_api_key_is_asked_for(opened: Opened, guarded_server: Server):
    with ThreadPoolExecutor() as beside:  # Playwright's event loop runs in this thread
        token = beside.submit(new_tenant, guarded_server.data, "visitor", "score").result()
    page = opened(of=guarded_server)
    page.get_by_role("alert").wait_for()
    assert "API key" in page.get_by_role("alert").inner_text()
    page.get_by_label("This service asks for an API key").fill(token)
    page.get_by_role("button", name="Use it").click()
    choose(page, TREE)
    page.get_by_role("button", name="Example: setosa").click()
    assert ask(page) == "setosa"
    assert token not in guarded_server.log.read_text(encoding="utf-8")


def test_the_routes_are_described_without_a_network(opened: Opened):
    page = opened("/docs")
    page.get_by_text("POST /v2/models/{model}/infer", exact=True).click()
    assert page.get_by_text("Answers").first.is_visible()
