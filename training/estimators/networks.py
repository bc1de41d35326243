"""Multilayer perceptrons: one bootstrap for each hidden neuron, approximate."""

from __future__ import annotations

from sklearn import neural_network

from cloakwork.training.estimators.encrypted import EncryptedEstimator, Probabilities


class MLPClassifier(Probabilities, neural_network.MLPClassifier):
    """A network of dense layers; the client makes probabilities of the logits."""


class MLPRegressor(EncryptedEstimator, neural_network.MLPRegressor):
    """A network of dense layers."""
