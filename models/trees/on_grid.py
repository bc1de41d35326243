"""An ensemble on the public grid that clients know: its grid, its thresholds moved there, and how well it still agrees with itself."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals, some_rows
from cloakwork.models.client_steps import Thermometer, column_labels, run_input_steps, run_output_steps
from cloakwork.models.criteria.tree_comparisons import GRID_BITS
from cloakwork.models.errors import AccuracyError, AccuracyWarning, CompileError, some
from cloakwork.models.original.agreement import kept
from cloakwork.models.program.facts import GridFacts, Measure
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.grid_bits import grid_step
from cloakwork.models.trees.options import TreeOptions
from cloakwork.models.trees.public_grid import FeatureGrid, public_grid
from cloakwork.models.trees.snapping import snapped

ENOUGH_AGREEMENT: Final = 0.98  # with less there is a warning
_WANTED: Final = 0.99  # for which more bits are tried, where they cost next to nothing
_CHEAP_BITS: Final = 8
_COMPARED: Final = 2000  # calibration samples
_MOST_NAMED: Final = 3


@dataclass(frozen=True, eq=False)
class OnGrid:
    ensemble: TreeEnsemble  # with thresholds on the grid
    grids: tuple[FeatureGrid, ...]
    step: Thermometer | None  # of comparisons="grid"; else it follows from the parameter set
    facts: GridFacts  # but for what is sent
    moved: Indices  # samples that change sides, by feature


def on_grid(ensemble: TreeEnsemble, options: TreeOptions) -> OnGrid:
    """On the coarsest grid that keeps enough, where its bits were not asked for.

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
    found = _with_bits(ensemble, options, samples, names, bits[0])
    for more in bits[1:]:
        if not _is_coarse(found.facts, options, more):
            break
        try:
            finer = _with_bits(ensemble, options, samples, names, more)
        except CompileError:  # more than a sample should have
            break
        found = finer if _kept(finer.facts) > _kept(found.facts) else found
    kept = _kept(found.facts)
    if kept < max(options.accuracy, ENOUGH_AGREEMENT):
        worst = [names[i] for i in np.argsort(-found.moved, kind="stable")[:_MOST_NAMED] if found.moved[i]]
        if kept < options.accuracy:
            raise AccuracyError(f"{_text(found.facts, worst)}; {100 * options.accuracy:g} % were asked for (accuracy=)")
        warnings.warn(_text(found.facts, worst), AccuracyWarning, stacklevel=3)
    return found


def _with_bits(
    ensemble: TreeEnsemble, options: TreeOptions, samples: Reals | None, names: Sequence[str], bits: int
) -> OnGrid:
    grids = public_grid(samples, names, options.grid, options.feature_ranges, bits)
    step = grid_step(ensemble, grids, bits) if options.comparisons == "grid" else None
    found = snapped(ensemble, grids, samples)
    return OnGrid(found.ensemble, grids, step, _facts(ensemble, found.ensemble, grids, bits, samples), found.moved)


def _kept(facts: GridFacts) -> float:
    return 1.0 if facts.agreement is None else facts.agreement


def _is_coarse(facts: GridFacts, options: TreeOptions, more: int) -> bool:
    """Whether so many bits more are worth it: up to 8 they cost next to nothing."""
    return _kept(facts) < (options.accuracy if more > _CHEAP_BITS else max(options.accuracy, _WANTED))


def calibration_table(ensemble: TreeEnsemble, options: TreeOptions) -> Reals | None:
    """[samples, features] as the trees see them; None where there are none."""
    if options.calibration is None:
        return None
    table = np.asarray(run_input_steps(options.first_steps(ensemble), options.calibration), dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != ensemble.features or not len(table):
        raise CompileError(
            f"calibration: expected samples of {ensemble.features} features, got an array of shape {list(table.shape)}; pass training samples"
        )
    strange = np.isinf(table) if ensemble.takes_missing else ~np.isfinite(table)
    if strange.any():
        raise CompileError(
            f"calibration: expected finite features of the trees, got another in sample {int(np.argmax(strange.any(axis=1)))} after the steps "
            "before them; leave such samples out"
        )
    return table


def _facts(
    ensemble: TreeEnsemble, moved: TreeEnsemble, grids: tuple[FeatureGrid, ...], bits: int, samples: Reals | None
) -> GridFacts:
    kinds = dict(sorted(Counter(grid.kind for grid in grids).items()))
    points = sum(grid.count for grid in grids)
    if samples is None:
        return GridFacts(bits, points, 0, kinds)
    measure, value = agreement(ensemble, moved, samples)
    return GridFacts(bits, points, 0, kinds, measure, value, min(_COMPARED, len(samples)))


def agreement(ensemble: TreeEnsemble, other: TreeEnsemble, samples: Reals) -> tuple[Measure, float]:
    """What `kept` of original/agreement.py says of the samples (2,000 of many)."""
    chosen = some_rows(samples, _COMPARED)
    clear, found = (np.asarray(run_output_steps(each.output_steps, each.scores(chosen))) for each in (ensemble, other))
    return "closeness" if clear.dtype.kind == "f" else "agreement", kept(clear, found)


def _text(facts: GridFacts, worst: list[str]) -> str:
    assert facts.agreement is not None
    kept = "decide as before on" if facts.measure == "agreement" else "keep their values to"
    where = f", most by the grid of {some(worst)}" if worst else ""
    return (
        f"public grid of {facts.bits} bits: on {facts.samples} calibration samples the trees {kept} {100 * facts.agreement:.1f} %{where}; more "
        "grid_bits help, and where few values lie far from the others grid='quantiles', which tells clients about the calibration data, or "
        "feature_ranges"
    )
