"""Naive Bayes: linear in the features, or in the features and their squares, which the client makes. No bootstraps."""

from __future__ import annotations

from sklearn import naive_bayes

from cloakwork.training.estimators.encrypted import Probabilities


class GaussianNB(Probabilities, naive_bayes.GaussianNB):
    """Normal features; the client squares them."""


class MultinomialNB(Probabilities, naive_bayes.MultinomialNB):
    """Counts."""


class BernoulliNB(Probabilities, naive_bayes.BernoulliNB):
    """Features that are there or not; the client compares them with the threshold."""
