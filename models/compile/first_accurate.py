"""The first of several programs that is as accurate as was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.calibration import mixed_inputs
from cloakwork.models.compile.accuracy import Check, Losses, Reference, centred, check_accuracy, losses, simulated
from cloakwork.models.criteria.choose_set import bootstrap_cost
from cloakwork.models.criteria.verdicts import QUANTITIES, Verdict
from cloakwork.models.errors import AccuracyError, NoParameterSetError
from cloakwork.models.program import Program
from cloakwork.models.program.facts import CheckFacts, VerdictFacts
from cloakwork.models.runtime.interpreter import interpret

_DEARER = 2.5  # times the cost of one that serves is too much for more


@dataclass(frozen=True)
class Found:
    """A program with its check among the facts. In words: `loss`, what it falls short of; `doubt`, what the samples do not say; or None."""

    program: Program
    loss: str | None = None
    doubt: str | None = None


def first_accurate(
    programs: Iterator[Program], reference: Reference | None, accuracy: float, allow_loss: bool = False
) -> Found:
    """Returns the first program whose check leaves no doubt; else, of those that do not cost much more than the first that reaches the accuracy,
    the most accurate.

    Args:
        programs: the cheapest first; at least one, or an error of their own.
        reference: None: the first program, unchecked.
        allow_loss: the most accurate one, when none reaches it.

    Raises:
        AccuracyError: none does; names the layer that loses most.
    """
    if reference is None:
        return Found(next(programs))
    best: tuple[tuple[float, ...], Program, Check] | None = None
    serves: float | None = None  # cost of the first that reaches the accuracy
    refused: NoParameterSetError | None = None
    try:
        for program in programs:
            if serves is not None and _cost(program) > _DEARER * serves:
                break
            program, check = _checked(program, reference, accuracy)
            if check.leaves_no_doubt(accuracy):
                best = (check.worth, program, check)
                break
            if serves is None and check.serves(accuracy):
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
    if check.holds(accuracy):
        return Found(program, doubt=_unshown(check))
    if check.reaches(accuracy):
        return Found(program, doubt=_too_few(check, accuracy))
    if check.reaches_otherwise(accuracy):
        return Found(program, doubt=_otherwise(check, accuracy))
    message = _message(program, check, lost, accuracy)
    if not allow_loss:
        raise AccuracyError(message) from refused
    return Found(program, loss=message)


def _checked(program: Program, reference: Reference, accuracy: float) -> tuple[Program, Check]:
    """Returns the program, centred, and its check: on a few samples if these say enough; on more than usual if these could show the accuracy."""
    few = reference.few()
    if few is not None:
        check = check_accuracy(program, few)
        if check.is_far_from(accuracy):
            return program, check
    program = centred(program, reference)
    check = check_accuracy(program, reference)
    if reference.wider is not None and check.looks_accurate(accuracy):
        check = check_accuracy(program, reference.wider())
    return program, check


def _with_facts(program: Program, check: Check, lost: Losses, accuracy: float) -> Program:
    """With what the check found; of several outputs by name too."""
    several = list(check.outputs) != [""]
    verdict = check.verdict
    facts = CheckFacts(
        verdict.measure,
        verdict.value,
        verdict.samples,
        lost.layers,
        lost.outside,
        lost.outside_at_most,
        accuracy,
        {name: _facts(each) for name, each in check.outputs.items()} if several else {},
        verdict.at_least,
        verdict.unseen,
    )
    return replace(program, facts=replace(program.facts, check=facts))


def _facts(verdict: Verdict) -> VerdictFacts:
    return VerdictFacts(verdict.measure, verdict.value, verdict.at_least)


def _cost(program: Program) -> float:
    return program.bootstraps * bootstrap_cost(program.parameters)


def _message(program: Program, check: Check, lost: Losses, accuracy: float) -> str:
    worst = lost.worst_layer
    where = (
        f"most is lost in layer '{worst}', whose values are off by {100 * lost.layers[worst]:.1f} % of their spread under the best set, "
        if worst
        else "under the best set, "
    )
    more = check.verdict.value >= accuracy and check.verdict.measure == "agreement"
    return (
        f"{_would(check)}, {_asked(check, accuracy)}; {where}'{program.parameters.name}': "
        f"train the model for encryption, give more {'' if more else 'typical '}samples, ask for less, or go on with allow_loss=True"
    )


def _too_few(check: Check, accuracy: float) -> str:
    """Says that samples cannot show the accuracy."""
    target = f"the {100 * accuracy:g} % that were asked for (accuracy=)"
    return f"{_would(check)}: too few samples to show {target}; give {check.verdict.samples_for(accuracy)} or more, or ask for less"


def _unshown(check: Check) -> str | None:
    """Of values that no sample shows."""
    name, verdict = next(((name, each) for name, each in check.outputs.items() if each.unshown), ("", None))
    if verdict is None:
        return None
    of_output = f"the output '{name}'" if name else "the output"
    numbers = "one number" if verdict.unshown == 1 else f"{verdict.unshown} numbers"
    return (
        f"for all samples {of_output} has the same values in {numbers}, which may have others: nothing shows how accurate these are; "
        "add samples in which they differ"
    )


def _otherwise(check: Check, accuracy: float) -> str:
    """Of an output whose purpose the model does not say, which only one of two measures is kept of."""
    verdict = check.verdict
    assert verdict.otherwise is not None
    kept, lost = ("its decisions", "its values") if verdict.measure == "closeness" else ("its values", "its decisions")
    task = "classification" if verdict.measure == "closeness" else "regression"
    return (
        f"{_would(check)}, {_asked(check, accuracy)}: it keeps {kept} but not {lost}, and the model does not say which matter; "
        f"say task='{task}' if {kept} do, or ask for more of {lost} with the other task"
    )


def _would(check: Check) -> str:
    which = f"in its output '{check.worst}' " if check.worst else ""
    example = f", {check.example}" if check.example else ""
    return f"the encrypted model {which}{check.verdict.text}{example}"


def _asked(check: Check, accuracy: float) -> str:
    if check.verdict.measure == "agreement":
        return f"at least {100 * accuracy:g} % were asked for (accuracy=)"
    return f"at most {100 * (1 - accuracy):.3g} % were asked for (accuracy={accuracy:g})"


# A check that answers beyond those of all samples stay beyond them: an anomaly whose score comes back among the ordinary ones is no more seen.
#
# What a model computes between reaches far for inputs unlike the samples, even if each number of them is within its range. Rows beyond their tables
# read about the value of an end for some way, then come back; and what several of them make together is anything.

_CLEARLY: Final = 0.1  # of how far the samples' answers lie apart: so far beyond them, and so far back among them
_FEW: Final = 3  # answers that say little
_SHARE: Final = 0.05  # of them


@dataclass(frozen=True)
class Beyond:
    """Counts of answers beyond those of all samples, and of those that the program gives among them."""

    count: int
    back: int

    @property
    def comes_back(self) -> bool:
        return self.back >= _FEW and self.back > _SHARE * self.count

    @property
    def text(self) -> str:
        return (
            f"{self.back} of {self.count} answers that lie beyond those of all samples come back among them (inputs that mix the "
            "numbers of several samples): what is unlike the samples may read as ordinary; give samples that reach as far, or a margin= "
            "for ranges, such as 0.5"
        )


def beyond_samples(program: Program, reference: Reference) -> Beyond:
    """Judges outputs of few numbers that are judged by their values."""
    heads = [
        head
        for head in reference.heads
        if head.task == "regression" and head.place.stop - head.place.start <= QUANTITIES
    ]
    if not heads:
        return Beyond(0, 0)
    inputs = mixed_inputs(reference.fitted[0])
    clear = interpret(reference.graph, inputs).reshape(len(inputs), -1)
    answers = simulated(program, inputs, noisy=False)
    ordinary = np.concatenate([reference.outputs, reference.fitted[1]])
    parts = [
        _beyond(*(head.answers_of(values[:, head.place]) for values in (ordinary, clear, answers))) for head in heads
    ]
    return Beyond(sum(part.count for part in parts), sum(part.back for part in parts))


def _beyond(ordinary: Reals, clear: Reals, computed: Reals) -> Beyond:
    """Args: ordinary: answers [samples, numbers]; clear, computed: the model's and the program's answers to the same inputs."""
    low, high = ordinary.min(axis=0), ordinary.max(axis=0)
    clearly = _CLEARLY * (high - low)
    above, below = (clear > high + clearly) & (high > low), (clear < low - clearly) & (high > low)
    back = (above & (computed < high - clearly)) | (below & (computed > low + clearly))
    return Beyond(int((above | below).sum()), int(back.sum()))
