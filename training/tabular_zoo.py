"""Trains and compiles the zoo's models of tables: `python -m cloakwork.training.tabular_zoo [FOLDER]`.

Each is written as a compiled program with the held-out samples of its data set and what the fitted estimator says about them, so that the
demonstrations need neither scikit-learn nor data.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cloakwork import estimators
from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.program.program import named
from cloakwork.training.tabular_data import TabularData, load_tabular

COMMAND: Final = "python -m cloakwork.training.tabular_zoo FOLDER"  # as cards name it
SOURCES: Final = {
    "iris": "Fisher, Iris, UCI Machine Learning Repository (CC BY 4.0)",
    "breast-cancer": "Wolberg, Mangasarian, Street, Breast Cancer Wisconsin (Diagnostic), UCI Machine Learning Repository (CC BY 4.0)",
    "wine": "Aeberhard, Forina, Wine, UCI Machine Learning Repository (CC BY 4.0)",
    "digits": "Alpaydin, Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (CC BY 4.0)",
}


@dataclass(frozen=True)
class Recipe:
    """An estimator of `cloakwork.estimators` on one of the data sets."""

    name: str
    data: str
    description: str
    estimator: Callable[[], Any]


RECIPES: Final = (
    Recipe("iris-tree", "iris", "decision tree", lambda: estimators.DecisionTreeClassifier(random_state=0)),
    Recipe(
        "breast-cancer-forest",
        "breast-cancer",
        "random forest of 20 trees, depth up to 6",
        lambda: estimators.RandomForestClassifier(20, max_depth=6, random_state=0),
    ),
    Recipe(
        "wine-boosting",
        "wine",
        "XGBoost, 7 rounds of 3 trees, depth up to 3",
        lambda: estimators.XGBClassifier(n_estimators=7, max_depth=3, learning_rate=0.5),
    ),
    Recipe(
        "digits-logistic", "digits", "logistic regression", lambda: estimators.LogisticRegression(C=0.1, max_iter=500)
    ),
)


def build(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Fits, compiles and writes one model; returns the facts of its card."""
    data = load_tabular(recipe.data)
    estimator = recipe.estimator().fit(data.train_x, data.train_y)
    clear = estimator.predict(data.test_x)
    model = _named(estimator.compile(_calibration(data)), data)
    quantised = estimator.predict(data.test_x)
    facts = {
        "accuracy_clear": float((clear == data.test_y).mean()),
        "accuracy_quantised": float((quantised == data.test_y).mean()),
        "parameter_set": model.program.parameters.name,
        "bootstraps": model.program.bootstraps,
        "classes": list(data.class_names),
        "feature_names": list(data.feature_names),
        "source": SOURCES[recipe.data],
        "recipe": COMMAND,
        **zoo.write_held_out(recipe.name, data.test_x, data.test_y, np.asarray(clear, dtype=np.int64), folder),
    }
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{recipe.name}{zoo.PROGRAM}"
        model.save(path)
        zoo.add_model(recipe.name, path, description=recipe.description, data=recipe.data, facts=facts, folder=folder)
    return facts


def _named(model: CompiledModel, data: TabularData) -> CompiledModel:
    """Estimators know numbers; people who use the model see names."""
    labels = zoo.labels_of(data.class_names)
    classes = None if labels.dtype.kind == "i" else data.class_names
    return CompiledModel(named(model.program, data.feature_names, classes))


def _calibration(data: TabularData) -> np.ndarray:
    """Returns the training samples; of pixels also the ends of their scale, which some never reach."""
    if data.name != "digits":
        return data.train_x
    return np.concatenate([data.train_x, np.zeros((1, 64)), np.full((1, 64), 16.0)])


def main(folder: Path = zoo.FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for recipe in RECIPES:
        facts = build(recipe, folder)
        sys.stdout.write(
            f"{recipe.name}: {facts['accuracy_clear']:.4f} clear, {facts['accuracy_quantised']:.4f} quantised, "
            f"{facts['bootstraps']} bootstraps, {facts['parameter_set']}\n"
        )


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
