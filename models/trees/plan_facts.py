"""What is stated of a plan of trees: its noise, its probability of failure, and what it costs beside one look-up for each node."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.models.graph.ir import Graph
from cloakwork.models.program.facts import TreeFacts
from cloakwork.models.program.phase_noise import phase_noise, weight_norms
from cloakwork.models.trees.edges import Edges
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.plans import Plan
from cloakwork.models.trees.tree_program import FLAGS, LEAVES, used_edges


def noise_limit_percent(plan: Plan, p_fail_log2: float) -> float:
    """The standard deviation that a look-up may see, per cent of the half torus."""
    low, high = 1e-9, 1.0
    offset = noise.lookup_offset(plan.params)
    for _ in range(60):
        middle = math.sqrt(low * high)
        fits = noise.p_fail_log2(1 / (4 * plan.layout.slots), middle**2, offset) <= p_fail_log2
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
    lookup = noise.p_fail_log2(1 / (4 * layout.slots), deviation**2, offset)
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
