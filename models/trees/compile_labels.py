"""Classifiers whose arg-max is taken on encrypted scores: the client decrypts a label and learns no score.

A single tree has a label in every leaf, and its look-ups return the label's number. Several trees of two classes: the sum of leaf values is the
index of one more look-up, +1/2 on one half of its circle of 2M slots and -1/2 on the other, so leaf values are as coarse as that takes: at most M
sums on either side of the decision. Votes of 20 trees fit 32 slots. Where that rounds anything, and for more classes: compile_winner.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import some_rows
from cloakwork.models.client_steps import Integers, Pick
from cloakwork.models.client_steps.transforms import CLASS_TRANSFORMS, best_class, class_threshold
from cloakwork.models.criteria.choose_set import choose_set, largest_slots, noise_limit_percent
from cloakwork.models.errors import AccuracyWarning, CompileError, NoParameterSetError, warn_user
from cloakwork.models.original.agreement import verdict_of
from cloakwork.models.program import Program
from cloakwork.models.program.facts import Facts
from cloakwork.models.trees.compile_scores import bit_source, compile_scores
from cloakwork.models.trees.compile_winner import compile_winner
from cloakwork.models.trees.cover import cover_trees, index_of
from cloakwork.models.trees.cover_costs import Budget
from cloakwork.models.trees.ensemble import Edges, TreeEnsemble, edges_of
from cloakwork.models.trees.flat_trees import Skeleton
from cloakwork.models.trees.index_weights import MOST_SLOTS
from cloakwork.models.trees.leaf_integers import LeafIntegers, leaf_integers
from cloakwork.models.trees.on_grid import COMPARED, ENOUGH_AGREEMENT, answers_of, calibration_table
from cloakwork.models.trees.options import TreeOptions
from cloakwork.models.trees.plan_facts import plan_facts
from cloakwork.models.trees.plans import TreePlan
from cloakwork.models.trees.tree_program import (
    DECISION_UNIT,
    OutputGroup,
    TreeLayout,
    flag_weights,
    tree_graph,
)

_FEWEST_SLOTS: Final = 2
_NEAR: Final = 1e-9  # of a unit: sums so near to the decision count as ties, which the first class wins


def compile_labels(ensemble: TreeEnsemble, options: TreeOptions) -> Program:
    """Compiles labels; several trees take the leaf bits that fit."""
    if ensemble.labels is None or ensemble.transform not in CLASS_TRANSFORMS:
        raise CompileError("tell='labels': expected a classifier; regression has no label")
    if len(ensemble.trees) == 1:
        return _single_tree(ensemble, options)
    if len(ensemble.labels) != 2 or options.noisy_bits:
        return compile_winner(ensemble, options)
    scalar = _difference(ensemble)
    edges, node_edges = edges_of(scalar)
    sets = options.offered
    skeleton = Skeleton(scalar.trees, node_edges, edges)
    chosen = choose_set(
        sets,
        lambda params: _plan(scalar, edges, skeleton, params, options.p_fail_log2),
        lambda candidate: candidate[0].cost,
    )
    if chosen is None or not _is_exact(chosen[0].integers):
        try:
            return compile_winner(ensemble, options)
        except NoParameterSetError:
            if chosen is None:
                raise
        if not _keeps_labels(ensemble, scalar, *chosen, options):
            warn_user(_warning(chosen[0]), AccuracyWarning)
    plan, positive_from = chosen
    bits = bit_source(scalar, edges, plan, options)
    graph = tree_graph(plan.covers, plan.layout, bits, plan.factor, positive_from)
    return Program(
        graph,
        plan.params,
        noise_limit_percent(plan.params, 1 / (4 * plan.layout.slots), options.p_fail_log2),
        input_steps=(*options.first_steps(ensemble), bits.step),
        output_steps=(Integers(), Pick(ensemble.labels)),
        output_unit=DECISION_UNIT,
        facts=Facts(trees=plan_facts(scalar, edges, plan, graph), tell="labels"),
    )


def _is_exact(integers: LeafIntegers) -> bool:
    return integers.error <= _NEAR * max(
        float(np.abs(scalar_tree.contribution).max()) for scalar_tree in integers.scalar_trees
    )


def _keeps_labels(
    ensemble: TreeEnsemble, scalar: TreeEnsemble, plan: TreePlan, positive_from: int, options: TreeOptions
) -> bool:
    """Whether leaf values so coarse decide as before on enough of the calibration samples; False without any."""
    integers = plan.integers
    samples = calibration_table(ensemble, options)
    if samples is None:
        return False
    trees = tuple(
        replace(scalar.trees[scalar_tree.tree], values=scalar_tree.values[:, None].astype(np.float64))
        for scalar_tree in integers.scalar_trees
    )
    base = np.array([0.5 - positive_from])
    rounded = replace(
        scalar, trees=trees, base=base, aggregation="sum", transform="decision", labels=ensemble.labels, after=None
    )
    verdict = verdict_of(*answers_of(ensemble, rounded, some_rows(samples, COMPARED)))
    return verdict.value >= ENOUGH_AGREEMENT and verdict.reaches(options.accuracy)


def _warning(plan: TreePlan) -> str:
    return (
        f"tell='labels': leaf values are rounded until one look-up of {plan.params.name} tells their sums apart, by {plan.integers.error:.3g} "
        "of a score at most, which may change labels; leave sets out, or name large16, for finer ones"
    )


def _single_tree(ensemble: TreeEnsemble, options: TreeOptions) -> Program:
    """Returns the number of the label as the value of every leaf."""
    assert ensemble.labels is not None and ensemble.base is not None
    (tree,) = ensemble.trees
    scores = np.where(tree.left[:, None] < 0, tree.values, 0.0) + ensemble.base
    classes = best_class(scores, class_threshold(ensemble.transform))
    numbered = replace(tree, values=classes[:, None].astype(np.float64))
    plain = replace(ensemble, trees=(numbered,), base=None, labels=None, transform="none")
    bits = max(1, (len(ensemble.labels) - 1).bit_length())
    program = compile_scores(plain, replace(options, leaf_bits=bits))
    return replace(
        program,
        output_steps=(*program.output_steps[:-2], Pick(ensemble.labels)),  # in place of the transform
        facts=replace(program.facts, tell="labels"),
    )


def _difference(ensemble: TreeEnsemble) -> TreeEnsemble:
    """Returns one score that is positive where the second class wins."""
    assert ensemble.base is not None
    if ensemble.outputs == 1:
        base = ensemble.base - class_threshold(ensemble.transform)
        return replace(ensemble, base=base, labels=None, transform="none")
    trees = tuple(replace(tree, values=tree.values[:, 1:] - tree.values[:, :1]) for tree in ensemble.trees)
    return replace(ensemble, trees=trees, base=ensemble.base[1:] - ensemble.base[:1], labels=None, transform="none")


def _plan(
    scalar: TreeEnsemble, edges: Edges, skeleton: Skeleton, params: ParameterSet, p_fail_log2: float
) -> tuple[TreePlan, int] | None:
    """Returns the plan and the least positive sum; None when no leaf values are coarse enough."""
    for slots in range(min(largest_slots(params, p_fail_log2), MOST_SLOTS), _FEWEST_SLOTS - 1, -1):
        finest = _finest(scalar, slots)
        if finest is None:
            return None
        integers, positive_from, steps = finest
        trees = skeleton.trees([(scalar_tree.tree, scalar_tree.values) for scalar_tree in integers.scalar_trees])
        covers = cover_trees(trees, edges, Budget(slots, flag_weights(params, slots, p_fail_log2)))
        lookups = len({index_of(lookup) for cover in covers.trees for lookup in cover.lookups})
        variance = noise.lookup_variance(params, math.sqrt(lookups))
        failure = noise.p_fail_log2(1 / (4 * slots), variance, noise.lookup_offset(params))
        if failure <= p_fail_log2:
            low, high = (sum(ends) for ends in zip(*((c.lowest, c.highest) for c in covers.trees), strict=True))
            members = tuple(range(len(covers.trees)))
            layout = TreeLayout(slots, 2 * slots, (OutputGroup(members, low, high, lookups),), failure)
            return TreePlan(params, integers, covers, layout, steps.bit_length(), server=False), positive_from
    return None


def _finest(scalar: TreeEnsemble, slots: int) -> tuple[LeafIntegers, int, int] | None:
    """Returns the finest leaf values with at most `slots` sums on either side of the decision, and the least positive sum."""
    for steps in range(2 * slots, 0, -1):
        integers = leaf_integers(scalar, 1, 1, steps)
        leaves = [scalar_tree.values[scalar.trees[scalar_tree.tree].leaves] for scalar_tree in integers.scalar_trees]
        low, high = sum(int(values.min()) for values in leaves), sum(int(values.max()) for values in leaves)
        unit = float(integers.scalar_trees[0].contribution[0, 0]) or 1.0
        positive_from = math.floor(-float(integers.offset[0]) / unit + _NEAR) + 1
        positive_from = min(max(positive_from, low), high + 1)
        if positive_from - low <= slots and high - positive_from + 1 <= slots:
            return integers, positive_from, steps
    return None
