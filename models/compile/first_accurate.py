"""The first of several programs that is as accurate as was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cloakwork.models.compile.accuracy import Check, Losses, Reference, centred, check_accuracy, losses
from cloakwork.models.criteria.choose_set import bootstrap_cost
from cloakwork.models.errors import AccuracyError, NoParameterSetError
from cloakwork.models.program import Program
from cloakwork.models.program.facts import CheckFacts, VerdictFacts

_DEARER = 2.5  # times the cost of one that serves is too much for more


def first_accurate(
    programs: Iterator[Program], reference: Reference | None, accuracy: float, allow_loss: bool = False
) -> tuple[Program, str | None]:
    """The first program whose check leaves no doubt; else, of those that do not cost much more than the first that reaches the accuracy, the most
    accurate; with its check among the facts. And what it falls short by, or None.

    Args:
        programs: the cheapest first; at least one, or an error of their own.
        reference: None: the first program, unchecked.
        allow_loss: the most accurate one, when none reaches it.

    Raises:
        AccuracyError: none does; names the layer that loses most.
    """
    if reference is None:
        return next(programs), None
    best: tuple[tuple[float, float], Program, Check] | None = None
    serves: float | None = None  # cost of the first that reaches the accuracy
    refused: NoParameterSetError | None = None
    try:
        for program in programs:
            if serves is not None and _cost(program) > _DEARER * serves:
                break
            program, check = _checked(program, reference, accuracy)
            if check.leaves_no_doubt(accuracy):
                return _with_facts(program, check, losses(program, reference), accuracy), None
            if check.reaches(accuracy) and serves is None:
                serves = _cost(program)
            if best is None or check.worth > best[0]:
                best = (check.worth, program, check)
    except NoParameterSetError as error:
        if best is None:
            raise
        refused = error
    assert best is not None
    _, program, check = best
    lost = losses(program, reference)
    program = _with_facts(program, check, lost, accuracy)
    if check.reaches(accuracy):
        return program, None
    message = _message(program, check, lost, accuracy)
    if not allow_loss:
        raise AccuracyError(message) from refused
    return program, message


def _checked(program: Program, reference: Reference, accuracy: float) -> tuple[Program, Check]:
    """The program, centred, and its check; as it is and checked on a few samples alone when these say enough."""
    few = reference.few()
    if few is not None:
        check = check_accuracy(program, few)
        if check.is_far_from(accuracy):
            return program, check
    program = centred(program, reference)
    return program, check_accuracy(program, reference)


def _with_facts(program: Program, check: Check, lost: Losses, accuracy: float) -> Program:
    """With what the check found; of several outputs by name too."""
    several = list(check.outputs) != [""]
    found = CheckFacts(
        check.verdict.measure,
        check.verdict.value,
        check.verdict.samples,
        lost.layers,
        lost.outside,
        lost.outside_at_most,
        accuracy,
        {name: VerdictFacts(each.measure, each.value) for name, each in check.outputs.items()} if several else {},
    )
    return replace(program, facts=replace(program.facts, check=found))


def _cost(program: Program) -> float:
    return program.bootstraps * bootstrap_cost(program.parameters)


def _message(program: Program, check: Check, lost: Losses, accuracy: float) -> str:
    worst = lost.worst_layer
    which = f"in its output '{check.worst}' " if check.worst else ""
    where = (
        f"most is lost in layer '{worst}', whose values are off by {100 * lost.layers[worst]:.1f} % of their spread under the best set, "
        if worst
        else "under the best set, "
    )
    return (
        f"the encrypted model {which}{check.verdict.text}, {100 * accuracy:g} % were asked for (accuracy=); {where}'{program.parameters.name}': "
        "train the model for encryption, give more typical calibration samples, ask for less, or go on with allow_loss=True"
    )
