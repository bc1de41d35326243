"""The linear models: no bootstraps, exact integer sums."""

from __future__ import annotations

from sklearn import discriminant_analysis, linear_model, svm
from sklearn.utils.metaestimators import available_if

from cloakwork.training.estimators.encrypted import Decisions, EncryptedEstimator, Probabilities


class LinearRegression(EncryptedEstimator, linear_model.LinearRegression):
    """Least squares."""


class Ridge(EncryptedEstimator, linear_model.Ridge):
    """Least squares with an L2 penalty."""


class Lasso(EncryptedEstimator, linear_model.Lasso):
    """Least squares with an L1 penalty."""


class ElasticNet(EncryptedEstimator, linear_model.ElasticNet):
    """Least squares with both penalties."""


class SGDRegressor(EncryptedEstimator, linear_model.SGDRegressor):
    """Linear regression by stochastic gradient descent."""


class LinearSVR(EncryptedEstimator, svm.LinearSVR):
    """Linear support vector regression."""


class PoissonRegressor(EncryptedEstimator, linear_model.PoissonRegressor):
    """Regression of counts; the client takes the exponential."""


class GammaRegressor(EncryptedEstimator, linear_model.GammaRegressor):
    """Regression of positive values; the client takes the exponential."""


class TweedieRegressor(EncryptedEstimator, linear_model.TweedieRegressor):
    """Generalised linear regression with a Tweedie distribution."""


class LogisticRegression(Probabilities, Decisions, linear_model.LogisticRegression):
    """Logistic regression; the client makes probabilities of the decision values."""


class LinearSVC(Decisions, svm.LinearSVC):
    """Linear support vector classification."""


class RidgeClassifier(Decisions, linear_model.RidgeClassifier):
    """Least squares on -1 and 1 with an L2 penalty; several labels may hold together."""


class LinearDiscriminantAnalysis(Probabilities, Decisions, discriminant_analysis.LinearDiscriminantAnalysis):
    """Normal classes of one covariance."""


class SGDClassifier(Probabilities, Decisions, linear_model.SGDClassifier):
    """Linear classifiers by stochastic gradient descent; probabilities where the loss has them."""

    def _has_probabilities(self) -> bool:
        return self.loss in ("log_loss", "modified_huber")

    predict_proba = available_if(_has_probabilities)(Probabilities.predict_proba)
