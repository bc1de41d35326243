"""The plan of a tree program under one parameter set: integers of leaves, look-ups that cover the trees, sums that share outputs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices
from cloakwork.models.criteria.choose_set import bootstrap_cost, choose_set, largest_slots
from cloakwork.models.errors import NoParameterSetError, some
from cloakwork.models.trees.cover import Covers, cover_trees
from cloakwork.models.trees.cover_costs import Budget
from cloakwork.models.trees.digit_sums import Rules, widened, with_digit_sums
from cloakwork.models.trees.ensemble import Edges, TreeEnsemble
from cloakwork.models.trees.flat_trees import FlatTrees, Skeleton
from cloakwork.models.trees.index_weights import MOST_SLOTS
from cloakwork.models.trees.leaf_integers import LeafIntegers, counted_once, equal_trees, leaf_integers
from cloakwork.models.trees.tree_program import (
    TreeLayout,
    answer_size,
    choose_layout,
    compared_edges,
    flag_weights,
    largest_norm,
    most_values,
)

DEFAULT_LEAF_BITS: Final = {"mean": 6, "sum": 8}  # an average has the precision of all its trees together
_LEAST_LEAF_BITS: Final = 3
# Above which leaf values get fewer bits by default, errors of many trees averaging out: not fewer than _LEAST_BITS_FOR_SIZE, or where trees are
# averaged than what leaves an average the standard deviation _ROUNDING_OF_MEAN, in parts of the widest range of leaf values.
MOST_ANSWER_BYTES: Final = 1_000_000
_LEAST_BITS_FOR_SIZE: Final = 5
_ROUNDING_OF_MEAN: Final = 0.002
_PACKED_LOOKUPS: Final = 8  # of a tree that several outputs are packed into
_FEWEST_SLOTS: Final = 2
_FEWEST_CARRY_SLOTS: Final = 4  # where bits come from look-ups: a sum of three is 0 .. 3
_MANY_TREES: Final = 32
_SAMPLED_TREES: Final = 6  # of many, to see which parameter set is cheapest
_FLAG_SHARE: Final = 0.7  # of the noise of an index on bits from look-ups, for a flag


@dataclass(frozen=True, eq=False)
class TreePlan:
    """The plan under one parameter set."""

    params: ParameterSet
    integers: LeafIntegers
    covers: Covers
    layout: TreeLayout
    leaf_bits: int
    server: bool
    comparison_lookups: int = 0

    @property
    def factor(self) -> int:
        """Steps of a bit's phase in a step of an index."""
        return 1 if self.server else self.layout.units // (2 * self.layout.slots)

    @property
    def lookups(self) -> int:
        return len(self.covers.flags) + _lookups(self.layout)

    @property
    def cost(self) -> float:
        return (self.lookups + self.comparison_lookups) * bootstrap_cost(self.params)


@dataclass(frozen=True)
class TreeDemands:
    server: bool  # compares
    leaf_bits: int | None
    p_fail_log2: float
    comparison_lookups: Callable[[ParameterSet, Indices], int] = lambda _params, _used: 0
    """Bootstraps that give these edges. NoParameterSetError: the set does not compare."""
    wide: NDArray[np.bool_] | None = None
    """[edges]: compared by two digits, whose sums an index may read instead (digit_sums.py)."""


@dataclass(frozen=True, eq=False)
class Compared:
    """Trees whose comparisons are edges."""

    ensemble: TreeEnsemble
    edges: Edges
    node_edges: list[Indices]

    @cached_property
    def skeleton(self) -> Skeleton:
        return Skeleton(self.ensemble.trees, self.node_edges, self.edges)

    def of_trees(self, chosen: Sequence[int]) -> Compared:
        ensemble = replace(self.ensemble, trees=tuple(self.ensemble.trees[i] for i in chosen))
        return Compared(ensemble, self.edges, [self.node_edges[i] for i in chosen])


