"""A look-up's function of one number as a short program: steps, each a function by name with parameters.

Most steps act on the result before them, so that a list of steps is a chain. A step may read results further back, counted from itself
(1 is the one just before; before the first step lies the look-up's argument), and some operators take several:

    x sigmoid(x)        Sigmoid of 1; Mul of 1 and 2
    x / (1 + |x|)       Abs of 1; Affine 1, 1 of 1; Div of 3 and 1

Counted backwards, one program after another is the one function of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.graph.functions import FUNCTIONS, NEVER_NEGATIVE, OPERANDS, direction

_BEFORE: Final = (1,)
MOST_KEPT: Final = 512  # results that a program keeps for later steps at once
_NUMBERS_AT_ONCE: Final = 1 << 22  # of all results that a program keeps, where it is no chain


@dataclass(frozen=True, eq=False)
class Step:
    """`operator` of models/graph/functions.py; each parameter has one entry per distinct function of the look-up."""

    operator: str
    parameters: tuple[NDArray[np.float64], ...] = ()
    reads: tuple[int, ...] = _BEFORE  # how many results back each operand lies

    def __call__(self, operands: Sequence[NDArray[np.float64]], function: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns operands [.., E] each with function numbers [E]."""
        parameters = (_of_functions(parameter, function) for parameter in self.parameters)
        y: NDArray[np.float64] = FUNCTIONS[self.operator](*operands, *parameters)
        return y

    def select(self, function: NDArray[np.int64]) -> Step:
        """Returns the step whose function i is function[i] of this one."""
        return Step(self.operator, tuple(parameter[function] for parameter in self.parameters), self.reads)


def _of_functions(parameter: NDArray[np.float64], function: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns [E, ..] of function numbers [E]; of a table that all have in common one view."""
    if parameter.ndim > 1 and len(function) and bool((function == function[0]).all()):
        return np.broadcast_to(parameter[function[0]], (len(function), *parameter.shape[1:]))
    return parameter[function]


def apply_steps(steps: Sequence[Step], x: NDArray[np.float64], function: NDArray[np.int64]) -> NDArray[np.float64]:
    """Applies steps to x [.., E] with function numbers [E]. Columns go in parts where a program keeps many results."""
    with np.errstate(all="ignore"):  # a table is evaluated on values that the model may never see
        if is_chain(steps):
            return _applied(steps, x, function)
        columns = x.shape[-1]
        size = max(1, _NUMBERS_AT_ONCE * columns // max(x.size * _most_kept(steps), 1))
        if size >= columns:
            return _applied(steps, x, function)
        parts = [
            _applied(steps, x[..., start : start + size], function[start : start + size])
            for start in range(0, columns, size)
        ]
        return np.concatenate(parts, axis=-1)


def _applied(steps: Sequence[Step], x: NDArray[np.float64], function: NDArray[np.int64]) -> NDArray[np.float64]:
    last = _last_readers(steps)
    kept = {0: x}
    for i, step in enumerate(steps):
        kept[i + 1] = step([kept[i + 1 - back] for back in step.reads], function)
        for back in set(step.reads):
            if last[i + 1 - back] == i:
                del kept[i + 1 - back]
    return kept[len(steps)]


def is_chain(steps: Sequence[Step]) -> bool:
    return all(step.reads == _BEFORE for step in steps)


def directions(steps: Sequence[Step]) -> NDArray[np.float64]:
    """Returns directions for each function (or one entry for all): 1 where it never falls, -1 where it never rises, 0 where neither is certain."""
    result = np.ones(1)
    for step in steps if is_chain(steps) else ():
        result = result * direction(step.operator, *step.parameters)
    return result if is_chain(steps) else np.zeros(1)


def never_negative(steps: Sequence[Step]) -> bool:
    """Whether the last step is at least 0 whatever it reads, for all functions."""
    if not steps:
        return False
    last = steps[-1]
    if last.operator in ("Clip", "Max") and len(last.reads) == 1:
        return all(bool((bound >= 0).all()) for bound in last.parameters)
    return last.operator in NEVER_NEGATIVE


def _last_readers(steps: Sequence[Step]) -> list[int]:
    """Returns the last step that reads each result; the number of steps for the last result, which is the answer."""
    last = [-1] * len(steps) + [len(steps)]
    for i, step in enumerate(steps):
        for back in step.reads:
            last[i + 1 - back] = i
    return last


def broken_rule(steps: Sequence[Step]) -> str | None:
    """Says what is wrong with a program whose operators exist: a file may hold any."""
    for i, step in enumerate(steps):
        least, most, parameters = OPERANDS.get(step.operator, (1, 1, None))
        operands = len(step.reads)
        if not least <= operands <= most or (parameters is not None and len(step.parameters) != parameters(operands)):
            return f"takes as many operands as its steps do, not {operands} with {len(step.parameters)} parameters"
        if not all(1 <= back <= i + 1 for back in step.reads):
            return "reads results of steps before"
    if is_chain(steps):
        return None
    kept = _most_kept(steps)
    return f"keeps at most {MOST_KEPT} results, not {kept}" if kept > MOST_KEPT else None


def _most_kept(steps: Sequence[Step]) -> int:
    """Returns results that are there at once, the one that is being made not counted."""
    last, ends, kept, most = _last_readers(steps), [0] * (len(steps) + 1), 0, 0
    for end in last:
        ends[end] += end >= 0
    for i in range(len(steps)):
        kept += last[i] >= i
        most = max(most, kept)
        kept -= ends[i]
    return most


_INFIX: Final = {"Mul": "*", "Div": "/"}
_LONGEST: Final = 160


def formula(steps: Sequence[Step]) -> str:
    """Returns the program for people: "x * Sigmoid(x)"; operators alone, as functions may differ in their parameters."""
    terms = ["x"]
    for i, step in enumerate(steps):
        operands = [terms[i + 1 - back] for back in step.reads]
        if step.operator in _INFIX:
            term = f"({operands[0]} {_INFIX[step.operator]} {operands[1]})"
        elif step.operator == "Sum":
            weights = step.parameters[: len(operands)]
            terms_of = [t if bool((w == 1).all()) else f"w {t}" for t, w in zip(operands, weights, strict=True)]
            term = "(" + " + ".join(terms_of) + ")"
        else:
            term = f"{step.operator}({', '.join(operands)})"
        terms.append(term if len(term) <= _LONGEST else f"{step.operator}(..)")
    return terms[-1]
