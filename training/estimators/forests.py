"""Trees, forests and boosting of scikit-learn: thresholds on a public grid, comparisons with them exact, leaves selected by bootstraps.

`compile(X, thresholds=..)`: "grid" (default) and "server" keep the thresholds on the server, by bits of the grid or by positions on it (small
uploads, more bootstraps); "client" tells them to every client.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn import ensemble, tree

from cloakwork.models.errors import CompileError
from cloakwork.models.modes import How
from cloakwork.models.program.facts import Facts
from cloakwork.training.estimators.encrypted import Decisions, EncryptedEstimator, Probabilities

if TYPE_CHECKING:
    from cloakwork.fhe_core.client import ClientKey
    from cloakwork.fhe_core.server import Session


class DecisionTreeClassifier(Probabilities, tree.DecisionTreeClassifier):
    """A decision tree."""


class DecisionTreeRegressor(EncryptedEstimator, tree.DecisionTreeRegressor):
    """A regression tree."""


class RandomForestClassifier(Probabilities, ensemble.RandomForestClassifier):
    """The mean of the class shares of randomised trees."""


class RandomForestRegressor(EncryptedEstimator, ensemble.RandomForestRegressor):
    """The mean of randomised regression trees."""


class ExtraTreesClassifier(Probabilities, ensemble.ExtraTreesClassifier):
    """The mean of the class shares of trees with random thresholds."""


class ExtraTreesRegressor(EncryptedEstimator, ensemble.ExtraTreesRegressor):
    """The mean of regression trees with random thresholds."""


class AdaBoostClassifier(Probabilities, Decisions, ensemble.AdaBoostClassifier):
    """Weighted votes of small trees."""


class BaggingClassifier(Probabilities, ensemble.BaggingClassifier):
    """The mean of trees, or of linear models, of samples of the data."""


class BaggingRegressor(EncryptedEstimator, ensemble.BaggingRegressor):
    """The mean of trees, or of linear models, of samples of the data."""


class GradientBoostingClassifier(Probabilities, Decisions, ensemble.GradientBoostingClassifier):
    """A sum of regression trees; the client makes probabilities of it."""


class GradientBoostingRegressor(EncryptedEstimator, ensemble.GradientBoostingRegressor):
    """A sum of regression trees."""


class HistGradientBoostingClassifier(Probabilities, Decisions, ensemble.HistGradientBoostingClassifier):
    """Boosting on histograms."""


class HistGradientBoostingRegressor(EncryptedEstimator, ensemble.HistGradientBoostingRegressor):
    """Boosting on histograms."""


class IsolationForest(EncryptedEstimator, ensemble.IsolationForest):
    """Outliers by the mean length of their paths; the client makes scores of the sum of lengths."""

    def _with_own(self, facts: Facts) -> Facts:
        return replace(facts, offset=float(self.offset_))

    def _restore(self) -> None:
        super()._restore()
        offset = self.compiled_.program.facts.offset
        if offset is None:
            raise CompileError(
                "IsolationForest.load: expected a program with the offset of its scores; compile it again"
            )
        self.offset_ = float(offset)

    def predict(self, X: Any, *args: Any, how: How = "clear", **options: Any) -> NDArray[Any]:  # noqa: N803
        """Returns -1 for outliers, 1 for others; arguments as of the other estimators' `predict`."""
        if self._by_original(how, args, {}):
            return super().predict(X, *args, **options)
        return np.where(self.decision_function(X, how=how, **options) < 0, -1, 1)

    def decision_function(self, X: Any, *, how: How = "clear", **options: Any) -> NDArray[Any]:  # noqa: N803
        """Returns scores, negative for outliers."""
        if self._by_original(how, (), {}):
            return super(EncryptedEstimator, self).decision_function(X)  # type: ignore[no-any-return]
        shifted: NDArray[Any] = self.score_samples(X, how=how, **options) - self.offset_
        return shifted

    def score_samples(
        self,
        X: Any,  # noqa: N803
        *,
        how: How = "clear",
        key: ClientKey | None = None,
        session: Session | None = None,
        seed: int | None = None,
    ) -> NDArray[Any]:
        """Returns scores: the lower, the more abnormal."""
        if self._by_original(how, (), {}):
            return super(EncryptedEstimator, self).score_samples(X)  # type: ignore[no-any-return]
        return self._encrypted(X, "probabilities", how, key, session, seed)[:, 0]
