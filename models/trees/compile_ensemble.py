"""The way in: a TreeEnsemble becomes a CompiledModel, exact up to the stated probability of failure."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import some_rows
from cloakwork.models.client_steps import InputStep, Positions, run_input_steps, run_output_steps
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.feature_ranges import FeatureRanges
from cloakwork.models.criteria.tree_comparisons import Comparisons, Grids
from cloakwork.models.criteria.verdicts import Verdict
from cloakwork.models.errors import AccuracyError, CompileError, NoParameterSetError
from cloakwork.models.original.agreement import STAGES, Answers, first_sure
from cloakwork.models.program import Program
from cloakwork.models.program.contents import SALT_BYTES
from cloakwork.models.program.facts import GridFacts, OriginalFacts
from cloakwork.models.trees.compile_labels import compile_labels
from cloakwork.models.trees.compile_scores import compile_scores
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.on_grid import on_grid
from cloakwork.models.trees.options import DEFAULT_ACCURACY, TreeOptions


def compile_ensemble(
    ensemble: TreeEnsemble,
    *,
    comparisons: Comparisons = "grid",
    calibration: Any = None,
    grid: Grids = "auto",
    grid_bits: int | None = None,
    feature_ranges: FeatureRanges | None = None,
    accuracy: float = DEFAULT_ACCURACY,
    leaf_bits: int | None = None,
    p_fail_log2: float = -128.0,
    candidates: Sequence[str | ParameterSet] | None = None,
    preprocessing: Sequence[InputStep] | None = None,
    encrypted_argmax: bool = False,
    structured_keys: bool = False,
) -> CompiledModel:
    """Compiles trees; encrypted predictions equal those of the model with rounded leaf values, up to the stated probability.

    Args:
        comparisons: "grid": thresholds stay on the server. The client encrypts a bit for every point of a public grid, and the program picks
            those of its thresholds, which are moved to grid points. "server": thresholds on the same grid stay on the server as well. The client
            encrypts its position on the grid in a few digits; one bootstrap for each digit, and one more for each threshold of features of
            several digits, give the comparisons. "client": exact thresholds, all of which every client is told; a bit for each, no bootstrap.
        calibration: of a grid: typical samples [samples, columns], such as the training data, for the range and the resolution of features.
        grid: "auto": a point between any two values of features with few steps (whole numbers, decimals) or categories, else "uniform" over
            the range, rounded outwards. "integers", "categories", "uniform", or "quantiles" of the samples, which tell clients about them. Or
            such kinds, or the points themselves, of some features by name or number.
        grid_bits: at most 2^grid_bits - 1 points for a feature, 1 to 16; None: 6, or 8 where 6 change more than 1 % of the labels (or values) of
            calibration samples and of points between them, or 10 to 16 where 8 do not reach the accuracy. With comparisons="grid" features of
            more than 255 points take a look-up for each threshold that leaves' look-ups have no room for.
        feature_ranges: (lowest, highest) of features by name or number, in place of what the samples show.
        accuracy: least share of calibration samples, and of points between them, with the label that they have without the grid, at the lower end
            of its confidence interval if they are enough to show it; of values, see `verdict_of` of models/original/agreement.py. 0: any, with
            a warning.
        leaf_bits: of the leaf values' integers; None: 8 (6 where trees are averaged), fewer where the noise leaves no room, and fewer
            where an answer would have more than 1 MB: 5 at least, or 3 for an average of 1,000 trees, whose errors average out.
        p_fail_log2: log2 of the largest probability that a look-up, or the decoding of an output, is wrong.
        candidates: parameter sets to choose from; None: lut3, lut4, and lut5 to lut8 for deep trees. One key serves all models of one set.
        preprocessing: what the client does before the comparisons, its first step checking the columns; None: that step alone.
        encrypted_argmax: of classifiers: the client decrypts the label and no score. A single tree gives it at no cost. Several trees of two
            classes take one look-up more where leaf values are few whole steps, such as votes; else the scores of all classes are compared in
            pairs, with candidates None under large16.
        structured_keys: sets whose small key is block-binary may be taken; without candidates lut3_block to lut8_block.

    Warns:
        AccuracyWarning: less than 98 % of the calibration samples are decided as before; or a label is decided by coarse leaf values.

    Raises:
        AccuracyError: on no grid as many as were asked for are; says which features move most. Or rounded leaf values lose more.
        CompileError: a grid without calibration samples or ranges of all features, or with too many points for a sample.
        NoParameterSetError: no candidate has room for the trees.
    """
    options = TreeOptions(
        comparisons, leaf_bits, p_fail_log2, candidates, preprocessing, structured_keys, calibration, grid, grid_bits, feature_ranges,
        accuracy
    )  # fmt: skip
    options.check()
    compiled = compile_labels if encrypted_argmax else compile_scores
    if comparisons == "client":
        return CompiledModel.checked(_fine_enough(ensemble, ensemble, compiled, options, None)[0])
    found = on_grid(ensemble, options)
    options = replace(options, grids=found.grids, step=found.step)
    program, verdict = _fine_enough(ensemble, found.ensemble, compiled, options, found.verdict)
    original, reaches = None, verdict is None or verdict.reaches(accuracy)
    if verdict is not None and verdict.measure != "agreement":
        verdict = replace(verdict, samples=found.facts.samples or verdict.samples)  # not the points between them
        if not reaches:
            rounded = f"trees with leaf values of few bits, on a public grid of {found.facts.bits} bits"
            raise AccuracyError(f"{rounded}, {verdict.text}; {100 * accuracy:g} % were asked for (accuracy=)")
        original = OriginalFacts("values", verdict.value, verdict.at_least, verdict.samples)
    facts = replace(program.facts, grid=_with_sent(found.facts, program), original=original)
    return CompiledModel.checked(replace(program, facts=facts, salt=secrets.token_bytes(SALT_BYTES)))


def _fine_enough(
    original: TreeEnsemble,
    ensemble: TreeEnsemble,
    compiled: Callable[[TreeEnsemble, TreeOptions], Program],
    options: TreeOptions,
    of_grid: Verdict | None,
) -> tuple[Program, Verdict | None]:
    """With more bits of leaf values than usual where these, beside what the grid moves, change more answers than the accuracy allows.

    Args:
        original: without the grid.
    """
    program = compiled(ensemble, options)
    if options.calibration is None:
        return program, None
    usual = program.facts.trees
    verdict = _verdict(program, original, ensemble, options, of_grid)
    for more in _MORE_LEAF_BITS if options.leaf_bits is None else ():
        if verdict.reaches(options.accuracy) or usual is None:
            break
        try:
            finer = compiled(ensemble, replace(options, leaf_bits=usual.leaf_bits + more))
        except (CompileError, NoParameterSetError):  # no room for them
            break
        better = _verdict(finer, original, ensemble, options, of_grid)
        program, verdict = (finer, better) if better.worth > verdict.worth else (program, verdict)
    return program, verdict


def _verdict(
    program: Program, original: TreeEnsemble, ensemble: TreeEnsemble, options: TreeOptions, of_grid: Verdict | None
) -> Verdict:
    """On calibration samples: labels against those without the grid. Errors of values by rounding, beside those that the grid makes."""
    compiled, steps = CompiledModel(program), options.first_steps(original)
    is_labels = of_grid is None or of_grid.measure == "agreement"
    wanted = original if is_labels else ensemble

    def on_some(most: int) -> Answers:
        rows = some_rows(options.calibration, most)
        clear = np.asarray(run_output_steps(wanted.output_steps, wanted.scores(run_input_steps(steps, rows))))
        return clear, np.asarray(compiled.predict(rows))

    verdict = first_sure(map(on_some, STAGES), options.accuracy)[0]
    return verdict if of_grid is None else verdict.beside(of_grid)


_MORE_LEAF_BITS: Final = (2, 4)


def _with_sent(facts: GridFacts, program: Program) -> GridFacts:
    """What a sample sends: bits, or numbers of as many bits as a digit has."""
    positions = [step for step in program.input_steps if isinstance(step, Positions)]
    return replace(facts, sent=program.graph.input.size, digit_bits=positions[0].bits if positions else None)
