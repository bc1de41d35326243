"""The recipes of the zoo's models of tables: data splits, and that a recipe makes what the zoo holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from cloakwork.models import zoo
from cloakwork.models.errors import CompileError
from cloakwork.training.tabular_data import NAMES, load_tabular
from cloakwork.training.tabular_zoo import RECIPES, build


@pytest.mark.parametrize("name", NAMES)
def test_splits_are_stratified_and_always_the_same(name: str) -> None:
    data, again = load_tabular(name), load_tabular(name)
    assert np.array_equal(data.test_x, again.test_x) and np.array_equal(data.train_y, again.train_y)
    assert data.train_x.shape[1] == len(data.feature_names)
    shares = [np.bincount(y) / len(y) for y in (data.train_y, data.test_y)]
    assert np.abs(shares[0] - shares[1]).max() < 0.03 and len(shares[0]) == len(data.class_names)
    assert name != "iris" or (len(data.train_x), len(data.test_x)) == (100, 50)


def test_another_data_set_is_refused() -> None:
    with pytest.raises(CompileError, match="data set: expected iris, breast-cancer, wine, digits, got 'cifar'"):
        load_tabular("cifar")


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(recipe, marks=[] if recipe.data == "iris" else pytest.mark.tier("all"), id=recipe.name)
        for recipe in RECIPES
        if recipe.data in ("iris", "digits")
    ],
)
def test_a_recipe_makes_the_model_of_the_zoo(recipe, tmp_path: Path) -> None:
    facts = build(recipe, tmp_path)
    found = zoo.card(recipe.name).facts
    assert facts["bootstraps"] <= found["bootstraps"] + 2  # versions of scikit-learn may differ
    assert facts["accuracy_quantised"] == pytest.approx(found["accuracy_quantised"], abs=0.03)
    assert (tmp_path / f"{recipe.name}.clkm").stat().st_size > 1000
    assert (tmp_path / f"{recipe.name}.samples.npz").exists()