def cheapest_plan(
    compared: Compared, demands: TreeDemands, sets: Sequence[ParameterSet], last: Sequence[ParameterSet] = ()
) -> TreePlan:
    """Finds the cheapest plan. Args: last: those of the sets that are tried where none of the others fits. NoParameterSetError: none has room for
    the trees."""
    first = [params for params in sets if params not in last]
    problems: dict[str, list[str]] = {}  # the sets of each reason

    def planned(params: ParameterSet) -> TreePlan | None:
        try:
            return _plan(compared, demands, params)
        except NoParameterSetError as error:
            problems.setdefault(str(error), []).append(params.name)
            return None

    if len(compared.ensemble.trees) > _MANY_TREES:
        cheapest = choose_set([*_by_sample(compared, demands, first), *last], planned)
    else:
        cheapest = choose_set(first, planned, lambda plan: plan.cost) or choose_set(last, planned)
    if cheapest is None:
        raise NoParameterSetError(f"no parameter set fits the trees: {_grouped(problems)}")
    return cheapest


def _grouped(problems: Mapping[str, list[str]]) -> str:
    """Returns those of the last candidates first, which are the large ones."""
    reasons = [f"{some(names)}: {reason}" for reason, names in reversed(list(problems.items()))]
    more = [f"and {len(reasons) - 2} other reasons"] if len(reasons) > 2 else []
    return "; ".join(reasons[:2] + more)


def _by_sample(compared: Compared, demands: TreeDemands, sets: Sequence[ParameterSet]) -> list[ParameterSet]:
    """Returns the sets under which some of many trees cost least; first those that fit."""
    trees = compared.ensemble.trees
    chosen = np.linspace(0, len(trees) - 1, _SAMPLED_TREES).astype(int).tolist()
    sample = compared.of_trees(chosen)
    costs = []
    for params in sets:
        try:
            costs.append(_plan(sample, demands, params).cost)
        except NoParameterSetError:
            costs.append(math.inf)
    return [sets[i] for i in np.argsort(costs, kind="stable")]


def _plan(compared: Compared, demands: TreeDemands, params: ParameterSet) -> TreePlan:
    packed = _most_packed(params, demands.p_fail_log2)
    if demands.leaf_bits is not None:
        return _planned(compared, demands, params, [demands.leaf_bits], [packed, 1])
    most = DEFAULT_LEAF_BITS[compared.ensemble.aggregation]
    ways = [packed, 1]
    if len(compared.ensemble.trees) > _MANY_TREES:
        most, ways = _foreseen(compared, demands, params, most, ways)
    plan = _planned(compared, demands, params, range(most, min(most, _LEAST_LEAF_BITS) - 1, -1), ways)
    return _small_enough(compared, plan, demands, ways)


def _planned(
    compared: Compared, demands: TreeDemands, params: ParameterSet, leaf_bits: Sequence[int], ways: Sequence[int]
) -> TreePlan:
    """Plans with the first of these leaf bits that fit.

    Args:
        ways: most values that a tree's outputs may have as digits of one number, 1 for one output each; tried in turn.
    """
    slots = slots_of(demands, params)
    room = most_values(params, slots, demands.p_fail_log2)
    for bits in leaf_bits:
        seen: tuple[int, ...] = ()
        for packed in ways:
            integers = leaf_integers(
                compared.ensemble, bits, packed, units_apart=compared.ensemble.values_follow_each_score
            )
            sizes = tuple(math.prod(scalar.radix) for scalar in integers.scalar_trees)
            if max(sizes) > room or sizes == seen:
                continue
            seen = sizes
            laid_out = _laid_out(compared, integers, demands, params, slots)
            if laid_out is not None:
                of_edges = demands.comparison_lookups(params, compared_edges(laid_out[1]))
                return TreePlan(params, *laid_out, bits, demands.server, of_edges)
    raise NoParameterSetError(
        f"a tree's values do not fit one ciphertext with {max(leaf_bits)} bits; use fewer leaf_bits"
    )


