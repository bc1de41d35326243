"""Points between samples, as new samples are: thresholds lie midway between samples, so that these say little of one that has moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cloakwork.models.arrays import Reals, some_rows
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.public_grid import FeatureGrid

_POINTS: Final = 2000
_FEW_TREES: Final = 10  # of which a threshold that moves changes an answer seldom, by much: more points show it
_MOST_NUMBERS: Final = 1 << 24  # of these more points
_SEED: Final = 20261128
_KNOWN: Final = ("integers", "categories")  # grids of features that have no values between those seen


def points_between(samples: Reals, grids: Sequence[FeatureGrid], ensemble: TreeEnsemble) -> Reals:
    """Returns [points, features]: samples whose features are drawn anew between the middles to the next lower and the next higher value.

    A value that repeats stays, as do features of whole numbers, steps and categories.

    Args:
        samples: [samples, features], NaN where values are missing.
        ensemble: features that it does not compare stay.
    """
    rng = np.random.default_rng(_SEED)
    more = min(_POINTS * (_FEW_TREES // len(ensemble.trees)), _MOST_NUMBERS // ensemble.features)
    drawn = max(_POINTS, more)
    points = np.resize(some_rows(samples, drawn), (drawn, samples.shape[1]))
    for feature in np.unique(np.concatenate([tree.feature[tree.inner] for tree in ensemble.trees])).tolist():
        column, values, grid = points[:, feature], samples[:, feature], grids[feature]
        distinct, count = np.unique(values[~np.isnan(values)], return_counts=True)
        if len(distinct) < 2 or grid.kind in _KNOWN:
            continue
        middles = np.concatenate([distinct[:1], distinct[:-1] / 2 + distinct[1:] / 2, distinct[-1:]])
        moving = np.flatnonzero(~np.isnan(column))
        place = np.searchsorted(distinct, column[moving])
        moving, place = moving[count[place] == 1], place[count[place] == 1]
        low, high = middles[place], middles[place + 1]
        share = rng.random(len(moving))
        column[moving] = (1 - share) * low + share * high
    return points
