"""Slots of a set: how many values a look-up distinguishes, their distance, and whether numbers can be compared."""

from __future__ import annotations

import math
from typing import Final

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.affine import is_output
from cloakwork.models.graph.ir import Graph, wires
from cloakwork.models.graph.signs import SignPlan, plan_signs
from cloakwork.models.graph.winner import Contest

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
