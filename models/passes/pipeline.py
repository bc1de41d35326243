"""The ordered passes that restructure an imported graph; each result is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cloakwork.models.ir import Graph, check
from cloakwork.models.passes.fold_affine import fold_affine
from cloakwork.models.passes.fold_normalisation import fold_normalisation
from cloakwork.models.passes.fuse_functions import fuse_functions
from cloakwork.models.passes.lower_products import lower_products
from cloakwork.models.passes.merge_equal import merge_equal
from cloakwork.models.passes.separate_levels import separate_levels
from cloakwork.models.passes.separate_outputs import separate_outputs

RESTRUCTURING: Final[tuple[Callable[[Graph], Graph], ...]] = (
    fold_normalisation,
    fuse_functions,
    lower_products,
    fold_affine,
    separate_levels,
    separate_outputs,
    merge_equal,
)


def restructure(graph: Graph) -> Graph:
    for rewrite in RESTRUCTURING:
        graph = check(rewrite(graph))
    return graph
