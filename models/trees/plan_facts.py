"""Facts of a plan of trees: its noise, its probability of failure, and what it costs beside one look-up for each node."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.criteria.choose_set import lookup_margins
from cloakwork.models.graph.ir import Graph
from cloakwork.models.program.answers import phase_noise, weight_norms
from cloakwork.models.program.facts import TreeFacts
from cloakwork.models.trees.ensemble import Edges, TreeEnsemble
from cloakwork.models.trees.plans import TreePlan
from cloakwork.models.trees.tree_program import FLAGS, LEAVES, used_edges


def plan_facts(ensemble: TreeEnsemble, edges: Edges, plan: TreePlan, graph: Graph) -> TreeFacts:
    params, layout = plan.params, plan.layout
    used = used_edges(plan.covers)
    bootstraps = graph.bootstraps
    lookup = _worst_lookup(params, graph, 1 / (4 * layout.slots))
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
        bootstraps_one_per_node=one_per_node,
        bootstraps_of_flags=sum(node.bootstraps for node in graph.lookups if node.origin == FLAGS),
        bootstraps_of_leaves=sum(node.bootstraps for node in graph.lookups if node.origin == LEAVES),
        leaf_bits=plan.leaf_bits,
        leaf_rounding_error=plan.integers.error,
        outputs=len(layout.groups),
        p_fail_log2=_sum_log2(risks),
        lookup_p_fail_log2=lookup,
        output_p_fail_log2=layout.output_p_fail_log2,
    )


def _worst_lookup(params: ParameterSet, graph: Graph, margin: float) -> float:
    """Returns log2 of the probability that it is wrong. Args: margin: where there is none."""
    margins, offset = lookup_margins(graph), noise.lookup_offset(params)
    seen = [
        noise.p_fail_log2(margins[norms.origin], phase_noise(params, norms) ** 2, offset)
        for norms in weight_norms(graph)
        if not norms.is_output
    ]
    return max(seen, default=noise.p_fail_log2(margin, noise.lookup_variance(params, 0.0), offset))


def _sum_log2(logs: Sequence[float]) -> float:
    top = max(logs)
    return min(0.0, top + math.log2(sum(2.0 ** (log - top) for log in logs)))
