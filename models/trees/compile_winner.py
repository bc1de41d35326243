"""Classifiers of several trees and classes, or of finer leaf values than one look-up tells apart, whose label alone the client decrypts: scores
of all classes as integers, compared in pairs (winner.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps import Integers, Pick
from cloakwork.models.client_steps.transforms import class_threshold
from cloakwork.models.criteria.choose_set import (
    ARGMAX_CANDIDATES,
    bootstrap_cost,
    check_classes,
    choose_set,
    named_sets,
    noise_limit_percent,
    plan_contest,
    winner_p_fail_log2,
)
from cloakwork.models.errors import NoParameterSetError, some
from cloakwork.models.graph.graph_builder import GraphBuilder, Row
from cloakwork.models.graph.ir import Graph
from cloakwork.models.graph.merge_equal import merge_equal
from cloakwork.models.graph.winner import Contest
from cloakwork.models.program import Program
from cloakwork.models.program.facts import Facts, TreeFacts
from cloakwork.models.trees.compile_scores import bit_source, other_limits, tree_demands
from cloakwork.models.trees.ensemble import TreeEnsemble, edges_of
from cloakwork.models.trees.grid_bits import BitSource
from cloakwork.models.trees.leaf_integers import LeafIntegers, leaf_integers
from cloakwork.models.trees.options import TreeOptions
from cloakwork.models.trees.plan_facts import plan_facts
from cloakwork.models.trees.plans import Compared, TreeDemands, TreePlan, covers_of, slots_of
from cloakwork.models.trees.tree_program import OutputGroup, TreeLayout, score_rows

_MOST_LEAF_BITS: Final = {"mean": 8, "sum": 10}  # tried first: finer scores take hardly more look-ups
_LEAST_LEAF_BITS: Final = 3
_SHARES: Final = (1.0, 0.7, 0.5)  # of the noise for differences of scores, tried in turn
_FRACTION: Final = 1 << 20  # of a unit: to which constants of scores are rounded, so that equal ones stay equal


@dataclass(frozen=True, eq=False)
class _Scores:
    """Scores as integers: class k has constants[k] + sum of members[g, k] * group g, in units."""

    members: Indices  # [groups, classes]: 0, 1 or -1
    constants: tuple[int, ...]  # of the classes, in units / _FRACTION
    groups: tuple[OutputGroup, ...]

    def compared(self, pairs: list[tuple[int, int]]) -> tuple[Indices, int]:
        """Returns what the differences of whole numbers lack [classes, classes], and the bits that every difference then has, sign included.

        Differences of constants are rounded down, which changes no comparison of whole numbers; those that decide whatever the trees say are as
        small as that takes.
        """
        low = np.array([group.lowest for group in self.groups])
        high = np.array([group.highest for group in self.groups])
        classes, most = len(self.constants), 1
        leads = np.zeros((classes, classes), dtype=np.int64)
        for a, b in pairs:
            weights = self.members[:, a] - self.members[:, b]
            least = int(np.where(weights > 0, weights * low, weights * high).sum())
            largest = int(np.where(weights > 0, weights * high, weights * low).sum())
            lead = (self.constants[a] - self.constants[b]) // _FRACTION
            leads[a, b] = min(max(lead, -largest - 1), -least)
            most = max(most, -(least + int(leads[a, b])), largest + int(leads[a, b]) + 1)
        return leads, (most - 1).bit_length() + 1

    def norm(self, pairs: list[tuple[int, int]]) -> float:
        """Returns L2, of a difference on the outputs of look-ups, the largest."""
        lookups = np.array([group.lookups for group in self.groups])
        return math.sqrt(max(((self.members[:, a] - self.members[:, b]) ** 2 * lookups).sum() for a, b in pairs))


def compile_winner(ensemble: TreeEnsemble, options: TreeOptions) -> Program:
    """Raises NoParameterSetError: the scores are too fine, or too many trees, for the noise of every candidate."""
    assert ensemble.labels is not None
    check_classes(len(ensemble.labels))
    plain = _with_score_of_each(ensemble)
    sets = named_sets(ARGMAX_CANDIDATES, False) if options.sets is None else options.offered
    edges, node_edges = edges_of(plain)
    compared = Compared(plain, edges, node_edges)
    demands = tree_demands(plain, edges, options)
    cheapest = choose_set(
        sets, lambda params: _made(compared, demands, params, options), lambda candidate: candidate.cost
    )
    if cheapest is None:
        raise NoParameterSetError(
            f"tell='labels': scores of {len(ensemble.trees)} trees are too many for the noise of {some(p.name for p in sets)}; use fewer trees, "
            "fewer leaf_bits, or let the client decrypt the scores"
        )
    plan = cheapest.plan
    return Program(
        cheapest.graph,
        plan.params,
        noise_limit_percent(plan.params, 1 / (4 * plan.layout.slots), options.p_fail_log2),
        other_limits(cheapest.graph, plan, options.p_fail_log2),
        input_steps=(*options.first_steps(ensemble), cheapest.source.step),
        output_steps=(Integers(), Pick(ensemble.labels)),
        output_unit=cheapest.contest.output_unit,
        facts=Facts(trees=cheapest.facts, tell="labels"),
    )


@dataclass(frozen=True, eq=False)
class _Made:
    plan: TreePlan
    contest: Contest
    source: BitSource
    graph: Graph
    facts: TreeFacts

    @property
    def cost(self) -> float:
        return self.graph.bootstraps * bootstrap_cost(self.plan.params)


def _made(compared: Compared, demands: TreeDemands, params: ParameterSet, options: TreeOptions) -> _Made | None:
    """Returns the program under one set; None when its noise leaves no room."""
    for share in _SHARES:
        planned = _plan(compared, demands, params, share)
        if planned is None:
            return None
        plan, contest, scores = planned
        source = bit_source(compared.ensemble, compared.edges, plan, options)
        builder = GraphBuilder()
        groups = score_rows(builder, plan.covers, plan.layout, source, plan.factor)
        output = contest.output(builder, [_of_class(groups, members) for members in scores.members.T])
        graph = merge_equal(builder.graph(output))
        facts = replace(plan_facts(compared.ensemble, compared.edges, plan, graph), outputs=1)
        # Look-ups of several classes that are equal add up as one.
        if facts.lookup_p_fail_log2 <= demands.p_fail_log2:
            return _Made(plan, contest, source, graph, facts)
    return None


def _with_score_of_each(ensemble: TreeEnsemble) -> TreeEnsemble:
    """Returns one output for each class, largest wins; one score against a threshold becomes that of the second class, the first having 0."""
    assert ensemble.base is not None
    if ensemble.outputs > 1:
        return replace(ensemble, labels=None, transform="none")
    trees = tuple(replace(tree, values=np.pad(tree.values, ((0, 0), (1, 0)))) for tree in ensemble.trees)
    base = np.array([0.0, float(ensemble.base[0]) - class_threshold(ensemble.transform)])
    return replace(ensemble, trees=trees, base=base, labels=None, transform="none")


def _plan(
    compared: Compared, demands: TreeDemands, params: ParameterSet, share: float
) -> tuple[TreePlan, Contest, _Scores] | None:
    """Plans the finest leaf values that fit; None when none do.

    Args:
        share: of the noise that differences of scores may have.
    """
    most = _MOST_LEAF_BITS[compared.ensemble.aggregation] if demands.leaf_bits is None else demands.leaf_bits
    least = min(most, _LEAST_LEAF_BITS) if demands.leaf_bits is None else most
    try:
        slots = 1 << (slots_of(demands, params).bit_length() - 1)
        for bits in range(most, least - 1, -1):
            integers = leaf_integers(compared.ensemble, bits, 1)
            chosen = [(scalar_tree.tree, scalar_tree.values) for scalar_tree in integers.scalar_trees]
            used_slots, (covers, *_) = covers_of(compared, chosen, demands, params, slots)
            scores = _scores(integers, [(c.lowest, c.highest, len(c.lookups)) for c in covers.trees])
            contest = _contest(scores, demands, params, share)
            if contest is not None:
                layout = TreeLayout(
                    used_slots, 1 << contest.plan.bits, scores.groups, winner_p_fail_log2(params, contest)
                )
                return TreePlan(params, integers, covers, layout, bits, demands.server), contest, scores
    except NoParameterSetError:
        return None
    return None


def _scores(integers: LeafIntegers, covers: list[tuple[int, int, int]]) -> _Scores:
    """Groups scalar trees that contribute alike. Args: covers: lowest and highest value and look-ups of each."""
    unit = max(float(np.abs(scalar_tree.contribution).max()) for scalar_tree in integers.scalar_trees) or 1.0
    members: dict[tuple[int, ...], list[int]] = {}
    for number, scalar_tree in enumerate(integers.scalar_trees):
        members.setdefault(tuple(np.rint(scalar_tree.contribution[0] / unit).astype(int).tolist()), []).append(number)
    groups = []
    for alike in members.values():
        low, high, lookups = (sum(column) for column in zip(*(covers[i] for i in alike), strict=True))
        groups.append(OutputGroup(tuple(alike), low, high, lookups))
    # Exactly: a constant may be any number of units.
    constants = tuple(round(Fraction(offset) * _FRACTION / Fraction(unit)) for offset in integers.offset.tolist())
    return _Scores(np.array(list(members), dtype=np.int64), constants, tuple(groups))


def _contest(scores: _Scores, demands: TreeDemands, params: ParameterSet, share: float) -> Contest | None:
    pairs = list(combinations(range(len(scores.constants)), 2))
    leads, bits = scores.compared(pairs)
    variance = (scores.norm(pairs) / share) ** 2 * noise.blind_rotation_variance(params)
    return plan_contest(leads, bits, variance, params, demands.p_fail_log2)


def _of_class(groups: list[Row], members: Reals) -> Row:
    weights: dict[int, int] = {}
    constant = 0.0
    for row, sign in zip(groups, members.tolist(), strict=True):
        if sign:
            constant += sign * row.constant
            for wire, weight in row.weights.items():
                weights[wire] = weights.get(wire, 0) + sign * weight
    return Row(weights, constant)
