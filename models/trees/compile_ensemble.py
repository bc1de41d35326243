"""The way in: a TreeEnsemble becomes a CompiledModel, exact up to the stated probability of failure."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import some_rows
from cloakwork.models.client_steps import InputStep, Positions, run_input_steps, run_output_steps
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.verdicts import Verdict
from cloakwork.models.errors import AccuracyError, CompileError, NoParameterSetError
from cloakwork.models.options import Options
from cloakwork.models.original.agreement import STAGES, Answers, first_sure
from cloakwork.models.program import Program
from cloakwork.models.program.artefact_writer import SALT_BYTES
from cloakwork.models.program.facts import GridFacts, OriginalFacts
from cloakwork.models.trees.compile_labels import compile_labels
from cloakwork.models.trees.compile_scores import compile_scores
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.on_grid import on_grid
from cloakwork.models.trees.options import TreeOptions


def compile_ensemble(
    ensemble: TreeEnsemble,
    samples: Any = None,
    options: Options | None = None,
    *,
    preprocessing: Sequence[InputStep] | None = None,
    **named: Any,
) -> CompiledModel:
    """Compile trees; encrypted predictions equal those of the model with rounded leaf values, up to the stated probability.

    Args:
        samples: typical samples [samples, columns], such as the training data, for the range and the resolution of features.
        options: of `cloakwork.compile`, or by name. With thresholds="grid" the client encrypts a bit for each point of a public grid, and the program
            picks those of its thresholds, which are moved to grid points; features of more than 255 points take a look-up for each threshold that
            leaves' look-ups have no room for. With "server" the client encrypts its position on the grid in a few digits; one bootstrap for each
            digit, and one more for each threshold of features of several digits, give the comparisons. With "client" it encrypts a bit for each
            exact threshold. `grid="auto"` takes a point between any two values of features with few steps (whole numbers, decimals) or
            categories, else "uniform" over the range, rounded outwards. `grid_bits`: 6, or 8 where 6 change more than 1 % of the labels (or
            values) of samples and of points between them, or 10 to 16 where 8 do not reach the accuracy. `leaf_bits`: 8 (6 where trees are
            averaged), fewer where the noise leaves no room, or where an answer would have more than 1 MB: 5 at least, or 3 for an average of 1,000
            trees, whose errors average out. `tell="labels"`: a single tree gives it at no cost. Several trees of two classes take one look-up more
            where leaf values are few whole steps, such as votes; else the scores of all classes are compared in pairs, by default under large16.
        preprocessing: what the client does before the comparisons, its first step checking the columns; None: that step only.

    Warns:
        AccuracyWarning: less than 98 % of the samples are decided as before; or a label is decided by coarse leaf values.

    Raises:
        AccuracyError: no grid reaches the accuracy; says which features move most. Or rounded leaf values lose more.
        CompileError: a grid without samples or ranges of all features, or with too many points for a sample.
        NoParameterSetError: no set has room for the trees.
    """
    options = TreeOptions.from_options(Options.of(options, named), samples, preprocessing)
    compiled = compile_labels if options.tell == "labels" else compile_scores
    if options.thresholds == "client":
        return CompiledModel.checked(_fine_enough(ensemble, ensemble, compiled, options, None)[0])
    gridded = on_grid(ensemble, options)
    options = replace(options, grids=gridded.grids, step=gridded.step)
    program, verdict = _fine_enough(ensemble, gridded.ensemble, compiled, options, gridded.verdict)
    original, reaches = None, verdict is None or verdict.reaches(options.accuracy)
    if verdict is not None and verdict.measure != "agreement":
        verdict = replace(verdict, samples=gridded.facts.samples or verdict.samples)  # not the points between them
        if not reaches:
            rounded = f"trees with leaf values of few bits, on a public grid of {gridded.facts.bits} bits"
            raise AccuracyError(f"{rounded}, {verdict.text}; {100 * options.accuracy:g} % were asked for (accuracy=)")
        original = OriginalFacts("values", verdict.value, verdict.at_least, verdict.samples)
    facts = replace(program.facts, grid=_with_sent(gridded.facts, program), original=original)
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
    if options.samples is None:
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
    """Compares labels of calibration samples with those without the grid; errors of values by rounding come beside those of the grid."""
    compiled, steps = CompiledModel(program), options.first_steps(original)
    is_labels = of_grid is None or of_grid.measure == "agreement"
    reference = original if is_labels else ensemble

    def on_some(most: int) -> Answers:
        rows = some_rows(options.samples, most)
        clear = np.asarray(run_output_steps(reference.output_steps, reference.scores(run_input_steps(steps, rows))))
        return clear, np.asarray(compiled.predict(rows))

    verdict = first_sure(map(on_some, STAGES), options.accuracy)[0]
    return verdict if of_grid is None else verdict.beside(of_grid)


_MORE_LEAF_BITS: Final = (2, 4)


def _with_sent(facts: GridFacts, program: Program) -> GridFacts:
    """What a sample sends: bits, or numbers of as many bits as a digit has."""
    positions = [step for step in program.input_steps if isinstance(step, Positions)]
    return replace(facts, sent=program.graph.input.size, digit_bits=positions[0].bits if positions else None)
