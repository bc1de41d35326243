"""A linear model as a program without bootstraps: one Linear node on the integers that the client encrypts."""

from __future__ import annotations

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Reals
from cloakwork.models.graph.ir import Graph, Input, Linear, check_levelled
from cloakwork.models.linear.linear_quantisation import LinearQuantisation
from cloakwork.models.program import Program


def linear_program(quantised: LinearQuantisation, params: ParameterSet, origin: str) -> Program:
    """Returns a program of integers q [features] -> sums and what is added to them [outputs], both at `step` of the torus for a unit."""
    outputs, features = quantised.weights.shape
    node = Linear(
        features,
        np.arange(features, dtype=np.int64)[None],
        np.zeros(1, dtype=np.int64),
        quantised.weights[None],
        quantised.added[None].astype(np.float64),
        origin,
    )
    largest = np.abs(quantised.weights).sum(axis=1) * float(quantised.levels) + np.abs(quantised.added)
    upper: Reals = np.concatenate([np.full(features, float(quantised.levels)), np.maximum(largest, 1.0)])
    scale, offset = np.full(features + outputs, quantised.step), np.zeros(features + outputs)
    graph = Graph(
        (Input(0, (features,), "features"), node),
        np.arange(features, features + outputs, dtype=np.int64),
        lower=-upper,
        upper=upper,
        scale=scale,
        offset=offset,
    )
    noise_percent = 0.0  # no look-up sees any
    return Program(check_levelled(graph), params, noise_percent)
