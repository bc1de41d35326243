"""The way in: a TreeEnsemble becomes a CompiledModel, exact up to the stated probability of failure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet, parameter_set
from cloakwork.models.client_steps import (
    Columns,
    Combine,
    Digits,
    InputStep,
    OutputStep,
    Wrap,
)
from cloakwork.models.compiler import CompiledModel
from cloakwork.models.errors import CompileError, NoParameterSetError, some
from cloakwork.models.ir import Graph, Indices
from cloakwork.models.passes.choose_parameters import bootstrap_cost, phase_noise, weight_norms
from cloakwork.models.program import Program
from cloakwork.models.tabular.comparison_bits import FEWEST_CARRY_SLOTS, BitSource, ClientBits, ServerBits
from cloakwork.models.tabular.cover import Covers, cover_trees
from cloakwork.models.tabular.cover_costs import Budget
from cloakwork.models.tabular.edges import Edges, edges_of
from cloakwork.models.tabular.ensemble import TreeEnsemble
from cloakwork.models.tabular.flat_trees import Skeleton
from cloakwork.models.tabular.index_weights import MOST_SLOTS
from cloakwork.models.tabular.leaf_integers import LeafIntegers, counted_once, equal_trees, leaf_integers
from cloakwork.models.tabular.tree_program import (
    FLAGS,
    LEAVES,
    Layout,
    answer_size,
    choose_layout,
    flag_weights,
    largest_norm,
    largest_slots,
    most_values,
    tree_graph,
    used_edges,
)

COMPARISONS: Final = ("auto", "client", "server")
CANDIDATES: Final = ("lut3", "lut4", "lut5")
DEFAULT_LEAF_BITS: Final = {"mean": 6, "sum": 8}  # an average has the precision of all its trees together
_LEAST_LEAF_BITS: Final = 3
MOST_ANSWER_BYTES: Final = (
    1_000_000  # above which leaf values get fewer bits by default, errors of many trees averaging out,
)
_LEAST_BITS_FOR_SIZE: Final = 5  # but not fewer than these
_PACKED_LOOKUPS: Final = 8  # of a tree that several outputs are packed into
_FEWEST_SLOTS: Final = 2
_MANY_TREES: Final = 32
_SAMPLED_TREES: Final = 6  # of many, to see which parameter set is cheapest
_FLAG_SHARE: Final = 0.7  # of the noise of an index on bits from look-ups, for a flag


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything about one parameter set."""

    params: ParameterSet
    integers: LeafIntegers
    covers: Covers
    layout: Layout
    leaf_bits: int
    server: bool

    @property
    def factor(self) -> int:
        """Steps of a bit's phase in a step of an index."""
        return 1 if self.server else self.layout.units // (2 * self.layout.slots)

    @property
    def lookups(self) -> int:
        return len(self.covers.flags) + sum(group.lookups for group in self.layout.groups)

    @property
    def cost(self) -> float:
        return self.lookups * bootstrap_cost(self.params)


@dataclass(frozen=True)
class _Wishes:
    server: bool  # compares
    leaf_bits: int | None
    failure_log2: float


@dataclass(frozen=True, eq=False)
class _Compared:
    """Trees whose comparisons are edges."""

    ensemble: TreeEnsemble
    edges: Edges
    node_edges: list[Indices]

    @cached_property
    def skeleton(self) -> Skeleton:
        return Skeleton(self.ensemble.trees, self.node_edges, self.edges)

    def of_trees(self, chosen: Sequence[int]) -> _Compared:
        ensemble = replace(self.ensemble, trees=tuple(self.ensemble.trees[i] for i in chosen))
        return _Compared(ensemble, self.edges, [self.node_edges[i] for i in chosen])


