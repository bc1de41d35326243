"""The first of several programs that is as accurate as was asked for."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cloakwork.models.accuracy import Check, Reference, centred, check_accuracy
from cloakwork.models.errors import AccuracyError, AccuracyWarning, NoParameterSetError
from cloakwork.models.passes.choose_parameters import bootstrap_cost
from cloakwork.models.program import Program

DEFAULT_ACCURACY: Final = 0.97
_AIM = 1 / 3  # of the loss that is allowed: what programs are tried for that do not cost much more
_DEARER = 2.5  # times the cost of one that serves is too much for that


def first_accurate(
    programs: Iterator[Program], reference: Reference | None, accuracy: float, allow_loss: bool = False
) -> Program:
    """The first program that loses no more than a third of what may be lost, or else the most accurate; with its `check` among the facts.

    Args:
        programs: the cheapest first; at least one, or an error of their own.
        reference: None: the first program, unchecked.
        allow_loss: the most accurate one and an AccuracyWarning, when none reaches it.

    Raises:
        AccuracyError: none does; names the layer that loses most.
    """
    if reference is None:
        return next(programs)
    aim = 1 - _AIM * (1 - accuracy)
    best: tuple[float, Program, Check] | None = None
    serves: float | None = None  # cost of the first that is accurate enough
    refused: NoParameterSetError | None = None
    try:
        for program in programs:
            if serves is not None and _cost(program) > _DEARER * serves:
                break
            program = centred(program, reference)
            check = check_accuracy(program, reference, aim)
            program = replace(program, facts={**program.facts, "check": {**check.facts(), "asked": accuracy}})
            if check.at_least >= aim:
                return program
            if check.value >= accuracy and serves is None:
                serves = _cost(program)
            if best is None or check.value > best[0]:
                best = (check.value, program, check)
    except NoParameterSetError as error:
        if best is None:
            raise
        refused = error
    assert best is not None
    if best[0] >= accuracy:
        return best[1]
    message = _message(best[1], best[2], accuracy)
    if not allow_loss:
        raise AccuracyError(message) from refused
    warnings.warn(message, AccuracyWarning, stacklevel=4)
    return best[1]


def _cost(program: Program) -> float:
    return program.bootstraps * bootstrap_cost(program.parameters)


def _message(program: Program, check: Check, accuracy: float) -> str:
    worst = check.worst_layer
    which = f"in its output '{check.worst}' " if check.worst else ""
    return (
        f"the encrypted model {which}{check.verdict.text}, {100 * accuracy:g} % were asked for (accuracy=); most is lost in layer '{worst}', "
        f"whose values are off by {100 * check.layers[worst]:.1f} % of their spread under the best set, '{program.parameters.name}': train the "
        "model for encryption, give more typical calibration samples, ask for less, or go on with allow_loss=True"
    )
