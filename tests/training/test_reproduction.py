"""What the zoo's cards say of their recipes, and that the documents' figures are the cards'."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import upload_bytes
from cloakwork.models import zoo
from cloakwork.training import recipes, reproduction, tabular_zoo

REPOSITORY = Path(__file__).resolve().parents[2]
TABLES = [name for name in zoo.names() if "samples" in zoo.card(name).facts]
NETWORKS = [name for name in zoo.names() if name not in TABLES]


def page(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", zoo.names())
def test_every_card_names_a_recipe_and_how_close_it_comes(name: str) -> None:
    facts = zoo.card(name).facts
    if name in NETWORKS:
        device = " --device cuda" if zoo.card(name).data == "cifar10" else ""
        assert facts["recipe"] == f"cloakwork train {name}{device} --compiled {name}.clkm --json {name}.json"
        assert name in recipes.RECIPES
    else:
        assert facts["recipe"] == tabular_zoo.COMMAND
        assert name in [recipe.name for recipe in tabular_zoo.RECIPES]
    if "reproduced" not in facts:
        pytest.skip(f"{name} was not yet made a second time")
    found = facts["reproduced"]
    encrypted = "accuracy_simulated" if name in NETWORKS else "accuracy_quantised"
    assert re.match(r"20\d\d-\d\d-\d\d, ", found["on"])
    assert found["same_bytes"] or found["difference"]
    assert (
        found["same_answers"] >= found["accuracy_clear"]
    )  # two trainings differ on fewer samples than each is wrong on
    for figure in ("accuracy_clear", encrypted):
        assert found[figure] == pytest.approx(facts[figure], abs=0.005)
    assert abs(found["bootstraps"] - facts["bootstraps"]) <= 2


def percent(share: float, digits: int) -> str:
    return f"{100 * share:.{digits}f} %"


def rows(text: str) -> list[list[str]]:
    """Cells of every row of a table, without the code marks."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_page_of_the_networks_has_the_figures_of_the_cards(name: str) -> None:
    facts = zoo.card(name).facts
    figures = [facts[key] for key in ("accuracy_clear", "accuracy_simulated", "agreement")]
    row = [name, facts["parameter_set"], f"{facts['bootstraps']:,}", *(percent(figure, 2) for figure in figures)]
    assert row in rows(page("docs/howto/training.md"))
    if "reproduced" not in facts:
        pytest.skip(f"{name} was not yet made a second time")
    again = [facts["reproduced"][key] for key in ("accuracy_clear", "accuracy_simulated", "agreement")]
    assert [name, *(percent(figure, 2) for figure in again)] in [
        row[:4] for row in rows(page("docs/howto/training.md"))
    ]


@pytest.mark.parametrize("name", TABLES)
def test_the_page_of_the_estimators_has_the_figures_of_the_cards(name: str) -> None:
    card = zoo.card(name)
    row = next(row for row in rows(page("docs/howto/scikit-learn.md")) if row[0] == card.data and row[2].isdecimal())
    clear, quantised = (percent(card.facts[key], 1) for key in ("accuracy_clear", "accuracy_quantised"))
    assert row[2:5] == [str(card.facts["bootstraps"]), clear, quantised]
    assert row[6] == f"{card.facts['samples']} of {card.facts['samples']}"


def test_the_readme_has_the_figures_of_the_zoo() -> None:
    figures = {row[0]: row[1] for row in rows(page("README.md")) if len(row) == 4}
    models = {
        "decision tree, iris": "iris-tree",
        "random forest, 20 trees, breast cancer": "breast-cancer-forest",
        "network 784-30-10, MNIST": "mnist-mlp-1x30",
        "VGG-like network, CIFAR-10": "cifar10-vgg",
    }
    for title, name in models.items():
        facts = zoo.card(name).facts
        encrypted, digits = ("accuracy_simulated", 2) if name in NETWORKS else ("accuracy_quantised", 1)
        assert figures[title] == f"{percent(facts['accuracy_clear'], digits)}, {percent(facts[encrypted], digits)}"


def test_the_demonstration_in_the_guide_has_the_sizes_of_its_model() -> None:
    text = page("docs/guide/install.md")
    model = zoo.load_model("mnist-mlp-1x30")
    assert f"{upload_bytes(model.program.parameters) / 2**20:.1f} MiB of them go to the server once" in text
    image = model.client.encrypt(ClientKey.generate(model.program.parameters), np.zeros((1, 784))).to_bytes()
    assert f"an image encrypted in 0.1 ms, {len(image)} bytes" in text


def test_a_table_made_again_is_compared(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    recipe = next(recipe for recipe in tabular_zoo.RECIPES if recipe.name == "iris-tree")
    tabular_zoo.build(recipe, tmp_path)
    found = reproduction.compare("iris-tree", tmp_path)
    facts = zoo.card("iris-tree").facts
    assert found["zoo"] == {key: facts[key] for key in ("accuracy_clear", "accuracy_quantised", "bootstraps")}
    assert found["same_answers"] >= 0.9 and found["reproduced"]["accuracy_quantised"] >= 0.9


@pytest.mark.parametrize("name", ["mnist-mlp-1x30", pytest.param("cifar10-vgg", marks=pytest.mark.tier("all"))])
def test_a_network_beside_itself(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed in the zoo or not."""
    images = np.random.default_rng(5).uniform(0, 1, (12, 784) if zoo.card(name).data == "mnist" else (12, 3, 32, 32))
    monkeypatch.setattr(reproduction, "load_images", lambda data, part: (images, np.arange(12) % 10))
    path = tmp_path / f"{name}.clkm"
    zoo.load_model(name).save(path)
    found = reproduction.compare(name, tmp_path)
    assert found["same_bytes"] and found["same_answers"] == 1.0 and found["zoo"] == found["reproduced"]
    assert found["zoo"]["bootstraps"] == zoo.card(name).facts["bootstraps"]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        reproduction.compare(name, tmp_path)