def _foreseen(
    compared: Compared, demands: TreeDemands, params: ParameterSet, most: int, ways: list[int]
) -> tuple[int, list[int]]:
    """Returns leaf bits and ways for many trees whose answers are to have no more than MOST_ANSWER_BYTES, as far as some of the trees tell.

    Numbers of several digits take fewer look-ups, but those of several trees do not add up.
    """
    trees = compared.ensemble.trees
    chosen = np.linspace(0, len(trees) - 1, min(_MANY_TREES, len(trees))).astype(int).tolist()
    sample, share = compared.of_trees(chosen), len(trees) / len(chosen)
    smallest: tuple[float, int, list[int]] | None = None
    for bits in range(most, min(most, _least_bits(compared.ensemble)) - 1, -1):
        for way in (ways, [1]):
            try:
                plan = _planned(sample, demands, params, [bits], way)
            except NoParameterSetError:
                continue
            size = share * answer_size(plan.layout, params)
            if size <= MOST_ANSWER_BYTES:
                return bits, way
            if smallest is None or size < smallest[0]:
                smallest = size, bits, way
    return (most, ways) if smallest is None else smallest[1:]


def _small_enough(compared: Compared, plan: TreePlan, demands: TreeDemands, ways: Sequence[int]) -> TreePlan:
    """Returns the plan, or one with fewer leaf bits, as many as answers of MOST_ANSWER_BYTES have room for."""
    least = _least_bits(compared.ensemble)
    if answer_size(plan.layout, plan.params) <= MOST_ANSWER_BYTES or plan.leaf_bits <= least:
        return plan
    kinds, slots = _kinds(plan.integers), plan.layout.slots
    bits = plan.leaf_bits - 1
    while bits > least:
        coarser = plan.leaf_bits - bits
        layout = choose_layout(plan.covers.trees, kinds, plan.params, slots, demands.p_fail_log2, coarser)
        if layout is not None and answer_size(layout, plan.params) <= MOST_ANSWER_BYTES:
            break
        bits -= 1
    try:
        return _planned(compared, demands, plan.params, [bits], ways)
    except NoParameterSetError:
        return plan


def _least_bits(ensemble: TreeEnsemble) -> int:
    """Returns the least bits of leaf values in large answers. Rounding errors are spread evenly over a step, and those of an average's trees have
    little to do with each other."""
    bits = _LEAST_BITS_FOR_SIZE
    if ensemble.aggregation == "mean":
        trees = 12 * len(ensemble.trees)
        while bits > 2 and 1 / ((2 ** (bits - 1) - 1) * math.sqrt(trees)) <= _ROUNDING_OF_MEAN:
            bits -= 1
    return bits


def _laid_out(
    compared: Compared, integers: LeafIntegers, demands: TreeDemands, params: ParameterSet, slots: int
) -> tuple[LeafIntegers, Covers, TreeLayout] | None:
    """Lays trees out in the fewest outputs: equal ones as one that counts as often as they do, or each for itself in a sum."""
    first = equal_trees(compared.ensemble, compared.node_edges, integers)
    distinct = np.unique(first)
    chosen = [integers.scalar_trees[i] for i in distinct.tolist()]
    used_slots, candidates = covers_of(
        compared, [(scalar_tree.tree, scalar_tree.values) for scalar_tree in chosen], demands, params, slots
    )
    once, kept = counted_once(integers, first)
    laid_out = []
    for covers in candidates:
        every = [covers.trees[i] for i in np.searchsorted(distinct, first).tolist()]
        ways = [(once, tuple(every[i] for i in kept.tolist()))]
        ways += [(integers, tuple(every))] if len(kept) < len(every) else []
        layouts = [
            (choose_layout(trees, _kinds(scalar), params, used_slots, demands.p_fail_log2), scalar, trees)
            for scalar, trees in ways
        ]
        plans = [
            (scalar, replace(covers, trees=trees), layout) for layout, scalar, trees in layouts if layout is not None
        ]
        laid_out += sorted(plans, key=lambda plan: (len(plan[2].groups), _lookups(plan[2])))[:1]
    return min(
        laid_out,
        key=lambda plan: (
            _lookups(plan[2]) + len(plan[1].flags) + demands.comparison_lookups(params, compared_edges(plan[1]))
        ),
        default=None,
    )


