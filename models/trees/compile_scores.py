"""Trees whose scores the client decrypts: the cheapest plan of look-ups and sums, as a program."""

from __future__ import annotations

import numpy as np

from cloakwork.models.client_steps import Combine, Digits, OutputStep, Wrap
from cloakwork.models.program import Program
from cloakwork.models.program.facts import Facts
from cloakwork.models.trees.comparison_bits import BitSource, ClientBits, ServerBits
from cloakwork.models.trees.edges import Edges, edges_of
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.options import TreeOptions
from cloakwork.models.trees.plan_facts import noise_limit_percent, plan_facts
from cloakwork.models.trees.plans import Compared, Plan, Wishes, cheapest_plan
from cloakwork.models.trees.tree_program import tree_graph, used_edges


def compile_scores(ensemble: TreeEnsemble, options: TreeOptions) -> Program:
    """NoParameterSetError: no candidate has room for the trees."""
    edges, node_edges = edges_of(ensemble, options.bin_bits)
    options.check()
    wishes = Wishes(options.comparisons == "server", options.leaf_bits, options.p_fail_log2)
    compared = Compared(ensemble, edges, node_edges)
    plan = cheapest_plan(compared, wishes, options.candidates)
    source = _bit_source(ensemble, edges, plan)
    made = tree_graph(plan.covers, plan.layout, source, plan.factor)
    return Program(
        made,
        plan.params,
        noise_limit_percent(plan, options.p_fail_log2),
        input_steps=(*options.first_steps(ensemble), source.step),
        output_steps=_output_steps(ensemble, plan),
        output_unit=1 / plan.layout.units,
        facts=Facts(trees=plan_facts(ensemble, edges, plan, made, options.bin_bits)),
    )


def _bit_source(ensemble: TreeEnsemble, edges: Edges, plan: Plan) -> BitSource:
    used = used_edges(plan.covers)
    if not plan.server:
        return ClientBits(edges, used, plan.layout.units, ensemble.strict, ensemble.single)
    radix = 1 << (plan.layout.slots.bit_length() - 1)
    return ServerBits(edges, used, plan.layout.slots, radix, ensemble.strict, ensemble.single)


def _output_steps(ensemble: TreeEnsemble, plan: Plan) -> tuple[OutputStep, ...]:
    """Integers of the groups, their digits, the scores, and what follows them."""
    radix: list[tuple[int, ...]] = []
    contributions = []
    for group in plan.layout.groups:
        scalar = plan.integers.scalar_trees[group.members[0]]
        radix.append(scalar.radix if len(scalar.radix) > 1 else (max(group.highest + 1, 2),))
        contributions.append(scalar.contribution)
    width = max(len(row) for row in radix)
    return (
        Wrap(np.array([group.lowest for group in plan.layout.groups]), plan.layout.units),
        Digits(np.array([row + (1,) * (width - len(row)) for row in radix], dtype=np.int64)),
        Combine(np.concatenate(contributions), plan.integers.offset),
        *ensemble.output_steps,
    )