def compile_ensemble(
    ensemble: TreeEnsemble,
    *,
    comparisons: Literal["auto", "client", "server"] = "auto",
    leaf_bits: int | None = None,
    bin_bits: int | None = None,
    failure_log2: float = -128.0,
    candidates: Sequence[str | ParameterSet] | None = None,
    preprocessing: Sequence[InputStep] | None = None,
    encrypted_argmax: bool = False,
) -> CompiledModel:
    """Compiles trees; encrypted predictions equal those of the model with rounded leaf values, up to the stated probability.

    Args:
        comparisons: who compares features with thresholds. "client": it encrypts a bit for each threshold, which costs no bootstrap;
            "server": it encrypts bins, one or two numbers for a feature, and one bootstrap for each gives all comparisons on it, with one more
            for each threshold of features of several digits. "auto": the client, which is never more bootstraps.
        leaf_bits: of the leaf values' integers; None: 8 (6 where trees are averaged), fewer where the noise leaves no room, and 5 to 7 where an
            answer would have more than 1 MB.
        bin_bits: at most 2^bin_bits thresholds per feature; None: all of them, so that every comparison is the model's own.
        failure_log2: log2 of the largest probability that a look-up, or the decoding of an output, is wrong.
        candidates: parameter sets to choose from; None: lut3, lut4, and lut5 for deep trees. One key serves all models of one set.
        preprocessing: what the client does before the comparisons, its first step checking the columns; None: that step alone.
        encrypted_argmax: of classifiers: the client decrypts the label and no score. A single tree gives it at no cost; several trees of two
            classes take one look-up more, and leaf values so coarse that their sum is the index of one look-up.

    Raises:
        NoParameterSetError: no candidate has room for the trees.
    """
    if encrypted_argmax:
        from cloakwork.models.tabular.compile_labels import compile_labels  # which comes back here for single trees

        return compile_labels(
            ensemble,
            comparisons=comparisons,
            leaf_bits=leaf_bits,
            bin_bits=bin_bits,
            failure_log2=failure_log2,
            candidates=candidates,
            preprocessing=preprocessing,
        )
    edges, node_edges = edges_of(ensemble, bin_bits)
    if comparisons not in COMPARISONS:
        raise CompileError(f"comparisons: expected one of {', '.join(COMPARISONS)}, got '{comparisons}'")
    wishes = _Wishes(comparisons == "server", leaf_bits, failure_log2)
    compared = _Compared(ensemble, edges, node_edges)
    plan = _cheapest(compared, wishes, candidates)
    source = _bit_source(ensemble, edges, plan)
    made = tree_graph(plan.covers, plan.layout, source, plan.factor)
    program = Program(
        made,
        plan.params,
        noise_limit_percent(plan, failure_log2),
        input_steps=(*first_steps(ensemble, preprocessing), source.step),
        output_steps=_output_steps(ensemble, plan),
        output_unit=1 / plan.layout.units,
        facts=plan_facts(ensemble, edges, plan, made, bin_bits),
    )
    return CompiledModel(program)


# --- choosing the parameter set --------------------------------------------------------------------------------------------------


def _cheapest(compared: _Compared, wishes: _Wishes, candidates: Sequence[str | ParameterSet] | None) -> Plan:
    names = CANDIDATES if candidates is None else candidates
    sets = [parameter_set(name) if isinstance(name, str) else name for name in names]
    last = [] if candidates is not None else [params for params in sets if params.name == CANDIDATES[-1]]
    first = [params for params in sets if params not in last]
    if len(compared.ensemble.trees) > _MANY_TREES:
        first = _by_sample(compared, wishes, first)
    found: list[Plan] = []
    problems: dict[str, list[str]] = {}  # the sets of each reason
    for params in (*first, *last):
        if found and (params in last or len(compared.ensemble.trees) > _MANY_TREES):
            break
        try:
            found.append(_plan(compared, wishes, params))
        except NoParameterSetError as error:
            problems.setdefault(str(error), []).append(params.name)
    if not found:
        raise NoParameterSetError(f"no parameter set fits the trees: {_grouped(problems)}")
    return min(found, key=lambda plan: plan.cost)


def _grouped(problems: Mapping[str, list[str]]) -> str:
    """Those of the last candidates first, which are the large ones."""
    reasons = [f"{some(names)}: {reason}" for reason, names in reversed(list(problems.items()))]
    more = [f"and {len(reasons) - 2} other reasons"] if len(reasons) > 2 else []
    return "; ".join(reasons[:2] + more)


def _by_sample(compared: _Compared, wishes: _Wishes, sets: Sequence[ParameterSet]) -> list[ParameterSet]:
    """The sets under which some of many trees cost least; first those that fit."""
    trees = compared.ensemble.trees
    chosen = np.linspace(0, len(trees) - 1, _SAMPLED_TREES).astype(int).tolist()
    sample = compared.of_trees(chosen)
    costs = []
    for params in sets:
        try:
            costs.append(_plan(sample, wishes, params).cost)
        except NoParameterSetError:
            costs.append(math.inf)
    return [sets[i] for i in np.argsort(costs, kind="stable")]


def _plan(compared: _Compared, wishes: _Wishes, params: ParameterSet) -> Plan:
    most = DEFAULT_LEAF_BITS[compared.ensemble.aggregation] if wishes.leaf_bits is None else wishes.leaf_bits
    slots = _slots(wishes, params)
    room = most_values(params, slots, wishes.failure_log2)
    for bits in range(most, (most if wishes.leaf_bits is not None else _LEAST_LEAF_BITS) - 1, -1):
        seen: tuple[int, ...] = ()
        for packed in (_most_packed(params, wishes.failure_log2), 1):
            integers = leaf_integers(compared.ensemble, bits, packed)
            sizes = tuple(math.prod(scalar.radix) for scalar in integers.scalar_trees)
            if max(sizes) > room or sizes == seen:
                continue
            seen = sizes
            found = _laid_out(compared, integers, wishes, params, slots)
            if found is not None:
                plan = Plan(params, *found, bits, wishes.server)
                return plan if wishes.leaf_bits is not None else _small_enough(compared, plan, wishes)
    raise NoParameterSetError(f"a tree's values do not fit one ciphertext with {most} bits; use fewer leaf_bits")


