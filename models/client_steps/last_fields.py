"""Last steps as JSON: [operator, axis, keepdims, count, largest] in client specifications, the same by name in programs; functions by their steps.

What an operator does not have is written as it would be for others, and read without being kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from cloakwork.models import fields as typed
from cloakwork.models.graph.last_steps import (
    LAST_STEPS,
    MOST_FUNCTIONS,
    MOST_NUMBERS,
    MOST_STEPS,
    Functions,
    LastStep,
    too_much,
)
from cloakwork.models.graph.steps import Step, apply_steps

MOST_LAST_STEPS: Final = 100  # of an output
_ALONG_AN_AXIS: Final[dict[str, Any]] = {kind.__name__: kind for kind in LAST_STEPS if kind is not Functions}
_ABSENT: Final[Mapping[str, Any]] = {"keepdims": True, "count": 0, "largest": True}


def last_step_to_fields(step: LastStep) -> Any:
    """Returns a list, of functions an object."""
    if isinstance(step, Functions):
        return _functions_to_fields(step)
    return [type(step).__name__, step.axis, *(getattr(step, name, value) for name, value in _ABSENT.items())]


def last_step_from_fields(fields: Any) -> LastStep:
    """Raises ValueError or TypeError for anything that `last_step_to_fields` does not write; earlier releases wrote shorter lists."""
    return _functions_from_fields(fields) if isinstance(fields, dict) else _along_axis(*typed.entries(fields))


def last_step_to_record(step: LastStep) -> dict[str, Any]:
    """Returns an object, in any case."""
    fields = last_step_to_fields(step)
    return fields if isinstance(fields, dict) else dict(zip(("operator", "axis", *_ABSENT), fields, strict=True))


def last_step_from_record(record: Any) -> LastStep:
    """Raises ValueError, KeyError or TypeError for anything that `last_step_to_record` does not write."""
    if "functions" in record:
        return _functions_from_fields(record)
    largest = record.get("largest", _ABSENT["largest"])
    return _along_axis(
        record["operator"], record["axis"], record["keepdims"], record.get("count", _ABSENT["count"]), largest
    )


def _along_axis(operator: Any, axis: Any, keepdims: Any, count: Any = 0, largest: Any = True) -> LastStep:
    if typed.text(operator) not in _ALONG_AN_AXIS:
        raise ValueError(f"expected one of the last steps {', '.join(_ALONG_AN_AXIS)}")
    kind = _ALONG_AN_AXIS[operator]
    given = {
        "axis": typed.integer(axis, -typed.LARGEST_INTEGER),
        "keepdims": typed.flag(keepdims),
        "count": typed.integer(count),
        "largest": typed.flag(largest),
    }
    step: LastStep = kind(**{each.name: given[each.name] for each in dataclasses.fields(kind)})
    return step


# --- functions -------------------------------------------------------------------------------------------------------------------


def _functions_to_fields(step: Functions) -> dict[str, Any]:
    """Returns infinite bounds as the largest number there is."""
    return {
        "functions": [
            [[s.operator, [float(np.nan_to_num(p[0])) for p in s.parameters], list(s.reads)] for s in steps]
            for steps in step.functions
        ],
        "which": step.which.tolist(),
    }


def _functions_from_fields(fields: Any) -> Functions:
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
    return Functions(functions, which)


def _step(operator: Any, parameters: Any, reads: Any) -> Step:
    numbers = tuple(np.array([typed.real(p)]) for p in typed.entries(parameters, MOST_NUMBERS))
    back = tuple(typed.integer(b, 1, MOST_STEPS) for b in typed.entries(reads, MOST_STEPS + 1))
    return Step(typed.text(operator), numbers, back)
