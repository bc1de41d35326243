"""The way in: a TreeEnsemble becomes a CompiledModel, exact up to the stated probability of failure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet, parameter_set
from cloakwork.models.client_steps import (
    Columns,
    Combine,
    Compare,
    Digits,
    InputStep,
    OutputStep,
    Wrap,
    final_steps,
)
from cloakwork.models.compiler import CompiledModel
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.ir import Indices
from cloakwork.models.passes.choose_parameters import bootstrap_cost
from cloakwork.models.program import Program
from cloakwork.models.tabular.binned_tree import BinnedNode, binned_tree
from cloakwork.models.tabular.cover import Cover, cover_tree
from cloakwork.models.tabular.edges import Edges, edges_of
from cloakwork.models.tabular.ensemble import TreeEnsemble
from cloakwork.models.tabular.index_weights import MOST_SLOTS
from cloakwork.models.tabular.leaf_integers import LeafIntegers, leaf_integers
from cloakwork.models.tabular.tree_program import Layout, TreeGraph, choose_layout, largest_slots, tree_graph

CANDIDATES: Final = ("lut3", "lut4", "lut5")
DEFAULT_LEAF_BITS: Final = {"mean": 6, "sum": 8}  # an average has the precision of all its trees together
_LEAST_LEAF_BITS: Final = 3
_PACKED_LOOKUPS: Final = 8  # of a tree that several outputs are packed into
_FEWEST_SLOTS: Final = 2


@dataclass(frozen=True, eq=False)
class _Plan:
    """Everything about one parameter set."""

    params: ParameterSet
    integers: LeafIntegers
    covers: tuple[Cover, ...]
    layout: Layout
    leaf_bits: int

    @property
    def lookups(self) -> int:
        return sum(len(cover.lookups) for cover in self.covers)

    @property
    def cost(self) -> float:
        return self.lookups * bootstrap_cost(self.params)


def compile_ensemble(
    ensemble: TreeEnsemble,
    *,
    leaf_bits: int | None = None,
    bin_bits: int | None = None,
    failure_log2: float = -128.0,
    candidates: Sequence[str | ParameterSet] | None = None,
    preprocessing: Sequence[InputStep] | None = None,
) -> CompiledModel:
    """Compiles trees; encrypted predictions equal those of the model with rounded leaf values, up to the stated probability.

    Args:
        leaf_bits: of the leaf values' integers; None: 8 (6 where trees are averaged), fewer where the noise leaves no room.
        bin_bits: at most 2^bin_bits thresholds per feature; None: all of them, so that every comparison is the model's own.
        failure_log2: log2 of the largest probability that a look-up, or the decoding of an output, is wrong.
        candidates: parameter sets to choose from; None: lut3, lut4, and lut5 for deep trees. One key serves all models of one set.
        preprocessing: what the client does before the comparisons, its first step checking the columns; None: that step alone.

    Raises:
        NoParameterSetError: no candidate has room for the trees.
    """
    edges, node_edges = edges_of(ensemble, bin_bits)
    plan = _cheapest(ensemble, edges, node_edges, leaf_bits, failure_log2, candidates)
    made = tree_graph(plan.covers, plan.layout)
    program = Program(
        made.graph,
        plan.params,
        _noise_limit_percent(plan, failure_log2),
        input_steps=_input_steps(ensemble, edges, made.used_edges, preprocessing),
        output_steps=_output_steps(ensemble, plan),
        facts=_facts(ensemble, edges, plan, made, bin_bits),
    )
    return CompiledModel(program)


# --- choosing the parameter set --------------------------------------------------------------------------------------------------


def _cheapest(
    ensemble: TreeEnsemble,
    edges: Edges,
    node_edges: list[Indices],
    leaf_bits: int | None,
    failure_log2: float,
    candidates: Sequence[str | ParameterSet] | None,
) -> _Plan:
    names = CANDIDATES if candidates is None else candidates
    found: list[_Plan] = []
    problems: list[str] = []
    for params in (parameter_set(name) if isinstance(name, str) else name for name in names):
        if candidates is None and found and params.name == CANDIDATES[-1]:
            break  # the last resort
        try:
            found.append(_plan(ensemble, edges, node_edges, leaf_bits, failure_log2, params))
        except NoParameterSetError as error:
            problems.append(f"{params.name}: {error}")
    if not found:
        raise NoParameterSetError("no parameter set fits the trees: " + "; ".join(problems))
    return min(found, key=lambda plan: plan.cost)


def _plan(
    ensemble: TreeEnsemble,
    edges: Edges,
    node_edges: list[Indices],
    leaf_bits: int | None,
    failure_log2: float,
    params: ParameterSet,
) -> _Plan:
    slots = min(largest_slots(params, failure_log2), MOST_SLOTS)
    if slots < _FEWEST_SLOTS:
        raise NoParameterSetError("its look-ups tell no two values apart at this failure probability")
    most = DEFAULT_LEAF_BITS[ensemble.aggregation] if leaf_bits is None else leaf_bits
    for bits in range(most, (most if leaf_bits is not None else _LEAST_LEAF_BITS) - 1, -1):
        for packed in (_most_packed(params, failure_log2), 1):
            integers = leaf_integers(ensemble, bits, packed)
            covers = _covers(ensemble, edges, node_edges, integers, slots)
            layout = choose_layout(covers, _kinds(integers), params, slots, failure_log2)
            if layout is not None:
                return _Plan(params, integers, covers, layout, bits)
    raise NoParameterSetError(f"a tree's values do not fit one ciphertext with {most} bits; use fewer leaf_bits")


def _covers(
    ensemble: TreeEnsemble, edges: Edges, node_edges: list[Indices], integers: LeafIntegers, slots: int
) -> tuple[Cover, ...]:
    roots: list[BinnedNode] = [
        binned_tree(ensemble.trees[scalar.tree], node_edges[scalar.tree], scalar.values, edges)
        for scalar in integers.scalar_trees
    ]
    return tuple(cover_tree(root, edges, slots) for root in roots)


def _kinds(integers: LeafIntegers) -> list[int]:
    """Scalar trees of one kind may share an output: one digit, and the same unit of the same output."""
    numbers: dict[bytes, int] = {}
    kinds = []
    for i, scalar in enumerate(integers.scalar_trees):
        key = scalar.contribution.tobytes() if len(scalar.radix) == 1 else str(i).encode()
        kinds.append(numbers.setdefault(key, len(numbers)))
    return kinds


def _most_packed(params: ParameterSet, failure_log2: float) -> int:
    """Values that an output tells apart after a few look-ups."""
    variance = _PACKED_LOOKUPS * noise.blind_rotation_variance(params)
    values = 2
    while noise.failure_log2(1 / (4 * values), variance) <= failure_log2 and values < 1 << 12:
        values *= 2
    return values


# --- the client's steps ----------------------------------------------------------------------------------------------------------


def _input_steps(
    ensemble: TreeEnsemble, edges: Edges, used: Indices, preprocessing: Sequence[InputStep] | None
) -> tuple[InputStep, ...]:
    columns = Columns(ensemble.features, ensemble.feature_names, ensemble.takes_missing)
    compare = Compare(edges.feature[used], edges.threshold[used], edges.missing[used], ensemble.strict, ensemble.single)
    return (*((columns,) if preprocessing is None else preprocessing), compare)


def _output_steps(ensemble: TreeEnsemble, plan: _Plan) -> tuple[OutputStep, ...]:
    """Integers of the groups, their digits, the scores, and what follows them."""
    radix: list[tuple[int, ...]] = []
    contributions = []
    for group in plan.layout.groups:
        scalar = plan.integers.scalar_trees[group.members[0]]
        radix.append(scalar.radix if len(scalar.radix) > 1 else (max(group.highest + 1, 2),))
        contributions.append(scalar.contribution)
    last = final_steps(ensemble.transform, ensemble.transform_parameter, ensemble.labels)
    width = max(len(row) for row in radix)
    return (
        Wrap(np.array([group.lowest for group in plan.layout.groups]), plan.layout.units),
        Digits(np.array([row + (1,) * (width - len(row)) for row in radix], dtype=np.int64)),
        Combine(np.concatenate(contributions), plan.integers.offset),
        *last,
    )


# --- what the report says ----------------------------------------------------------------------------------------------------------


def _noise_limit_percent(plan: _Plan, failure_log2: float) -> float:
    """The standard deviation that a look-up may see, per cent of the half torus."""
    low, high = 1e-9, 1.0
    offset = noise.lookup_offset(plan.params)
    for _ in range(60):
        middle = math.sqrt(low * high)
        fits = noise.failure_log2(1 / (4 * plan.layout.slots), middle**2, offset) <= failure_log2
        low, high = (middle, high) if fits else (low, middle)
    return 200 * low


def _facts(ensemble: TreeEnsemble, edges: Edges, plan: _Plan, made: TreeGraph, bin_bits: int | None) -> dict[str, Any]:
    params, layout = plan.params, plan.layout
    variance = noise.lookup_variance(params, made.index_norm, noise.fresh_variance(params))
    lookup = noise.failure_log2(1 / (4 * layout.slots), variance, noise.lookup_offset(params))
    risks = [lookup + math.log2(plan.lookups)] if plan.lookups else []
    risks.append(layout.output_failure_log2 + math.log2(len(layout.groups)))
    one_per_node = ensemble.comparisons + sum(len(tree.leaves) for tree in ensemble.trees)
    return {
        "kind": "trees",
        "trees": len(ensemble.trees),
        "depth": max(tree.depth for tree in ensemble.trees),
        "comparisons": ensemble.comparisons,
        "comparisons_by": "client",
        "comparison_bits": len(made.used_edges),
        "features_compared": len(np.unique(edges.feature[made.used_edges])),
        "bin_bits": bin_bits,
        "bootstraps_one_per_node": one_per_node,
        "leaf_bits": plan.leaf_bits,
        "leaf_rounding_error": plan.integers.error,
        "outputs": len(layout.groups),
        "p_fail_log2": _sum_log2(risks),
        "lookup_p_fail_log2": lookup,
        "output_p_fail_log2": layout.output_failure_log2,
    }


def _sum_log2(logs: Sequence[float]) -> float:
    top = max(logs)
    return min(0.0, top + math.log2(sum(2.0 ** (log - top) for log in logs)))
