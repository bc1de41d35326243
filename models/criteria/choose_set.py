"""The search over parameter sets that networks, exact programs and trees share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet, parameter_set, require_common_mask, require_structured
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import CompileError, PrecisionOverflowError
from cloakwork.models.graph.ir import Graph, Linear, wires
from cloakwork.models.graph.merge_equal import is_output
from cloakwork.models.graph.signs import SignPlan, plan_signs
from cloakwork.models.graph.winner import Contest

# Slots of a set: how many values a look-up distinguishes, their distance, and whether numbers can be compared.

ARGMAX_CANDIDATES: Final = ("large16",)  # whose look-ups add little noise to a difference of scores
COMPARISON_CANDIDATES: Final = (*ARGMAX_CANDIDATES, "fine4", "fine5")  # and to sums under weights of 8 bits
MOST_CLASSES: Final = 64  # of an encrypted arg-max: all pairs are compared


def check_p_fail_log2(p_fail_log2: float) -> None:
    """Raises CompileError for what is no log2 of a probability worth having: a search for values that may be wrong anyway never ends."""
    if not -math.inf < p_fail_log2 <= -1:
        raise CompileError(
            f"p_fail_log2: expected log2 of a probability, at most -1 (-128 is the default), got {p_fail_log2:g}"
        )


def check_classes(classes: int) -> None:
    """Raises CompileError for more classes than an encrypted arg-max takes."""
    if classes > MOST_CLASSES:
        raise CompileError(
            f"tell='labels': expected at most {MOST_CLASSES} classes, got {classes}: every pair is compared; let the client decrypt the scores"
        )


def largest_slots(params: ParameterSet, p_fail_log2: float, norm: float = 0.0) -> int:
    """Returns the largest M at which a look-up fails with at most this probability, for rows of L2 norm `norm` on bootstrap outputs."""
    variance = noise.lookup_variance(params, norm)
    slots = 1
    while noise.p_fail_log2(1 / (4 * (slots + 1)), variance, noise.lookup_offset(params)) <= p_fail_log2:
        slots += 1
    return slots


def noise_limit_percent(params: ParameterSet, margin: float, p_fail_log2: float) -> float:
    """Returns the standard deviation that a look-up may see, per cent of the half torus. Args: margin: from a value to where the next begins."""
    low, high = 1e-9, 1.0
    offset = noise.lookup_offset(params)
    for _ in range(60):
        middle = math.sqrt(low * high)
        fits = noise.p_fail_log2(margin, middle**2, offset) <= p_fail_log2
        low, high = (middle, high) if fits else (low, middle)
    return 200 * low


def lookup_margins(graph: Graph) -> dict[str, float]:
    """Returns the phase from a value of an index to where the next one begins, by the name of the linear node; outputs have none."""
    assert graph.scale is not None
    return {
        node.origin: float(graph.scale[wires(node)].min()) / 2 for node in graph.linears if not is_output(graph, node)
    }


def plan_contest(
    leads: Indices, bits: int, variance: float, params: ParameterSet, p_fail_log2: float
) -> Contest | None:
    """Plans how to find the largest of several integers, with the fewest look-ups; None where noise leaves no room.

    Args:
        leads: [classes, classes], of `Contest`.
        bits: of every difference, sign included.
        variance: of a difference, as part of the torus.
    """
    slots = 1 << (largest_slots(params, p_fail_log2).bit_length() - 1)
    if slots < 2 or largest_slots(params, p_fail_log2, math.sqrt(slots)) < slots:
        return None
    bits = max(bits, slots.bit_length())  # 2^B is a multiple of a circle
    plan = plan_highest_bits(bits, variance, params, p_fail_log2)
    return None if plan is None else Contest(plan, slots, leads)


def plan_highest_bits(
    bits: int, variance: float, params: ParameterSet, p_fail_log2: float, kept: int = 1, spare: int = 0
) -> SignPlan | None:
    """Plans how to find the highest bits of an integer, `kept` of them at least, with the fewest look-ups; None where noise leaves no room.

    Args:
        variance: of the integer, as part of the torus.
        spare: bits more that every window but the lowest has room for.
    """
    # Every bit that is subtracted is one look-up more at most.
    of_row = variance + 2 * bits * noise.blind_rotation_variance(params)

    def fits(width: int, factor_log2: int) -> bool:
        seen = noise.lookup_variance(params, 0.0) + 4.0**factor_log2 * of_row
        read = width if width + factor_log2 == bits else width + spare
        return noise.p_fail_log2(2.0 ** -(read + 1), seen, noise.lookup_offset(params)) <= p_fail_log2

    return plan_signs(bits, fits, kept)


def winner_p_fail_log2(params: ParameterSet, contest: Contest) -> float:
    """Returns log2 of the probability that the client decrypts another number than that of the winner."""
    variance = contest.classes * noise.blind_rotation_variance(params) + noise.rerandomisation_variance(params)
    return noise.p_fail_log2(contest.output_unit / 2, variance)


# The last check of a program, whatever its options: what a look-up reads fits its table, and answers have room for their range.

_TABLE: Final = 0.25  # of the torus, from the middle of a row's range either way: what a table holds
_ANSWER: Final = 1.0  # of the torus, the whole of an answer's range; clients of trees read it from 0 on
_SLACK: Final = 1e-6  # for rounding


def check_room(graph: Graph) -> None:
    """Raises PrecisionOverflowError: names the layer of a value that wraps for certain, its range and what fits. Args: graph: quantised."""
    assert graph.lower is not None and graph.upper is not None and graph.scale is not None and graph.offset is not None
    middle_out = np.maximum(graph.upper - graph.offset, graph.offset - graph.lower) * graph.scale
    of_tables, of_answers = middle_out / _TABLE, (graph.upper - graph.lower) * graph.scale / _ANSWER
    fullness = np.maximum(np.where(_looked_up(graph), of_tables, 0.0), np.where(_answered(graph), of_answers, 0.0))
    for node in graph.nodes:
        node_wires = wires(node)
        if not isinstance(node, Linear) or float(fullness[node_wires].max()) <= 1 + _SLACK:
            continue
        worst = node.first_wire + int(np.argmax(fullness[node_wires]))
        raise PrecisionOverflowError(
            f"layer '{node.origin}': its range of {graph.lower[worst]:.4g} to {graph.upper[worst]:.4g} is {fullness[worst]:.2f} times what "
            f"{'a table' if of_tables[worst] == fullness[worst] else 'an answer'} holds at its scale, and values would come back on the other "
            "side; use a wider parameter set, or more typical samples"
        )


def _looked_up(graph: Graph) -> Reals:
    """Returns [wires]: whether a look-up reads it; not those of a whole circle."""
    read = np.zeros(graph.wire_count + 1, dtype=bool)
    for lookup in graph.lookups:
        read[lookup.gather] |= not lookup.is_table
    return np.asarray(read[:-1])


def _answered(graph: Graph) -> Reals:
    """Returns [wires]: whether the client decrypts it."""
    read = np.zeros(graph.wire_count + 1, dtype=bool)
    read[graph.output.reshape(-1)] = True
    return np.asarray(read[:-1])


Made = TypeVar("Made")

# Of the time of a two-limb step: 0.93 to 0.96 on a GPU that is full, 0.94 to 0.98 on a CPU (docs/decisions/modulus-raising.md).
RAISED_SHARE: Final = 0.96


def named_sets(
    candidates: Sequence[ParameterSet | str], structured: bool, common_mask: bool = False
) -> list[ParameterSet]:
    """Returns sets, or their names, as sets; ParameterError for one with a structured secret, or a common mask, that was not asked for."""
    sets = [parameter_set(each if isinstance(each, str) else each.name) for each in candidates]
    for params in sets:
        require_structured(params, structured)
        require_common_mask(params, common_mask)
    return sets


def fitting(candidates: Iterable[ParameterSet], fits: Callable[[ParameterSet], Made | None]) -> Iterator[Made]:
    """Yields what `fits` makes of the sets that fit, one after the other, in their order; of the others it returns None, and remembers why."""
    for params in candidates:
        choice = fits(params)
        if choice is not None:
            yield choice


def choose_set(
    candidates: Iterable[ParameterSet],
    fits: Callable[[ParameterSet], Made | None],
    cost: Callable[[Made], float] | None = None,
) -> Made | None:
    """Returns the cheapest of what `fits` makes of the sets; None where none fits.

    Args:
        cost: of what was made; None: the sets come cheapest first, and the first that fits is taken.
    """
    choices = fitting(candidates, fits)
    return next(choices, None) if cost is None else min(choices, key=cost, default=None)


def bootstrap_cost(params: ParameterSet) -> float:
    """Returns multiplications of one blind rotation, about: transforms of the digits and back, and the products with the key; of raised sets as
    many as take its time."""
    columns = params.accumulator_components
    transforms = (params.row_count + columns) * params.polynomial_size * math.log2(params.polynomial_size) / 2
    keys = 1 if params.digit_bits else params.keys_per_step  # that a ciphertext multiplies with
    products = keys * params.row_count * columns * params.polynomial_size
    share = RAISED_SHARE if params.raised else 1.0
    return share * params.step_count * params.extension_factor * params.key_limb_count * (transforms + products)
