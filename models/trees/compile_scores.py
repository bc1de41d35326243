"""Trees whose scores the client decrypts: the cheapest plan of look-ups and sums, as a program."""

from __future__ import annotations

import numpy as np

from cloakwork.models.client_steps import Combine, Digits, OutputStep, Wrap
from cloakwork.models.program import Program
from cloakwork.models.program.facts import Facts
from cloakwork.models.trees.comparison_bits import BitSource, ClientBits, ServerBits
from cloakwork.models.trees.edges import Edges, edges_of
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.grid_bits import GridBits
from cloakwork.models.trees.options import TreeOptions
from cloakwork.models.trees.plan_facts import noise_limit_percent, plan_facts
from cloakwork.models.trees.plans import Compared, Plan, Wishes, cheapest_plan
from cloakwork.models.trees.tree_program import read_edges, tree_graph, used_edges


def compile_scores(ensemble: TreeEnsemble, options: TreeOptions) -> Program:
    """NoParameterSetError: no candidate has room for the trees."""
    edges, node_edges = edges_of(ensemble, options.bin_bits)
    wishes = Wishes(options.noisy_bits, options.leaf_bits, options.p_fail_log2)
    compared = Compared(ensemble, edges, node_edges)
    plan = cheapest_plan(compared, wishes, options.sets, options.last_resorts)
    source = bit_source(ensemble, edges, plan, options)
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


def bit_source(ensemble: TreeEnsemble, edges: Edges, plan: Plan, options: TreeOptions) -> BitSource:
    layout = plan.layout
    if options.step is not None:
        return GridBits(edges, read_edges(plan.covers), options.step, layout.units, layout.slots)
    used = used_edges(plan.covers)  # a program has an input
    if options.comparisons == "client":
        return ClientBits(edges, used, layout.units, ensemble.strict, ensemble.single)
    radix = 1 << (layout.slots.bit_length() - 1)
    return ServerBits(edges, used, layout.slots, radix, ensemble.strict, ensemble.single)


def _output_steps(ensemble: TreeEnsemble, plan: Plan) -> tuple[OutputStep, ...]:
    """Integers of the groups, their digits where they have several, the scores, and what follows them."""
    layout = plan.layout
    scalar = [plan.integers.scalar_trees[group.members[0]] for group in layout.groups]
    width = max(len(own.radix) for own in scalar)
    digits = []
    if width > 1:
        rows = [own.radix if len(own.radix) > 1 else (layout.units,) for own in scalar]
        digits = [Digits(np.array([row + (1,) * (width - len(row)) for row in rows], dtype=np.int64))]
    return (
        Wrap(np.array([group.reads_from(layout.units) for group in layout.groups]), layout.units),
        *digits,
        Combine(np.concatenate([own.contribution for own in scalar]), plan.integers.offset),
        *ensemble.output_steps,
    )
