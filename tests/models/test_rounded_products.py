"""Sets with rounded products are taken where somebody names them, and never otherwise; reports say so."""

from __future__ import annotations

import numpy as np
import pytest

from cloakwork.fhe_core.parameters import offered_sets, parameter_set, products_of
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble
from tests.models.trees.tree_models import random_tree

NAME = "lut4_fft"
SAMPLES = np.random.default_rng(5).uniform(-1, 1, (400, 4))
FOREST = TreeEnsemble((random_tree(np.random.default_rng(2), 3, 3, 1, 5, None, False),), 3, "sum", base=np.zeros(1))
LINEAR = LinearModel(coefficients=np.array([[1.0, -2.0, 0.5, 0.25]]), intercept=np.array([0.5]))


@pytest.mark.parametrize("structured", [False, True])
def test_they_are_not_offered(structured: bool) -> None:
    assert not any(params.rounded_products for params in offered_sets(structured))


def test_models_take_them_by_name() -> None:
    assert compile_ensemble(FOREST, sets=[NAME], thresholds="client").program.parameters.name == NAME
    assert compile_linear(LINEAR, SAMPLES, sets=NAME).program.parameters.name == NAME


def test_reports_say_so() -> None:
    assert products_of(parameter_set(NAME)) in compile_ensemble(FOREST, sets=[NAME], thresholds="client").details
    assert "rounded products" not in compile_ensemble(FOREST, thresholds="client").details
