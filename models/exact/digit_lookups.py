"""The look-ups of a search for digits (digit_search): each is read twice where thresholds are counted, and the last one is compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.exact.digit_search import SLOTS, DigitPlan, DigitTables, Reading, ReadingKind
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.graph.lookup_parts import LookupRole, part_origin
from cloakwork.models.graph.signs import circle, highest_bits


def search_digits(
    builder: GraphBuilder,
    rows: Sequence[Row],
    tables: Sequence[DigitTables],
    step: Reals,
    facts: WireEncoding,
    name: str,
) -> tuple[list[Indices], Reals]:
    """Returns look-ups of one plan: what is to be added up for each row [rows] each, and constants [rows].

    Args:
        rows: constants in integers.
        step: [rows], of the function, in the numbers of `facts`.
        facts: of the results.
    """
    plan = tables[0].plan
    unit, left, lookups = 2.0**-plan.bits, list(rows), []
    ranks: list[Indices] = []
    for i, reading in enumerate(plan.readings):
        scaled = [_read(row, each.centres[i], reading, plan.bits) for row, each in zip(left, tables, strict=True)]
        part = part_origin(name, _part_of(plan, i), f"reading {i + 1}")
        index = builder.linear(scaled, circle(SLOTS), part)
        values = np.stack([each.subtracted[i] for each in tables])
        reach = float(np.abs(values).max())
        taken = builder.search(
            index, _turned(values), _tolerance(reading.margin), WireEncoding(unit, -reach, reach), part
        )
        left = [_less(row, wire) for row, wire in zip(left, taken.tolist(), strict=True)]
        if plan.kinds[i] is ReadingKind.DIGIT:
            counted = np.stack([each.passed[i] for each in tables]) * step[:, None]
            lookups.append(builder.search(index, _turned(counted), _tolerance(reading.margin), facts, part))
        if i in plan.ranked:
            ranked = np.stack([each.ranks[len(ranks)] for each in tables])
            turn = WireEncoding(2.0**-plan.ranks, -float(ranked.max()), float(ranked.max()))
            ranks.append(builder.search(index, _turned(ranked), _tolerance(reading.margin), turn, part))
    if plan.ranks:
        left = _corrected(builder, left, tables, ranks, name)
    factor = 1 << (plan.bits - plan.sign.bits)
    compared = [Row({wire: factor * weight for wire, weight in row.weights.items()}, row.constant) for row in left]
    half = np.repeat([0.5, -0.5], 1 << (plan.sign.windows[-1] - 1))
    lookups.append(highest_bits(builder, compared, plan.sign, step[:, None] * half[None], facts, name))
    return lookups, step / 2


def _part_of(plan: DigitPlan, reading: int) -> LookupRole:
    """The last reading is the fine one; of two that count the other is coarse."""
    if plan.kinds[reading] is ReadingKind.CLAMP:
        return LookupRole.CLAMP
    return LookupRole.FINE if reading == len(plan.readings) - 1 else LookupRole.COARSE


def _tolerance(margin: float) -> float:
    """In slots."""
    return margin * 2 * SLOTS


def _turned(values: Reals) -> Reals:
    return np.concatenate([values, -values], axis=1)


def _read(row: Row, centre: float, reading: Reading, bits: int) -> Row:
    per_integer = 1 / reading.slot(bits)
    weights = {wire: reading.factor * weight for wire, weight in row.weights.items()}
    return Row(weights, (SLOTS - 1) / 2 + per_integer * (row.constant - centre))


def _less(row: Row, wire: int) -> Row:
    return Row({**row.weights, wire: -1}, row.constant)


def _corrected(
    builder: GraphBuilder, rows: list[Row], tables: Sequence[DigitTables], ranks: Sequence[Indices], name: str
) -> list[Row]:
    """Less eps, the sign of what ranks add up to. Args: ranks: where they are apart."""
    plan = tables[0].plan
    half, factor = 1 << (plan.ranks - 1), 1 << max(0, plan.place - plan.ranks)
    scale = factor * 2.0 ** (plan.ranks - plan.bits)
    sums = [
        Row({int(part[i]): 1 for part in ranks}, -float(each.count))
        if ranks
        else Row({wire: factor * weight for wire, weight in row.weights.items()}, row.constant * scale - each.count)
        for i, (row, each) in enumerate(zip(rows, tables, strict=True))
    ]
    part = part_origin(name, LookupRole.CORRECTION, "ranks")
    index = builder.linear(sums, circle(half), part)
    values = np.broadcast_to(np.repeat([0.5, -0.5], half), (len(rows), 2 * half))
    eps = builder.search(index, values, plan.rank_margin * 2 * half, WireEncoding(2.0**-plan.bits, -0.5, 0.5), part)
    return [Row({**row.weights, e: -1}, row.constant - 0.5) for row, e in zip(rows, eps.tolist(), strict=True)]
