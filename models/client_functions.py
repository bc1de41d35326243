"""Functions of single numbers that the client applies to the decrypted output: short programs of steps, as fields of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from cloakwork.models import fields as typed
from cloakwork.models.functions import FUNCTIONS
from cloakwork.models.ir import ClientStep, Indices, Reals
from cloakwork.models.steps import Step, apply_steps, broken_rule, formula

FUNCTION: Final = "Function"  # the client step's operator
# Those whose parameters may say much of a model, or that belong to values that are integers.
_NEVER: Final = frozenset({"BitwiseAnd", "BitwiseOr", "BitwiseXor", "Snap", "Table"})
MOST_FUNCTIONS: Final = 8
MOST_STEPS: Final = 24  # of a function
MOST_NUMBERS: Final = 24  # parameters of all of them: the client gets no weights of a model


def too_much(functions: Sequence[Sequence[Step]]) -> str | None:
    """Why functions [steps] with one entry in each parameter are not the client's; None when they are."""
    numbers = [parameter for steps in functions for step in steps for parameter in step.parameters]
    if not 1 <= len(functions) <= MOST_FUNCTIONS or len(numbers) > MOST_NUMBERS:
        return f"at most {MOST_FUNCTIONS} functions with {MOST_NUMBERS} parameters"
    for steps in functions:
        if len(steps) > MOST_STEPS:
            return f"functions of at most {MOST_STEPS} steps"
        if any(step.operator in _NEVER or step.operator not in FUNCTIONS for step in steps):
            return "functions that a client computes"
        if broken_rule(steps) is not None:
            return "steps that read steps before"
    return None


def apply_functions(step: ClientStep, values: Reals) -> Reals:
    """Values [samples, *shape], each by its function."""
    flat = values.reshape(len(values), -1).copy()
    for number, steps in enumerate(step.functions):
        chosen = np.flatnonzero(step.which.reshape(-1) == number)
        flat[:, chosen] = apply_steps(steps, flat[:, chosen], np.zeros(len(chosen), dtype=np.int64))
    return flat.reshape(values.shape)


def step_title(step: ClientStep) -> str:
    """For reports: the operator, or what the functions are."""
    return " or ".join(formula(steps) for steps in step.functions) if step.operator == FUNCTION else step.operator


def functions_to_fields(step: ClientStep) -> dict[str, Any]:
    """Of the client step FUNCTION; infinite bounds as the largest number there is."""
    return {
        "functions": [
            [[s.operator, [float(np.nan_to_num(p[0])) for p in s.parameters], list(s.reads)] for s in steps]
            for steps in step.functions
        ],
        "which": step.which.tolist(),
    }


def functions_from_fields(fields: Any) -> ClientStep:
    """ValueError for anything that `functions_to_fields` does not write."""
    if not isinstance(fields, dict) or set(fields) != {"functions", "which"}:
        raise ValueError("expected functions, and which of them each output has")
    functions = tuple(
        tuple(_step(*typed.entries(step, 3)) for step in typed.entries(steps, MOST_STEPS))
        for steps in typed.entries(fields["functions"], MOST_FUNCTIONS)
    )
    reason = too_much(functions)
    if reason is not None:
        raise ValueError(f"expected {reason}")
    which = typed.indices(fields["which"])
    if not which.size or int(which.min()) < 0 or int(which.max()) >= len(functions):
        raise ValueError("expected a function for each output")
    for steps in functions:
        apply_steps(steps, np.zeros(1), np.zeros(1, dtype=np.int64))  # as many parameters as the functions take
    return function_step(functions, which)


def function_step(functions: Sequence[Sequence[Step]], which: Indices) -> ClientStep:
    return ClientStep(FUNCTION, -1, functions=tuple(tuple(steps) for steps in functions), which=which)


def _step(operator: Any, parameters: Any, reads: Any) -> Step:
    numbers = tuple(np.array([typed.real(p)]) for p in typed.entries(parameters, MOST_NUMBERS))
    back = tuple(typed.integer(b, 1, MOST_STEPS) for b in typed.entries(reads, MOST_STEPS + 1))
    return Step(typed.text(operator), numbers, back)
