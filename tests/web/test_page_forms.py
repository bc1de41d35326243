"""The page's form for models that no zoo has: columns with categories and holes, a text, several inputs and outputs; and its warnings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from page_visits import BROWSER
from scoring_server import Server
from several_tensors import image_and_table, samples
from sklearn import compose, feature_extraction, impute, linear_model, pipeline, preprocessing

import cloakwork as cw
from cloakwork.app.client import Client
from cloakwork.models.compiled import CompiledModel

PATIENCE_MS = 60_000
RNG = np.random.default_rng(12)
WORDS = ["red dog barks", "blue cat", "red cat sleeps", "dog dog", "the bird sings", "a blue bird"] * 4
make = pipeline.make_pipeline

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy, BROWSER]


def table() -> tuple[CompiledModel, np.ndarray]:
    """Age and income, which may be missing, and a town."""
    x = np.empty((80, 3), dtype=object)
    x[:, 0], x[:, 1] = RNG.uniform(20, 60, 80), RNG.uniform(1, 9, 80)
    x[:, 2] = RNG.choice(["Bern", "Graz", "Ulm"], 80)
    x[::9, 0] = np.nan
    y = (x[:, 1] > 5).astype(int) + (x[:, 2] == "Ulm")
    parts = compose.ColumnTransformer([
        ("n", make(impute.SimpleImputer(), preprocessing.PowerTransformer()), [0, 1]),
        ("t", preprocessing.OneHotEncoder(), [2]),
    ])  # fmt: skip
    return cw.compile(
        make(parts, linear_model.LogisticRegression()).fit(x, np.array(["low", "mid", "high"])[y]), x, accuracy=0.9
    ), x


@pytest.fixture(scope="module")
def models() -> dict[str, CompiledModel]:
    texts = make(feature_extraction.text.TfidfVectorizer(), linear_model.LogisticRegression()).fit(
        WORDS, ["animal", "bird"] * 12
    )
    joined = cw.compile(image_and_table(np.random.default_rng(2)), samples(np.random.default_rng(3), 300), accuracy=0.8)
    return {"people": table()[0], "several": joined, "texts": cw.compile(texts, WORDS, accuracy=0.8)}


@pytest.fixture(scope="module")
def server(page_server: Server, models: dict[str, CompiledModel], tmp_path_factory: pytest.TempPathFactory) -> Server:
    """The one that most tests share, with further models."""
    folder = tmp_path_factory.mktemp("forms")
    with Client(page_server.url) as client:
        for name, model in models.items():
            model.save(folder / f"{name}.clkm")
            client.add_model(folder / f"{name}.clkm", name)
    return page_server


@pytest.fixture(scope="module")
def page(browser: Any, server: Server) -> Iterator[Any]:
    opened = browser.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.goto(server.url)
    opened.locator("#model:not([disabled])").wait_for()
    yield opened
    opened.close()
    assert problems == []


def choose(page: Any, model: str, field: str) -> None:
    page.get_by_label("Ask the model").select_option(model)
    page.get_by_label(field).wait_for()


def ask(page: Any) -> str:
    page.get_by_role("button", name="Encrypt and ask").click()
    page.locator("#answer:not([hidden]), #error:not([hidden])").first.wait_for()
    assert page.locator("#error").is_hidden(), page.locator("#error").inner_text()
    return str(page.locator("#label").inner_text())


def test_a_table_with_categories(page: Any, models: dict[str, CompiledModel]) -> None:
    choose(page, "people", "feature 0")
    for row in ([33.5, 2.5, "Graz"], [np.nan, 8.5, "Ulm"]):
        page.get_by_label("feature 0").fill("" if np.isnan(row[0]) else str(row[0]))
        page.get_by_label("feature 1").fill(str(row[1]))
        page.get_by_label("feature 2").select_option(row[2])
        assert ask(page) == models["people"].predict(np.array([row], dtype=object))[0]
        assert page.locator("#warnings").is_hidden()


def test_a_model_says_how_it_answers_as_the_original(page: Any, models: dict[str, CompiledModel]) -> None:
    choose(page, "people", "feature 0")
    original = models["people"].program.facts.original
    assert original is not None
    share = f"{100 * original.value:.1f} %"
    assert (
        page.locator("#about").inner_text().startswith(f"It answers as the original model for {share} of 80 samples.")
    )
    option = page.locator("#model option[value=people]", has_text="about")
    option.wait_for(state="attached")
    assert option.inner_text().startswith(f"people, {share} as the original, about ")


def test_no_category_is_chosen_silently(page: Any) -> None:
    choose(page, "people", "feature 0")
    page.get_by_label("feature 1").fill("2")
    page.get_by_role("button", name="Encrypt and ask").click()
    town = page.get_by_label("feature 2")
    assert page.get_by_role("alert").inner_text() == "feature 2: choose one of the list."
    assert town.evaluate("(field) => field === document.activeElement") and town.get_attribute("aria-invalid") == "true"
    town.select_option("Ulm")
    assert page.get_by_role("alert").count() == 0 and town.get_attribute("aria-invalid") is None


def test_values_beyond_the_range_are_told_beside_the_answer(page: Any) -> None:
    choose(page, "people", "feature 0")
    page.get_by_label("feature 0").fill("950")
    page.get_by_label("feature 1").fill("2")
    page.get_by_label("feature 2").select_option("Bern")
    ask(page)
    told = page.locator("#warnings").inner_text()
    assert "1 of 1 samples have values beyond the calibrated range" in told and "950" not in told


def test_a_text(page: Any, models: dict[str, CompiledModel]) -> None:
    choose(page, "texts", "Text")
    for text in ("The bird sings", "dog dog"):
        page.get_by_label("Text").fill(text)
        assert ask(page) == models["texts"].predict([text])[0]


def test_several_inputs_and_outputs(page: Any, models: dict[str, CompiledModel]) -> None:
    choose(page, "several", "table, 3 numbers")
    x = samples(np.random.default_rng(8), 1)
    for name, array in x.items():
        page.get_by_label(f"{name},").fill(" ".join(map(str, array.ravel().tolist())))
    answer = ask(page)
    assert answer.startswith("probabilities ") and "; embedding " in answer
    found = [float(each) for each in answer.removeprefix("probabilities ").partition(";")[0].split(", ")]
    assert abs(sum(found) - 1) < 0.01
    assert np.abs(found - models["several"].predict(x)["probabilities"][0]).max() < 0.2
    page.get_by_label("table,").fill("1 2")
    page.get_by_role("button", name="Encrypt and ask").click()
    assert page.get_by_role("alert").inner_text() == "table: 3 numbers are needed, and there are 2."
