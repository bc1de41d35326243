"""Leaf values as integers, and the scalar trees that a program evaluates.

A tree with one varying output is a scalar tree. One with several is one scalar tree for each, less one where the outputs of a leaf add up to the
same number in all leaves (shares of classes); or a single scalar tree whose value has the outputs as digits, where they are small.

All outputs have one unit where what follows them compares or mixes them. Values of a regression have a unit each: targets of spread 1 and of 0.001
then keep the same share of their spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble

MOST_LEAF_BITS: Final = 12
_EXACT: Final = 1e-9


@dataclass(frozen=True, eq=False)
class ScalarTree:
    """One integer value per node of tree number `tree`, a mixed-radix number of the outputs' integers."""

    tree: int
    values: Indices  # [nodes]
    radix: tuple[int, ...]  # of the digits, the lowest first; one digit: the value itself
    contribution: Reals  # [digits, outputs] of a digit's unit to the score


@dataclass(frozen=True, eq=False)
class LeafIntegers:
    scalar_trees: tuple[ScalarTree, ...]
    offset: Reals  # [outputs], which the client adds
    error: float  # the largest possible error of a score by rounding leaf values


def leaf_integers(
    ensemble: TreeEnsemble, bits: int, most_packed: int, steps: int | None = None, *, units_apart: bool = False
) -> LeafIntegers:
    """Returns integers of at most `bits` bits.

    Args:
        most_packed: the largest mixed-radix number that is put into one scalar tree.
        steps: into which the widest range of leaf values is divided; None: as many as the bits allow, or fewer that are exact.
        units_apart: each output has a unit of its own.
    """
    if not 1 <= bits <= MOST_LEAF_BITS:
        raise CompileError(f"leaf_bits: expected 1 to {MOST_LEAF_BITS}, got {bits}")
    share = 1.0 if ensemble.aggregation == "sum" else 1.0 / len(ensemble.trees)
    assert ensemble.base is not None
    offset, error = ensemble.base.copy(), np.zeros(ensemble.outputs)
    unit = _units(ensemble, bits, units_apart) if steps is None else _alike(ensemble, _widest(ensemble) / steps or 1.0)
    scalar: list[ScalarTree] = []
    for number, tree in enumerate(ensemble.trees):
        leaves = tree.values[tree.leaves]
        lowest = leaves.min(axis=0)
        digits = np.rint((tree.values - lowest) / unit).astype(np.int64)
        digits[tree.inner] = 0
        varying = np.flatnonzero(digits.max(axis=0) > 0)
        contribution = np.eye(ensemble.outputs) * unit * share
        total = leaves.sum(axis=1)
        near = _EXACT * (unit.max() if units_apart else max(1.0, abs(total[0])))
        if len(varying) > 1 and np.abs(total - total[0]).max() <= near:
            # The last output of the widest unit is what the others leave of the constant sum.
            dropped = varying[unit[varying] == unit[varying].max()][-1]
            varying = varying[varying != dropped]
            lowest[dropped] += total[0] - lowest.sum()
            contribution[varying, dropped] = -unit[varying] * share
            digits[:, dropped] = 0
        offset += lowest * share
        rounded = lowest + digits[tree.leaves] @ (contribution / share)
        error += np.abs(rounded - leaves).max(axis=0) * share
        scalar += _scalar_trees(number, tree, digits[:, varying], contribution[varying], most_packed)
    if not scalar:  # the same score for every sample: one output that is always 0
        nothing = np.zeros(len(ensemble.trees[0].left), dtype=np.int64)
        scalar = [ScalarTree(0, nothing, (2,), np.zeros((1, ensemble.outputs)))]
    return LeafIntegers(tuple(scalar), offset, float(error.max()))


def equal_trees(ensemble: TreeEnsemble, node_edges: Sequence[Indices], integers: LeafIntegers) -> Indices:
    """Returns for each scalar tree the first one with the same comparisons, leaf integers and digits.

    Args:
        node_edges: for each tree, the edge that every node compares with.
    """
    first: dict[tuple[object, ...], int] = {}
    numbers = []
    for i, scalar in enumerate(integers.scalar_trees):
        tree, inner = ensemble.trees[scalar.tree], ensemble.trees[scalar.tree].inner
        columns = (tree.left, tree.right, node_edges[scalar.tree][inner], scalar.values[tree.leaves])
        key = (*(column.tobytes() for column in columns), scalar.radix)
        numbers.append(first.setdefault(key, i))
    return np.array(numbers, dtype=np.int64)


def counted_once(integers: LeafIntegers, first: Indices) -> tuple[LeafIntegers, Indices]:
    """Returns equal scalar trees of equal contribution as one that contributes as often as there were, and the numbers of those that are left.

    Args:
        first: of equal_trees.
    """
    count: dict[tuple[int, bytes], list[int]] = {}
    for i, (scalar, number) in enumerate(zip(integers.scalar_trees, first.tolist(), strict=True)):
        count.setdefault((number, scalar.contribution.tobytes()), []).append(i)
    kept = [members[0] for members in count.values()]
    scalar_trees = tuple(
        replace(
            integers.scalar_trees[members[0]],
            contribution=integers.scalar_trees[members[0]].contribution * len(members),
        )
        for members in count.values()
    )
    return replace(integers, scalar_trees=scalar_trees), np.array(kept, dtype=np.int64)


def _widest(ensemble: TreeEnsemble) -> float:
    """Returns the widest range of leaf values of one output of a tree."""
    return max(float(np.ptp(tree.values[tree.leaves], axis=0).max()) for tree in ensemble.trees)


def _units(ensemble: TreeEnsemble, bits: int, apart: bool) -> Reals:
    """Returns [outputs]: the steps of leaf values."""
    spans = [tree.values[tree.leaves] - tree.values[tree.leaves].min(axis=0) for tree in ensemble.trees]
    if apart:
        return np.array([_unit([span[:, k] for span in spans], bits) for k in range(ensemble.outputs)])
    return _alike(ensemble, _unit([span.reshape(-1) for span in spans], bits))


def _alike(ensemble: TreeEnsemble, unit: float) -> Reals:
    return np.full(ensemble.outputs, unit)


def _unit(spans: Sequence[Reals], bits: int) -> float:
    """Returns the step of leaf values: one that is exact, where there is one, else the widest range in 2^bits - 1 steps.

    Args:
        spans: of each tree the leaf values less the lowest of their output.
    """
    every = np.unique(np.concatenate(spans))
    widest = float(every[-1])
    if widest == 0:
        return 1.0
    for steps in range(1, 1 << bits):
        unit = widest / steps
        if np.abs(every / unit - np.rint(every / unit)).max() <= _EXACT * steps:
            return unit
    return widest / ((1 << bits) - 1)


def _scalar_trees(number: int, tree: Tree, digits: Indices, contribution: Reals, most_packed: int) -> list[ScalarTree]:
    if digits.shape[1] == 0:
        return []
    radix = [int(most) + 1 for most in digits.max(axis=0)]
    if len(radix) > 1 and math.prod(radix) <= most_packed:
        packed = np.zeros(len(digits), dtype=np.int64)
        for column in reversed(range(len(radix))):
            packed = packed * radix[column] + digits[:, column]
        return [ScalarTree(number, packed, tuple(radix), contribution)]
    return [
        ScalarTree(number, digits[:, column], (radix[column],), contribution[column : column + 1])
        for column in range(len(radix))
    ]
