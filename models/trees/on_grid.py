"""An ensemble on the public grid that clients know: its grid, its thresholds moved there, and how well it still agrees with itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals, some_rows
from cloakwork.models.client_steps import Thermometer, column_labels, run_input_steps, run_output_steps
from cloakwork.models.criteria.tree_comparisons import GRID_BITS
from cloakwork.models.criteria.verdicts import Verdict
from cloakwork.models.errors import AccuracyError, AccuracyWarning, CompileError, some, warn_user
from cloakwork.models.original.agreement import Answers, least_of
from cloakwork.models.program.facts import GridFacts
from cloakwork.models.trees.between import points_between
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.grid_bits import grid_step
from cloakwork.models.trees.options import TreeOptions
from cloakwork.models.trees.public_grid import FeatureGrid, public_grid
from cloakwork.models.trees.snapping import snapped

ENOUGH_AGREEMENT: Final = 0.98  # with less there is a warning
_WANTED: Final = 0.99  # for which more bits are tried, where they cost next to nothing
_CHEAP_BITS: Final = 8
COMPARED: Final = 2000  # calibration samples
_MOST_NAMED: Final = 3


@dataclass(frozen=True, eq=False)
class OnGrid:
    ensemble: TreeEnsemble  # with thresholds on the grid
    grids: tuple[FeatureGrid, ...]
    step: Thermometer | None  # of thresholds="grid"; else it follows from the parameter set
    facts: GridFacts  # but for what is sent
    moved: Indices  # samples that change sides, by feature
    verdict: Verdict | None  # None: there are no samples


def on_grid(ensemble: TreeEnsemble, options: TreeOptions) -> OnGrid:
    """Moves an ensemble to the coarsest grid that keeps enough, where its bits were not asked for.

    Raises:
        CompileError: no samples and no ranges, or wishes that cannot be fulfilled.
        AccuracyError: the grid is too coarse, under the accuracy that was asked for.

    Warns:
        AccuracyWarning: the same, nearly.
    """
    first = options.first_steps(ensemble)
    samples = calibration_table(ensemble, options)
    names = column_labels(first, np.zeros((1, ensemble.features))) or ()
    bits = GRID_BITS if options.grid_bits is None else (options.grid_bits,)
    chosen = _with_bits(ensemble, options, samples, names, bits[0])
    for more in bits[1:]:
        if not _is_coarse(chosen.verdict, options.accuracy, more):
            break
        try:
            finer = _with_bits(ensemble, options, samples, names, more)
        except CompileError:  # more than a sample should have
            break
        assert chosen.verdict is not None and finer.verdict is not None
        chosen = finer if finer.verdict.worth > chosen.verdict.worth else chosen
    verdict, accuracy = chosen.verdict, options.accuracy
    if verdict is not None and (verdict.value < ENOUGH_AGREEMENT or not verdict.reaches(accuracy)):
        worst = [names[i] for i in np.argsort(-chosen.moved, kind="stable")[:_MOST_NAMED] if chosen.moved[i]]
        text = _text(verdict, chosen.facts.bits, worst)
        if not verdict.reaches(accuracy):
            raise AccuracyError(f"{text}; {100 * accuracy:g} % were asked for (accuracy=)")
        warn_user(text, AccuracyWarning)
    return chosen


def _with_bits(
    ensemble: TreeEnsemble, options: TreeOptions, samples: Reals | None, names: Sequence[str], bits: int
) -> OnGrid:
    grids = public_grid(samples, names, options.grid, options.ranges, bits)
    step = grid_step(ensemble, grids, bits) if options.thresholds == "grid" else None
    snap = snapped(ensemble, grids, samples)
    verdict = None
    if samples is not None:
        both = (some_rows(samples, COMPARED), points_between(samples, grids, ensemble))
        verdict = least_of(answers_of(ensemble, snap.ensemble, each) for each in both)
    compared = 0 if samples is None else min(COMPARED, len(samples))
    return OnGrid(snap.ensemble, grids, step, _facts(verdict, compared, grids, bits), snap.moved, verdict)


def _is_coarse(verdict: Verdict | None, accuracy: float, more: int) -> bool:
    """Whether more bits are worth it: up to 8 they cost next to nothing."""
    if verdict is None:
        return False
    return not verdict.reaches(accuracy) or (more <= _CHEAP_BITS and verdict.value < max(accuracy, _WANTED))


def calibration_table(ensemble: TreeEnsemble, options: TreeOptions) -> Reals | None:
    """Returns [samples, features] as the trees see them; None where there are none."""
    if options.samples is None:
        return None
    table = np.asarray(run_input_steps(options.first_steps(ensemble), options.samples), dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != ensemble.features or not len(table):
        raise CompileError(
            f"samples: expected samples of {ensemble.features} features, got an array of shape {list(table.shape)}; pass training samples"
        )
    strange = np.isinf(table) if ensemble.takes_missing else ~np.isfinite(table)
    if strange.any():
        raise CompileError(
            f"samples: expected finite features of the trees, got another in sample {int(np.argmax(strange.any(axis=1)))} after the steps "
            "before them; leave such samples out"
        )
    return table


def _facts(verdict: Verdict | None, samples: int, grids: tuple[FeatureGrid, ...], bits: int) -> GridFacts:
    kinds = dict(sorted(Counter(grid.kind for grid in grids).items()))
    points = sum(grid.count for grid in grids)
    if verdict is None:
        return GridFacts(bits, points, 0, kinds)
    return GridFacts(bits, points, 0, kinds, verdict.measure, verdict.value, samples, at_least=verdict.at_least)


def answers_of(ensemble: TreeEnsemble, other: TreeEnsemble, samples: Reals) -> Answers:
    clear, answers = (
        np.asarray(run_output_steps(each.output_steps, each.scores(samples))) for each in (ensemble, other)
    )
    return clear, answers


def _text(verdict: Verdict, bits: int, worst: list[str]) -> str:
    kept = "decide as before on" if verdict.measure == "agreement" else "keep their values to"
    where = f", most by the grid of {some(worst)}" if worst else ""
    at_least = f"{'of ' + verdict.where + ' at most' if verdict.where else 'at least'} {100 * verdict.at_least:.1f} %"
    return (
        f"public grid of {bits} bits: on samples, and points between them, the trees {kept} {100 * verdict.value:.1f} % "
        f"({at_least}){where}; more grid_bits help, and where few values lie far from the others grid='quantiles', which tells clients about the "
        "samples, or ranges="
    )
