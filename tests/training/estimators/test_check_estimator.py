"""scikit-learn's own checks: what fails for an estimator of ours fails for the one that it extends.

Nothing else is excepted; XGBoost and LightGBM, whose own classes are not made for these checks, are held to the same. The checks of ensembles
take minutes: tier `test` has one class, tier `all` one of each mixin and library, tier `release` every class.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
estimator_checks = pytest.importorskip("sklearn.utils.estimator_checks")
pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("xgboost", reason="XGBoost is not installed")

from cloakwork import estimators  # noqa: E402

# Sizes that keep the checks quick.
SMALL: dict[str, dict[str, Any]] = {
    "n_estimators": {"n_estimators": 3},
    "max_iter": {"max_iter": 3},
    "hidden_layer_sizes": {"hidden_layer_sizes": (3,), "max_iter": 5},
}
QUICK = ("DecisionTreeClassifier",)
CONTINUOUS = ("KMeans", "LGBMRegressor", "LinearSVC", "LogisticRegression", "Ridge", "XGBClassifier")


def tiered(name: str) -> Any:
    if name in QUICK:
        return name
    return pytest.param(name, marks=pytest.mark.tier("all" if name in CONTINUOUS else "release"))


def small(cls: type) -> Any:
    parameters: dict[str, Any] = {}
    accepted = cls().get_params()
    for name, values in SMALL.items():
        if name in accepted and not (name == "max_iter" and "HistGradient" not in cls.__name__):
            parameters |= values
    if "verbose" in accepted and cls.__name__.startswith("LGBM"):
        parameters["verbose"] = -1
    return cls(**parameters)


def failures(estimator: Any) -> set[str]:
    if not hasattr(estimator_checks, "estimator_checks_generator"):
        pytest.skip("scikit-learn is older than 1.6, whose check_estimator does not report all failures")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = estimator_checks.check_estimator(estimator, on_fail=None, on_skip=None)
    assert len(results) > 30
    return {result["check_name"] for result in results if result["status"] == "failed"}


@pytest.mark.parametrize("name", [tiered(name) for name in estimators.__all__])
def test_no_check_fails_that_the_original_passes(name: str) -> None:
    cls = getattr(estimators, name)
    found = failures(small(cls))
    if not found:
        return
    original = next(
        base for base in cls.__mro__ if not base.__module__.startswith("cloakwork") and base.__name__ == name
    )
    assert found <= failures(small(original))
