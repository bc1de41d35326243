"""Support vector machines: kernels linear, poly and rbf, for many encrypted samples at once (docs/howto/levelled.md)."""

from __future__ import annotations

from sklearn import svm

from cloakwork.training.estimators.batches import BatchClassifier, BatchEstimator


class SVC(BatchClassifier, svm.SVC):
    """Support vector classification; `predict_proba` is the original's, in clear."""


class NuSVC(BatchClassifier, svm.NuSVC):
    """The same with a share of support vectors; `predict_proba` is the original's, in clear."""


class SVR(BatchEstimator, svm.SVR):
    """Support vector regression."""


class NuSVR(BatchEstimator, svm.NuSVR):
    """The same with a share of support vectors."""
