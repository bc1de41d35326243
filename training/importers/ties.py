"""Thresholds that are training values themselves, as histogram boosting has them, behind steps that are not exact to the last bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import (
    Append,
    Binarise,
    Bins,
    Categories,
    Columns,
    Compare,
    Complete,
    Divide,
    Equal,
    Impute,
    InputStep,
    OneHot,
    Polynomials,
    Present,
    Saturate,
    Select,
    Standardise,
)
from cloakwork.models.trees.ensemble import TreeEnsemble

_EXACT: Final = (
    Append, Binarise, Bins, Categories, Columns, Compare, Complete, Divide, Equal, Impute, OneHot, Polynomials, Present, Saturate, Select,
    Standardise,
)  # fmt: skip
_ROOM: Final = 1e-9  # of the largest threshold of a feature: what sums of many terms may differ by


def above_ties(ensemble: TreeEnsemble, steps: Sequence[InputStep]) -> TreeEnsemble:
    """Thresholds moved up by more than the client's arithmetic may differ from the training's, so that a value that is one stays below it.

    Sums of products, logarithms and roots depend on the library and the processor in their last bits; a value that was the threshold in training
    would go to either side. Ensembles that compare float32, or <, have thresholds between values.
    """
    if ensemble.single or ensemble.strict or all(isinstance(step, _EXACT) for step in _all(steps)):
        return ensemble
    room = _ROOM * _sizes(ensemble)
    trees = tuple(
        replace(tree, threshold=tree.threshold + np.where(tree.left < 0, 0.0, room[np.maximum(tree.feature, 0)]))
        for tree in ensemble.trees
    )
    return replace(ensemble, trees=trees)


def _all(steps: Sequence[InputStep]) -> Iterator[InputStep]:
    for step in steps:
        yield step
        yield from _all(step.steps) if isinstance(step, Append) else ()


def _sizes(ensemble: TreeEnsemble) -> Reals:
    """Returns [features] the largest threshold of each, without its sign."""
    sizes = np.zeros(ensemble.features)
    for tree in ensemble.trees:
        inner = (tree.left >= 0) & np.isfinite(tree.threshold)
        np.maximum.at(sizes, tree.feature[inner], np.abs(tree.threshold[inner]))
    return sizes
