"""XGBoost and LightGBM; needs the extra `boosting`."""

from __future__ import annotations

import lightgbm
import xgboost
from sklearn.utils.metaestimators import available_if

from cloakwork.training.estimators.encrypted import (
    Decisions,
    EncryptedEstimator,
    Probabilities,
    ProbabilitiesAndDecisions,
)


class XGBClassifier(Probabilities, xgboost.XGBClassifier):
    """A sum of trees on float32 features."""


class XGBRegressor(EncryptedEstimator, xgboost.XGBRegressor):
    """A sum of trees on float32 features."""


class LGBMClassifier(ProbabilitiesAndDecisions, lightgbm.LGBMClassifier):
    """A sum of trees grown leaf by leaf."""

    def _has_decisions(self) -> bool:
        return hasattr(lightgbm.LGBMClassifier, "decision_function")  # from 4.7

    decision_function = available_if(_has_decisions)(Decisions.decision_function)


class LGBMRegressor(EncryptedEstimator, lightgbm.LGBMRegressor):
    """A sum of trees grown leaf by leaf."""
