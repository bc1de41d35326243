"""A linear classifier whose label alone the client decrypts: scores of all classes as integers, compared in pairs (graph/winner.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices
from cloakwork.models.criteria.slots import check_classes, lookup_margins, noise_limit_percent, plan_contest
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.graph.merge_equal import merge_equal
from cloakwork.models.graph.winner import Contest
from cloakwork.models.linear.linear_quantisation import Effects, LinearQuantisation, quantise_for_signs
from cloakwork.models.program import Program

_DIFFERENCE_BITS: Final = range(20, 11, -1)  # tried in turn: every five take two look-ups of each pair


@dataclass(frozen=True, eq=False)
class LinearLabels:
    quantised: LinearQuantisation
    program: Program  # without the client's steps


def effects_of_labels(effects: Effects, threshold: float) -> Effects:
    """Returns one score for each class, the largest wins. One score against a threshold is that of the second class, the first having 0.

    What all classes have in common changes no label, so that it is left out of the constants. One that is too small to be reached has no more than
    that says.
    """
    if len(effects.at_centre) == 1:
        of_features = np.concatenate([np.zeros_like(effects.of_features), effects.of_features])
        effects = Effects(of_features, np.array([0.0, effects.at_centre[0] - threshold]))
    reach = float(np.abs(effects.of_features).sum(axis=1).max())
    behind = np.maximum(effects.at_centre - effects.at_centre.max(), -4 * reach)
    return Effects(effects.of_features, behind - behind.mean(), compared=True)


def linear_labels(effects: Effects, params: ParameterSet, p_fail_log2: float, bits: int | None) -> LinearLabels:
    """Returns scores as fine as the set has room for.

    Raises:
        CompileError: more than 64 classes.
        NoParameterSetError: the set's look-ups are too noisy to compare such sums.
    """
    classes = len(effects.at_centre)
    check_classes(classes)
    pairs = list(combinations(range(classes), 2))
    for difference_bits in _DIFFERENCE_BITS:
        quantised = quantise_for_signs(effects, difference_bits, bits)
        if quantised is None:
            continue
        weights = quantised.weights.astype(np.float64)
        norm = max(float(np.linalg.norm(weights[a] - weights[b])) for a, b in pairs)
        variance = noise.linear_variance(noise.fresh_variance(params) + (1 / params.modulus) ** 2, norm)
        no_leads: Indices = np.zeros((classes, classes), dtype=np.int64)
        contest = plan_contest(no_leads, difference_bits, variance, params, p_fail_log2)
        if contest is not None and contest.plan.bits == difference_bits:
            return LinearLabels(quantised, _program(quantised, contest, params, p_fail_log2))
    raise NoParameterSetError(
        f"tell='labels': look-ups of '{params.name}' are too noisy to compare sums of {effects.of_features.shape[1]} features"
        + ("" if bits is None else f" of {bits} bits")
        + "; use large16, "
        + ("" if bits is None else "fewer bits, ")
        + "or let the client decrypt the scores"
    )


def _program(quantised: LinearQuantisation, contest: Contest, params: ParameterSet, p_fail_log2: float) -> Program:
    builder, levels = GraphBuilder(), float(quantised.levels)
    wires = builder.input(
        quantised.weights.shape[1], WireEncoding(quantised.step, -levels, levels), "features"
    ).tolist()
    rows = [
        Row({wire: weight for wire, weight in zip(wires, row_weights, strict=True) if weight}, float(added))
        for row_weights, added in zip(quantised.weights.tolist(), quantised.added.tolist(), strict=True)
    ]
    graph = merge_equal(builder.graph(contest.output(builder, rows)))
    limits = {name: noise_limit_percent(params, at, p_fail_log2) for name, at in lookup_margins(graph).items()}
    return replace(Program(graph, params, min(limits.values()), limits), output_unit=contest.output_unit)
