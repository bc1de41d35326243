"""The way in: a TreeEnsemble becomes a CompiledModel, exact up to the stated probability of failure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.client_steps import (
    Columns,
    Combine,
    Digits,
    InputStep,
    OutputStep,
    Wrap,
)
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.ir import Graph
from cloakwork.models.program import Program
from cloakwork.models.program.facts import Facts, TreeFacts
from cloakwork.models.program.phase_noise import phase_noise, weight_norms
from cloakwork.models.trees.comparison_bits import BitSource, ClientBits, ServerBits
from cloakwork.models.trees.edges import Edges, edges_of
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.plans import Compared, Plan, Wishes, cheapest_plan
from cloakwork.models.trees.tree_program import (
    FLAGS,
    LEAVES,
    tree_graph,
    used_edges,
)

COMPARISONS: Final = ("auto", "client", "server")


def compile_ensemble(
    ensemble: TreeEnsemble,
    *,
    comparisons: Literal["auto", "client", "server"] = "auto",
    leaf_bits: int | None = None,
    bin_bits: int | None = None,
    p_fail_log2: float = -128.0,
    candidates: Sequence[str | ParameterSet] | None = None,
    preprocessing: Sequence[InputStep] | None = None,
    encrypted_argmax: bool = False,
) -> CompiledModel:
    """Compiles trees; encrypted predictions equal those of the model with rounded leaf values, up to the stated probability.

    Args:
        comparisons: who compares features with thresholds. "client": it encrypts a bit for each threshold, which costs no bootstrap;
            "server": it encrypts bins, one or two numbers for a feature, and one bootstrap for each gives all comparisons on it, with one more
            for each threshold of features of several digits. "auto": the client, which is never more bootstraps.
        leaf_bits: of the leaf values' integers; None: 8 (6 where trees are averaged), fewer where the noise leaves no room, and fewer
            where an answer would have more than 1 MB: 5 at least, or 3 for an average of 1,000 trees, whose errors average out.
        bin_bits: at most 2^bin_bits thresholds per feature; None: all of them, so that every comparison is the model's own.
        p_fail_log2: log2 of the largest probability that a look-up, or the decoding of an output, is wrong.
        candidates: parameter sets to choose from; None: lut3, lut4, and lut5 for deep trees. One key serves all models of one set.
        preprocessing: what the client does before the comparisons, its first step checking the columns; None: that step alone.
        encrypted_argmax: of classifiers: the client decrypts the label and no score. A single tree gives it at no cost; several trees of two
            classes take one look-up more, and leaf values so coarse that their sum is the index of one look-up.

    Raises:
        NoParameterSetError: no candidate has room for the trees.
    """
    if encrypted_argmax:
        from cloakwork.models.trees.compile_labels import compile_labels  # which comes back here for single trees

        return compile_labels(
            ensemble,
            comparisons=comparisons,
            leaf_bits=leaf_bits,
            bin_bits=bin_bits,
            p_fail_log2=p_fail_log2,
            candidates=candidates,
            preprocessing=preprocessing,
        )
    edges, node_edges = edges_of(ensemble, bin_bits)
    if comparisons not in COMPARISONS:
        raise CompileError(f"comparisons: expected one of {', '.join(COMPARISONS)}, got '{comparisons}'")
    wishes = Wishes(comparisons == "server", leaf_bits, p_fail_log2)
    compared = Compared(ensemble, edges, node_edges)
    plan = cheapest_plan(compared, wishes, candidates)
    source = _bit_source(ensemble, edges, plan)
    made = tree_graph(plan.covers, plan.layout, source, plan.factor)
    program = Program(
        made,
        plan.params,
        noise_limit_percent(plan, p_fail_log2),
        input_steps=(*first_steps(ensemble, preprocessing), source.step),
        output_steps=_output_steps(ensemble, plan),
        output_unit=1 / plan.layout.units,
        facts=Facts(trees=plan_facts(ensemble, edges, plan, made, bin_bits)),
    )
    return CompiledModel(program)


def _bit_source(ensemble: TreeEnsemble, edges: Edges, plan: Plan) -> BitSource:
    used = used_edges(plan.covers)
    if not plan.server:
        return ClientBits(edges, used, plan.layout.units, ensemble.strict, ensemble.single)
    radix = 1 << (plan.layout.slots.bit_length() - 1)
    return ServerBits(edges, used, plan.layout.slots, radix, ensemble.strict, ensemble.single)


# --- the client's steps ----------------------------------------------------------------------------------------------------------


def first_steps(ensemble: TreeEnsemble, preprocessing: Sequence[InputStep] | None) -> tuple[InputStep, ...]:
    columns = Columns(ensemble.features, ensemble.feature_names, ensemble.takes_missing)
    return (columns,) if preprocessing is None else tuple(preprocessing)


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


# --- what the report says ----------------------------------------------------------------------------------------------------------


def noise_limit_percent(plan: Plan, p_fail_log2: float) -> float:
    """The standard deviation that a look-up may see, per cent of the half torus."""
    low, high = 1e-9, 1.0
    offset = noise.lookup_offset(plan.params)
    for _ in range(60):
        middle = math.sqrt(low * high)
        fits = noise.failure_log2(1 / (4 * plan.layout.slots), middle**2, offset) <= p_fail_log2
        low, high = (middle, high) if fits else (low, middle)
    return 200 * low


def plan_facts(ensemble: TreeEnsemble, edges: Edges, plan: Plan, made: Graph, bin_bits: int | None) -> TreeFacts:
    params, layout = plan.params, plan.layout
    used = used_edges(plan.covers)
    inner = [norms for norms in weight_norms(made) if not norms.is_output]
    deviation = max(
        (phase_noise(params, norms) for norms in inner), default=math.sqrt(noise.lookup_variance(params, 0.0))
    )
    bootstraps = made.bootstraps
    offset = noise.lookup_offset(params)
    lookup = noise.failure_log2(1 / (4 * layout.slots), deviation**2, offset)
    risks = [lookup + math.log2(bootstraps)] if bootstraps else []
    risks.append(layout.output_p_fail_log2 + math.log2(len(layout.groups)))
    one_per_node = ensemble.comparisons + sum(len(tree.leaves) for tree in ensemble.trees)
    return TreeFacts(
        trees=len(ensemble.trees),
        depth=max(tree.depth for tree in ensemble.trees),
        comparisons=ensemble.comparisons,
        comparisons_by="server" if plan.server else "client",
        comparison_bits=len(used),
        features_compared=len(np.unique(edges.feature[used])),
        bin_bits=bin_bits,
        bootstraps_one_per_node=one_per_node,
        bootstraps_of_flags=sum(node.bootstraps for node in made.lookups if node.origin == FLAGS),
        bootstraps_of_leaves=sum(node.bootstraps for node in made.lookups if node.origin == LEAVES),
        leaf_bits=plan.leaf_bits,
        leaf_rounding_error=plan.integers.error,
        outputs=len(layout.groups),
        p_fail_log2=_sum_log2(risks),
        lookup_p_fail_log2=lookup,
        output_p_fail_log2=layout.output_p_fail_log2,
    )


def _sum_log2(logs: Sequence[float]) -> float:
    top = max(logs)
    return min(0.0, top + math.log2(sum(2.0 ** (log - top) for log in logs)))
