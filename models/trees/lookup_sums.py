"""Look-ups whose results are added up in one output: those on the same index become one whose table is the sum of theirs.

A table may be turned and mirrored, so an index counts up to its constant and its sign. The sum has the noise of one look-up, where equal
look-ups of equal trees would have had that of each times their number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.trees.cover import Cover, TreeLookup

Index: TypeAlias = tuple[tuple[int, int], ...]  # (edge, weight) by edge, the first weight positive


@dataclass(frozen=True, eq=False)
class SummedCovers:
    """sum of covers = constant + sum of linear[edge] * bit + sum of look-ups."""

    lookups: tuple[TreeLookup, ...]
    linear: dict[int, int]
    constant: float


def index_of(lookup: TreeLookup) -> Index:
    """Returns the index without its constant, with a sign that makes it canonical."""
    sign = _sign(lookup)
    return tuple((edge, sign * weight) for edge, weight in lookup.weights)


def sum_covers(covers: Iterable[Cover]) -> SummedCovers:
    """Adds up covers: one look-up for each index; none where the tables cancel."""
    tables: dict[Index, Reals] = {}
    linear: dict[int, int] = {}
    constant = 0.0
    for cover in covers:
        constant += cover.constant
        for edge, weight in cover.linear.items():
            linear[edge] = linear.get(edge, 0) + weight
        for lookup in cover.lookups:
            index = index_of(lookup)
            tables[index] = tables.get(index, 0.0) + canonical_table(lookup)
    if () in tables:  # an index that no bit moves
        constant += float(tables.pop(())[0])
    lookups = tuple(TreeLookup(index, 0, tuple(table.tolist())) for index, table in tables.items() if table.any())
    return SummedCovers(lookups, {edge: weight for edge, weight in linear.items() if weight}, constant)


def _sign(lookup: TreeLookup) -> int:
    return -1 if lookup.weights and lookup.weights[0][1] < 0 else 1


def canonical_table(lookup: TreeLookup) -> Reals:
    """Returns the table [2M] of the canonical index, which is `sign` * (index - constant)."""
    places = np.arange(len(lookup.entries))
    return np.array(lookup.entries)[(lookup.constant + _sign(lookup) * places) % len(places)]
