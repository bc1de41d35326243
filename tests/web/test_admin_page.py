"""The administrator's page in a real Chromium, against a real service: looks, cancels, unloads, revokes, on a phone and in the dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_visits import BROWSER, TREE
from scoring_server import Server, User, becomes, new_tenant

PATIENCE_MS = 60_000
PHONE = {"width": 360, "height": 640}

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy, BROWSER]


def tenant(data: Path, name: str, *scopes: str) -> str:
    with ThreadPoolExecutor() as beside:  # Playwright's event loop runs in this thread
        return beside.submit(new_tenant, data, name, *scopes).result()


@pytest.fixture(scope="module")
def server(guarded_server: Server) -> Server:
    return guarded_server


@pytest.fixture(scope="module")
def admin_key(server: Server) -> str:
    return tenant(server.data, "owner", "admin")


@pytest.fixture
def opened(browser: Any, server: Server, admin_key: str) -> Iterator[Callable[..., Any]]:
    """opened(api_key, **options of the window): a page that asks nothing of others and breaks no rule of its policy."""
    contexts, problems = [], []

    def open_page(api_key: str | None = admin_key, of: Server = server, clock: bool = False, **options: Any) -> Any:
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        if clock:  # its time goes on when the test says so
            page.clock.install()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: "Content Security Policy" in line.text and problems.append(line.text))
        page.on("request", lambda each: each.url.startswith((of.url, "data:", "about:")) or problems.append(each.url))
        page.goto(of.url + "/admin")
        if api_key is not None:
            page.get_by_label("An API key with the scope admin").fill(api_key)
            page.get_by_role("button", name="Use it").click()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def user(server: Server) -> Iterator[User]:
    """A tenant with keys."""
    token = tenant(server.data, "alice")
    with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
        found = User.of(http)
        found.upload()
        yield found


def section(page: Any, name: str) -> Any:
    return page.get_by_role("region", name=name, exact=True)


def row(page: Any, text: str) -> Any:
    return page.get_by_role("row").filter(has_text=text)


def status_becomes(page: Any, text: str) -> None:
    page.locator("#status", has_text=text).wait_for()


def test_a_wrong_key_shows_nothing(opened: Callable[..., Any], server: Server, admin_key: str):
    page = opened(None)
    page.get_by_label("An API key with the scope admin").wait_for()
    assert page.locator("#error").is_hidden(), "nobody has done anything wrong yet"
    for key, says in (
        ("nonsense", "does not know this one"),
        (tenant(server.data, "bob", "score", "models", "metrics", "priority"), "does not have the scope admin"),
    ):
        page.get_by_label("An API key with the scope admin").fill(key)
        page.get_by_role("button", name="Use it").click()
        page.get_by_role("alert").filter(has_text=says).wait_for()
        assert page.get_by_role("main").count() == 0 and page.locator("#content").is_hidden()
        assert page.get_by_label("An API key with the scope admin").input_value() == ""
    page.get_by_label("An API key with the scope admin").fill(admin_key)
    page.get_by_label("An API key with the scope admin").press("Enter")
    section(page, "Load").wait_for()
    assert page.locator("#error").is_hidden() and page.locator("#access").is_hidden()


def test_the_key_is_kept_nowhere(opened: Callable[..., Any], admin_key: str, server: Server):
    page = opened()
    section(page, "Load").wait_for()
    kept = page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, document.body.outerHTML])"
    )
    assert admin_key not in kept and admin_key.split("_", 2)[2] not in kept
    assert page.locator("#api-key").input_value() == ""
    page.reload()
    page.get_by_label("An API key with the scope admin").wait_for()
    page.get_by_label("An API key with the scope admin").fill(admin_key)
    page.get_by_role("button", name="Use it").click()
    page.get_by_role("button", name="Forget the API key").click()
    page.get_by_label("An API key with the scope admin").wait_for()
    assert page.locator("#content").is_hidden() and page.locator("#jobs tbody tr").count() == 0
    assert page.locator("#facts").inner_text() == ""
    assert admin_key not in server.log.read_text(encoding="utf-8")


def test_the_load_while_a_job_runs_and_the_job_is_cancelled(opened: Callable[..., Any], user: User):
    page = opened()
    section(page, "Load").wait_for()
    body = user.encrypt(samples=4000)[1]
    jobs = [user.http.post("/v2/models/toy/jobs", content=body).json()["id"] for _ in range(12)]
    runs = page.locator("#runs tbody tr").filter(has_text="alice (a job)").filter(has_text="cpu")
    runs.first.wait_for()
    assert re.search(r"toy, version 1\s*toy_two_limb\s*4,000", runs.first.inner_text())
    assert re.search(r"Waiting \d+, about .* of work; running \(dashed\) [1-9]", page.locator("#charts").inner_text())
    assert "on cpu, " in page.locator("#facts").inner_text()
    assert page.get_by_role("meter", name="Keys in memory").get_attribute("value") != "0"

    page.get_by_role("button", name=f"Cancel: {jobs[-1]}").click()
    dialog = page.get_by_role("dialog")
    assert jobs[-1] in dialog.inner_text() and "alice" in dialog.inner_text()
    dialog.get_by_role("button", name="Leave it").click()
    assert user.http.get(f"/v2/jobs/{jobs[-1]}").json()["state"] in ("queued", "running")
    page.get_by_role("button", name=f"Cancel: {jobs[-1]}").click()
    dialog.get_by_role("button", name="Cancel the job").click()
    status_becomes(page, f"Job {jobs[-1]} is cancelled.")
    assert "cancelled" in section(page, "Jobs").locator("tbody tr").filter(has_text=jobs[-1]).inner_text()
    assert page.get_by_role("button", name=f"Cancel: {jobs[-1]}").count() == 0
    assert user.http.get(f"/v2/jobs/{jobs[-1]}").json()["state"] == "cancelled"
    for job in jobs[:-1]:
        user.http.delete(f"/v2/jobs/{job}")
    page.locator("#runs").get_by_text("Nothing runs.").wait_for()


def test_a_model_is_unloaded_and_loaded(opened: Callable[..., Any], user: User):
    page = opened()
    page.get_by_role("button", name="Unload: toy").press("Enter")
    page.keyboard.press("Escape")
    assert user.http.get("/v2/models/toy").status_code == 200
    page.get_by_role("button", name="Unload: toy").press("Enter")
    page.get_by_role("button", name="Unload it").press("Enter")
    status_becomes(page, "Model toy is unloaded.")
    assert user.http.get("/v2/models/toy").status_code == 410
    page.get_by_role("button", name="Load: toy", exact=True).click()
    page.get_by_role("button", name="Load it", exact=True).click()
    status_becomes(page, "Model toy is loaded.")
    assert user.http.get("/v2/models/toy").status_code == 200


def test_a_damaged_model_is_shown_with_its_reason(
    opened: Callable[..., Any], server: Server, admin_key: str, user: User
):
    artefact = server.data / "models" / "toy" / "1.clkm"
    whole = artefact.read_bytes()
    page = opened()
    page.get_by_role("button", name="Unload: toy").wait_for()
    artefact.write_bytes(whole[:-100])
    with server.client(headers={"Authorization": f"Bearer {admin_key}"}) as http:
        assert http.post("/v2/admin/models/toy/load").status_code == 422
    shown = section(page, "Models").get_by_role("row").filter(has=page.get_by_role("rowheader", name="toy", exact=True))
    shown.filter(has_text=re.compile("unavailable: .{10}")).wait_for()
    artefact.write_bytes(whole)
    page.get_by_role("button", name="Load: toy", exact=True).click()
    page.get_by_role("button", name="Load it", exact=True).click()
    status_becomes(page, "Model toy is loaded.")
    shown.filter(has_text="loaded").wait_for()
    assert user.http.get("/v2/models/toy").status_code == 200


def test_an_api_key_is_revoked(opened: Callable[..., Any], server: Server, admin_key: str):
    token = tenant(server.data, "carol")
    identity = token.split("_")[1]
    page = opened()
    page.get_by_role("button", name=f"Revoke: {identity}").click()
    page.get_by_role("button", name="Revoke it").click()
    status_becomes(page, f"API key {identity} is revoked.")
    assert "revoked" in row(page, identity).inner_text()
    assert page.get_by_role("button", name=f"Revoke: {identity}").count() == 0
    with server.client(headers={"Authorization": f"Bearer {token}"}) as http:
        assert http.get("/v2/keys").status_code == 401
    own = admin_key.split("_")[1]
    page.get_by_role("button", name=f"Revoke: {own}").click()
    page.get_by_role("button", name="Revoke it").click()
    page.get_by_role("alert").filter(has_text="This is the API key that asks").wait_for()
    assert page.locator("#status").inner_text() == "Not done."


def test_keys_are_deleted(opened: Callable[..., Any], user: User):
    (key,) = (each["id"] for each in user.http.get("/v2/keys").json()["keys"][-1:])
    page = opened()
    page.get_by_role("button", name=f"Delete: {key}").click()
    page.get_by_role("button", name="Delete them").click()
    status_becomes(page, f"Evaluation keys {key} are deleted.")
    assert page.get_by_role("button", name=f"Delete: {key}").count() == 0
    assert user.http.get(f"/v2/keys/{key}").status_code == 404


def test_limits_and_models_of_a_tenant(opened: Callable[..., Any], user: User):
    page = opened()
    change, terms = page.get_by_role("button", name="Change: alice"), page.get_by_role("dialog")
    change.click()
    for wrong in ("-1", "1e9", "many", "99999999999999999999"):
        terms.get_by_label("Requests and jobs waiting").fill(wrong)
        terms.get_by_role("button", name="Change it").click()
        assert "whole number" in terms.get_by_role("alert").inner_text()
    terms.get_by_label("Requests and jobs waiting").fill("7")
    terms.get_by_label("Every model").uncheck()
    terms.get_by_label("Models, separated").fill("other  toy")
    terms.get_by_role("button", name="Change it").click()
    status_becomes(page, "Tenant alice is changed.")
    assert "other, toy" in section(page, "Tenants").locator("tbody tr").filter(has_text="alice").inner_text()
    assert becomes(lambda: user.http.get("/v2/usage").json()["limits"]["queue"], 7)
    change.click()
    assert terms.get_by_label("Requests and jobs waiting").input_value() == "7"
    terms.get_by_label("Requests and jobs waiting").fill("")
    terms.get_by_label("Every model").check()
    terms.get_by_role("button", name="Change it").click()
    assert becomes(lambda: user.http.get("/v2/usage").json()["limits"]["queue"], 200)


def test_a_key_that_ends_closes_the_page(opened: Callable[..., Any], server: Server):
    token = tenant(server.data, "dave", "admin")
    page = opened(token)
    section(page, "Load").wait_for()
    other = tenant(server.data, "owner", "admin")
    with server.client(headers={"Authorization": f"Bearer {other}"}) as http:
        assert http.post(f"/v2/admin/api-keys/{token.split('_')[1]}/revoke").status_code == 204
    page.get_by_role("alert").filter(has_text="does not know this one").wait_for()
    assert page.locator("#content").is_hidden() and page.locator("#tenants tbody tr").count() == 0


def test_a_service_that_is_away_for_a_moment(opened: Callable[..., Any]):
    page = opened()
    section(page, "Load").wait_for()
    page.context.route("**/v2/admin/load*", lambda route: route.abort("connectionrefused"))
    status_becomes(page, "No answer. This page asks again.")
    page.context.unroute("**/v2/admin/load*")
    status_becomes(page, "The service answers again.")
    assert page.locator("#error").is_hidden()


def test_nobody_looks_at_a_page_that_is_not_seen(opened: Callable[..., Any]):
    """Headless pages are always seen: the document is told that it is not."""
    page = opened(clock=True)
    section(page, "Load").wait_for()

    def seen(is_seen: bool) -> None:
        page.evaluate(
            "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); "
            "document.dispatchEvent(new Event('visibilitychange')); }",
            not is_seen,
        )

    with page.expect_response("**/v2/admin/load*"):
        page.clock.run_for(5000)
    seen(False)
    asked: list[str] = []
    page.on("request", lambda each: asked.append(each.url))
    page.clock.run_for(60_000)
    assert asked == []
    with page.expect_response("**/v2/admin/load*"):
        seen(True)
    with page.expect_response("**/v2/admin/load*"):
        page.clock.run_for(5000)


def test_names_of_strangers_are_text(opened: Callable[..., Any], admin_key: str):
    """The service would not take such names; a page that trusted it would run them."""
    page = opened(None)
    markup = "<img src=x onerror=\"document.title='taken'\">"
    names = dict.fromkeys(("name", "version", "state", "reason", "parameter_set"), markup)
    model = {**names, **dict.fromkeys(("bootstraps", "runs", "samples", "run_seconds"), 1)}
    page.context.route("**/v2/admin/models?*", lambda route: route.fulfill(json={"models": [model], "next": None}))
    page.get_by_label("An API key with the scope admin").fill(admin_key)
    page.get_by_role("button", name="Use it").click()
    section(page, "Models").get_by_text(markup).first.wait_for()
    assert page.locator("img").count() == 0 and page.title() == "cloakwork: administration"


def test_further_pages_of_jobs(opened: Callable[..., Any], user: User):
    body = user.encrypt()[1]
    jobs = [user.http.post("/v2/models/toy/jobs", content=body).json()["id"] for _ in range(30)]
    page = opened()
    shown = section(page, "Jobs").locator("tbody tr")
    assert becomes(lambda: shown.count() == 25, True)
    section(page, "Jobs").get_by_role("button", name="More").click()
    assert becomes(lambda: shown.count() >= 30, True)
    assert [line.split()[0] for line in shown.all_inner_texts()[:30]] == jobs[::-1]
    section(page, "Jobs").get_by_role("button", name="Show").click()
    assert becomes(lambda: shown.count() == 25, True)
    section(page, "Jobs").get_by_label("Tenant").fill("Half of a na")
    section(page, "Jobs").get_by_label("Tenant").press("Enter")
    with page.expect_response("**/v2/admin/jobs*") as looked:
        pass  # by itself, with what was asked for before
    assert looked.value.status == 200 and "tenant" not in looked.value.url and page.locator("#error").is_hidden()
    section(page, "Jobs").get_by_label("Tenant").fill("nobody")
    section(page, "Jobs").get_by_role("button", name="Show").click()
    section(page, "Jobs").get_by_text("None.").wait_for()
    assert shown.count() == 0


def test_a_phone_a_dark_screen_and_a_keyboard(opened: Callable[..., Any], user: User):
    page = opened(viewport=PHONE, has_touch=True, color_scheme="dark")
    section(page, "Load").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    page.get_by_role("link", name="Tenants").press("Enter")
    change = page.get_by_role("button", name="Change: alice")
    change.press("Enter")
    box = page.get_by_role("dialog").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Change: alice", "the focus comes back"
    with page.expect_response("**/v2/admin/jobs*"):
        pass  # a look at the lists leaves it there
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Change: alice"
    tables = page.locator("table")
    assert tables.count() == 6
    for i in range(tables.count()):
        assert tables.nth(i).locator("caption").inner_text() != ""
        assert tables.nth(i).locator("thead th:not([scope=col])").count() == 0
        assert tables.nth(i).locator("tbody tr > :first-child:not(th[scope=row])").count() == 0


def test_a_local_service_asks_for_no_key(opened: Callable[..., Any], page_server: Server):
    page = opened(None, of=page_server)
    section(page, "Load").wait_for()
    assert page.locator("#access").is_hidden() and row(page, TREE).count() >= 1
    assert httpx.get(page_server.url + "/v2/admin/load", trust_env=False).status_code == 200