def _small_enough(compared: _Compared, plan: Plan, wishes: _Wishes) -> Plan:
    """The plan, or one with fewer leaf bits, as many as answers of MOST_ANSWER_BYTES have room for."""
    if answer_size(plan.layout, plan.params) <= MOST_ANSWER_BYTES or plan.leaf_bits <= _LEAST_BITS_FOR_SIZE:
        return plan
    kinds, slots = _kinds(plan.integers), plan.layout.slots
    bits = plan.leaf_bits - 1
    while bits > _LEAST_BITS_FOR_SIZE:
        coarser = plan.leaf_bits - bits
        layout = choose_layout(plan.covers.trees, kinds, plan.params, slots, wishes.failure_log2, coarser)
        if layout is not None and answer_size(layout, plan.params) <= MOST_ANSWER_BYTES:
            break
        bits -= 1
    try:
        return _plan(compared, replace(wishes, leaf_bits=bits), plan.params)
    except NoParameterSetError:
        return plan


def _laid_out(
    compared: _Compared, integers: LeafIntegers, wishes: _Wishes, params: ParameterSet, slots: int
) -> tuple[LeafIntegers, Covers, Layout] | None:
    """With the fewest outputs: equal trees as one that counts as often as they do, or each for itself in a sum with others."""
    first = equal_trees(compared.ensemble, compared.node_edges, integers)
    distinct = np.unique(first)
    chosen = [integers.scalar_trees[i] for i in distinct.tolist()]
    used_slots, covers = _covers(compared, [(own.tree, own.values) for own in chosen], wishes, params, slots)
    every = [covers.trees[i] for i in np.searchsorted(distinct, first).tolist()]
    once, kept = counted_once(integers, first)
    ways = [(once, tuple(every[i] for i in kept.tolist()))]
    ways += [(integers, tuple(every))] if len(kept) < len(every) else []
    found = []
    for scalar, own in ways:
        layout = choose_layout(own, _kinds(scalar), params, used_slots, wishes.failure_log2)
        if layout is not None:
            found.append((scalar, replace(covers, trees=own), layout))
    return min(found, key=lambda way: (len(way[2].groups), sum(group.lookups for group in way[2].groups)), default=None)


def _slots(wishes: _Wishes, params: ParameterSet) -> int:
    slots = min(largest_slots(params, wishes.failure_log2), MOST_SLOTS)
    if slots < (FEWEST_CARRY_SLOTS if wishes.server else _FEWEST_SLOTS):
        raise NoParameterSetError("its look-ups tell no two values apart at this failure probability")
    return slots


def _covers(
    compared: _Compared, chosen: Sequence[tuple[int, Indices]], wishes: _Wishes, params: ParameterSet, slots: int
) -> tuple[int, Covers]:
    """The slots used and the look-ups; fewer slots where bits that come from look-ups bring too much noise."""
    trees = compared.skeleton.trees(chosen)
    share = _FLAG_SHARE if wishes.server else 1.0
    for fewer in range(slots, (FEWEST_CARRY_SLOTS if wishes.server else slots) - 1, -1):
        budget = Budget(fewer, flag_weights(params, fewer, wishes.failure_log2, share))
        covers = cover_trees(trees, compared.edges, budget, free_linear=not wishes.server)
        norm = largest_norm(covers, compared.edges.feature, noise.rotation_correlation_bound(params))
        if not wishes.server or largest_slots(params, wishes.failure_log2, norm) >= fewer:
            return fewer, covers
    raise NoParameterSetError("comparison bits from look-ups are too noisy for it; use comparisons='client'")


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


def noise_limit_percent(plan: Plan, failure_log2: float) -> float:
    """The standard deviation that a look-up may see, per cent of the half torus."""
    low, high = 1e-9, 1.0
    offset = noise.lookup_offset(plan.params)
    for _ in range(60):
        middle = math.sqrt(low * high)
        fits = noise.failure_log2(1 / (4 * plan.layout.slots), middle**2, offset) <= failure_log2
        low, high = (middle, high) if fits else (low, middle)
    return 200 * low


def plan_facts(ensemble: TreeEnsemble, edges: Edges, plan: Plan, made: Graph, bin_bits: int | None) -> dict[str, Any]:
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
    risks.append(layout.output_failure_log2 + math.log2(len(layout.groups)))
    one_per_node = ensemble.comparisons + sum(len(tree.leaves) for tree in ensemble.trees)
    return {
        "kind": "trees",
        "trees": len(ensemble.trees),
        "depth": max(tree.depth for tree in ensemble.trees),
        "comparisons": ensemble.comparisons,
        "comparisons_by": "server" if plan.server else "client",
        "comparison_bits": len(used),
        "features_compared": len(np.unique(edges.feature[used])),
        "bin_bits": bin_bits,
        "bootstraps_one_per_node": one_per_node,
        "bootstraps_of_flags": sum(node.bootstraps for node in made.lookups if node.origin == FLAGS),
        "bootstraps_of_leaves": sum(node.bootstraps for node in made.lookups if node.origin == LEAVES),
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
