"""The parts of a chain of look-ups, by their origins: what the compiler puts in place of one look-up of the model is named after it.

An origin is `NAME, PART (DETAIL)`, so that files say it too, and reports count look-ups by name and part.
"""

from __future__ import annotations

import re
from collections import Counter
from enum import Enum
from typing import Final

from cloakwork.models.graph.ir import Graph


class LookupRole(Enum):
    """A part of a chain; None is a look-up of the model itself."""

    CLAMP = "clamp"  # of a search for digits: what lies where no thresholds are
    COARSE = "coarse digit"
    FINE = "fine digit"
    CORRECTION = "correction"
    LOWER = "lower bits"  # that are taken away
    HIGHEST = "highest bits"  # that are left: mostly a sign
    PIECE = "piece"  # of a maximum, minimum or choice
    CONDITION = "condition"  # of a choice


DIRECT: Final = "direct"
_ORIGIN: Final = re.compile(rf"(.*), ({'|'.join(part.value for part in LookupRole)}) \([^()]*\)", re.DOTALL)


def part_origin(name: str, part: LookupRole, detail: str) -> str:
    """Names the origin of a part. Args: name: the origin of the look-up of the model; detail: without brackets."""
    return f"{name}, {part.value} ({detail})"


def lookups_by_part(graph: Graph) -> dict[str, dict[str, int]]:
    """Counts bootstraps of a sample by the name of the model's look-up, and by part of its chain or as "direct"; both in the order of the graph."""
    bootstraps: dict[str, Counter[str]] = {}
    for node in graph.lookups:
        match = _ORIGIN.fullmatch(node.origin)
        name, part = match.groups() if match is not None else (node.origin, DIRECT)
        bootstraps.setdefault(name, Counter())[part] += node.bootstraps
    return {name: dict(counts) for name, counts in bootstraps.items()}