def _lookups(layout: TreeLayout) -> int:
    return sum(group.lookups for group in layout.groups)


def slots_of(demands: TreeDemands, params: ParameterSet) -> int:
    slots = min(largest_slots(params, demands.p_fail_log2), MOST_SLOTS)
    if slots < (_FEWEST_CARRY_SLOTS if demands.server else _FEWEST_SLOTS):
        raise NoParameterSetError("its look-ups tell no two values apart at this failure probability")
    return slots


def covers_of(
    compared: Compared, chosen: Sequence[tuple[int, Indices]], demands: TreeDemands, params: ParameterSet, slots: int
) -> tuple[int, list[Covers]]:
    """Returns the slots used and the look-ups, in several ways where there are; fewer slots where bits that come from look-ups bring too much
    noise."""
    trees = compared.skeleton.trees(chosen)
    if not demands.server:
        budget = Budget(slots, flag_weights(params, slots, demands.p_fail_log2))
        return slots, [cover_trees(trees, compared.edges, budget)]
    for fewer in range(slots, _FEWEST_CARRY_SLOTS - 1, -1):
        covers = _of_noisy_bits(compared, trees, demands, params, fewer, 1)
        if covers is not None:
            if demands.wide is None:
                return fewer, [covers]
            return fewer, _with_digit_sums(covers, compared, trees, demands, params, fewer)
    raise NoParameterSetError(
        "comparison bits from look-ups are too noisy for it; use thresholds='grid' with at most 8 grid_bits"
    )


def _of_noisy_bits(
    compared: Compared, trees: FlatTrees, demands: TreeDemands, params: ParameterSet, slots: int, factor: int
) -> Covers | None:
    """For this many slots, of which every `factor`th is used; None where the noise is too large."""
    flag = flag_weights(params, slots, demands.p_fail_log2, _FLAG_SHARE)
    if flag is not None:
        flag = replace(flag, step=-(-flag.step // factor))
    covers = cover_trees(trees, compared.edges, Budget(slots // factor, flag), free_linear=False)
    covers = covers if factor == 1 else widened(covers, factor)
    if factor > 1:
        return covers
    norm = largest_norm(covers, compared.edges.feature, noise.rotation_correlation_bound(params))
    return covers if largest_slots(params, demands.p_fail_log2, norm) >= slots else None


def _with_digit_sums(
    covers: Covers, compared: Compared, trees: FlatTrees, demands: TreeDemands, params: ParameterSet, slots: int
) -> list[Covers]:
    assert demands.wide is not None
    ways = [covers]
    if slots % 2 == 0 and slots // 2 >= _FEWEST_CARRY_SLOTS:
        with contextlib.suppress(NoParameterSetError):
            half = _of_noisy_bits(compared, trees, demands, params, slots, 2)
            ways += [] if half is None else [half]
    rules = Rules(
        compared.edges,
        demands.wide,
        slots,
        noise.rotation_correlation_bound(params),
        cache(lambda norm: largest_slots(params, demands.p_fail_log2, norm) >= slots),
    )
    return with_digit_sums(ways, rules)


def _kinds(integers: LeafIntegers) -> list[int]:
    """Scalar trees of one kind may share an output: one digit, and the same unit of the same output."""
    numbers: dict[bytes, int] = {}
    kinds = []
    for i, scalar in enumerate(integers.scalar_trees):
        key = scalar.contribution.tobytes() if len(scalar.radix) == 1 else str(i).encode()
        kinds.append(numbers.setdefault(key, len(numbers)))
    return kinds


def _most_packed(params: ParameterSet, p_fail_log2: float) -> int:
    """Returns values that an output tells apart after a few look-ups."""
    variance = _PACKED_LOOKUPS * noise.blind_rotation_variance(params)
    values = 2
    while noise.p_fail_log2(1 / (4 * values), variance) <= p_fail_log2 and values < 1 << 12:
        values *= 2
    return values
