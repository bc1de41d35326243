"""Trees whose scores the client decrypts: the cheapest plan of look-ups and sums, as a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices
from cloakwork.models.client_steps import Combine, Digits, OutputStep, Wrap
from cloakwork.models.criteria.choose_set import lookup_margins, noise_limit_percent
from cloakwork.models.graph.ir import Graph
from cloakwork.models.program import Program
from cloakwork.models.program.facts import Facts
from cloakwork.models.trees.ensemble import Edges, TreeEnsemble, edges_of
from cloakwork.models.trees.grid_bits import BitSource, ClientBits, GridBits
from cloakwork.models.trees.options import TreeOptions
from cloakwork.models.trees.plan_facts import plan_facts
from cloakwork.models.trees.plans import Compared, TreeDemands, TreePlan, cheapest_plan
from cloakwork.models.trees.position_bits import PositionBits, digit_code, position_step
from cloakwork.models.trees.tree_program import read_edges, tree_graph, used_edges


def compile_scores(ensemble: TreeEnsemble, options: TreeOptions) -> Program:
    """Raises NoParameterSetError: no candidate has room for the trees."""
    edges, node_edges = edges_of(ensemble)
    demands = tree_demands(ensemble, edges, options)
    compared = Compared(ensemble, edges, node_edges)
    plan = cheapest_plan(compared, demands, options.offered, options.last_resorts)
    source = bit_source(ensemble, edges, plan, options)
    graph = tree_graph(plan.covers, plan.layout, source, plan.factor)
    return Program(
        graph,
        plan.params,
        noise_limit_percent(plan.params, 1 / (4 * plan.layout.slots), options.p_fail_log2),
        other_limits(graph, plan, options.p_fail_log2),
        input_steps=(*options.first_steps(ensemble), source.step),
        output_steps=_output_steps(ensemble, plan),
        output_unit=1 / plan.layout.units,
        facts=Facts(trees=plan_facts(ensemble, edges, plan, graph)),
    )


def tree_demands(ensemble: TreeEnsemble, edges: Edges, options: TreeOptions) -> TreeDemands:
    demands = TreeDemands(options.noisy_bits, options.leaf_bits, options.p_fail_log2)
    if options.thresholds == "server":
        return replace(demands, comparison_lookups=_position_lookups(ensemble, edges, options))
    if options.step is not None and options.wide:
        wide = options.step.digit[edges.feature] > 0
        return replace(demands, comparison_lookups=_majorities(edges, wide), wide=wide)
    return demands


def bit_source(ensemble: TreeEnsemble, edges: Edges, plan: TreePlan, options: TreeOptions) -> BitSource:
    layout = plan.layout
    if options.thresholds == "client":
        used = used_edges(plan.covers)  # a program has an input
        return ClientBits(edges, used, layout.units, ensemble.strict, ensemble.single)
    read = read_edges(plan.covers)
    if options.step is not None:
        return GridBits(edges, read, options.step, layout.units, layout.slots, plan.covers.digit_sums)
    code = digit_code(plan.params, options.p_fail_log2)
    return PositionBits(edges, read, position_step(ensemble, options.grids, code), code, layout.slots)


def _majorities(edges: Edges, wide: NDArray[np.bool_]) -> Callable[[ParameterSet, Indices], int]:
    """Of grids in two digits, likewise."""
    points = np.stack([edges.feature, edges.rank], axis=1)
    return lambda _params, looked_up: len(np.unique(points[looked_up[wide[looked_up]]], axis=0))


def _position_lookups(
    ensemble: TreeEnsemble, edges: Edges, options: TreeOptions
) -> Callable[[ParameterSet, Indices], int]:
    """Returns the position lookups of thresholds="server", for the choice of a set."""

    def lookups(params: ParameterSet, read: Indices) -> int:
        code = digit_code(params, options.p_fail_log2)
        return PositionBits(edges, read, position_step(ensemble, options.grids, code), code, slots=1).lookups

    return lookups


def other_limits(graph: Graph, plan: TreePlan, p_fail_log2: float) -> dict[str, float]:
    """Returns noise limits of the layers whose look-ups tell more or fewer values apart than those of leaves."""
    usual = 1 / (4 * plan.layout.slots)
    return {
        name: noise_limit_percent(plan.params, margin, p_fail_log2)
        for name, margin in lookup_margins(graph).items()
        if margin != usual
    }


def _output_steps(ensemble: TreeEnsemble, plan: TreePlan) -> tuple[OutputStep, ...]:
    """Returns integers of the groups, their digits where they have several, the scores, and what follows them."""
    layout = plan.layout
    scalar = [plan.integers.scalar_trees[group.members[0]] for group in layout.groups]
    width = max(len(scalar_tree.radix) for scalar_tree in scalar)
    digits = []
    if width > 1:
        rows = [scalar_tree.radix if len(scalar_tree.radix) > 1 else (layout.units,) for scalar_tree in scalar]
        digits = [Digits(np.array([row + (1,) * (width - len(row)) for row in rows], dtype=np.int64))]
    return (
        Wrap(np.array([group.reads_from(layout.units) for group in layout.groups]), layout.units),
        *digits,
        Combine(np.concatenate([scalar_tree.contribution for scalar_tree in scalar]), plan.integers.offset),
        *ensemble.output_steps,
    )
