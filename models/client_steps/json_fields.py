"""Steps as JSON and back: `{"step": name of its class, field: value, ..}`, real numbers exactly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from cloakwork.models import fields as typed
from cloakwork.models.client_steps.checks import MOST_COLUMNS, MOST_STEPS, STAGES, demand
from cloakwork.models.client_steps.columns import Quantise, Rescale
from cloakwork.models.client_steps.kinds import ANSWER_STEPS, FIRST_STEPS, INPUT_STEPS, InputStep, OutputStep
from cloakwork.models.client_steps.last_fields import MOST_LAST_STEPS, last_step_from_fields, last_step_to_fields
from cloakwork.models.client_steps.tensors import MOST_TENSORS, Named, Tensors
from cloakwork.models.graph.last_steps import LAST_STEPS, LastStep

_DEEPEST: Final = 8
# Fields that files of earlier releases do not have.
_ADDED: Final[dict[str, dict[str, Any]]] = {
    "Categories": {"numbers": [], "others": []},
    "Quantise": {"calibrated": False},
}


def steps_to_fields(steps: Sequence[InputStep | OutputStep]) -> list[dict[str, Any]]:
    """Returns fields for JSON: {"step": name, field: value, ..}; real numbers exactly. Last steps have another form: `tail_to_fields`."""
    return [
        {"step": type(step).__name__, **{f.name: _plain(getattr(step, f.name)) for f in _fields(step)}}
        for step in steps
    ]


def input_steps_from_fields(fields: Any) -> tuple[InputStep, ...]:
    """Raises ValueError or KeyError for anything that `steps_to_fields` does not write."""
    steps = tuple(_step(INPUT_STEPS, entry) for entry in typed.entries(fields, MOST_STEPS))
    if steps and not isinstance(steps[0], (*FIRST_STEPS, Tensors, Quantise, Rescale)):
        raise ValueError("a table's columns are checked in the first step")
    _check_later(steps[1:])
    return steps


def _check_later(steps: tuple[Any, ...]) -> None:
    """No first step may come again."""
    if any(isinstance(step, (*FIRST_STEPS, Tensors)) for step in steps):
        raise ValueError("a table's columns are checked in the first step, and there alone")


def split_tail(steps: Sequence[OutputStep]) -> tuple[tuple[LastStep, ...], tuple[OutputStep, ...]]:
    """Returns the last steps of a network, which come first, and what follows them. ValueError where they are mixed."""
    last = tuple(step for step in steps if isinstance(step, LAST_STEPS))
    demand(last == tuple(steps[: len(last)]), "last steps of the network before all others")
    return last, tuple(steps[len(last) :])


def tail_to_fields(steps: Sequence[OutputStep], one: Callable[[LastStep], Any] = last_step_to_fields) -> dict[str, Any]:
    """Returns all that the client does after decryption. Args: one: how a last step is written."""
    last, others = split_tail(steps)
    return {"client_steps": list(map(one, last)), "output_steps": steps_to_fields(others)}


def tail_from_fields(
    fields: Mapping[str, Any], one: Callable[[Any], LastStep] = last_step_from_fields
) -> tuple[OutputStep, ...]:
    """Raises ValueError, KeyError or TypeError for anything that `tail_to_fields` does not write. Args: one: how a last step is read."""
    last = tuple(map(one, typed.entries(fields["client_steps"], MOST_LAST_STEPS)))
    return last + output_steps_from_fields(fields.get("output_steps", []))


def output_steps_from_fields(fields: Any) -> tuple[OutputStep, ...]:
    """Returns those that follow last steps. ValueError or KeyError for anything that `steps_to_fields` does not write."""
    steps = tuple(_step(ANSWER_STEPS, entry) for entry in typed.entries(fields, MOST_STEPS))
    stages = [STAGES.index(step.stage) for step in steps]
    demand(stages == sorted(stages), f"steps in the order {', '.join(STAGES)}")
    demand(not any(isinstance(step, Named) for step in steps[:-1]), "nothing after outputs have their names")
    return steps


def _fields(step: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(step)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, LAST_STEPS):
        return last_step_to_fields(value)
    if isinstance(value, tuple) and any(type(v).__name__ in INPUT_STEPS for v in value):
        return steps_to_fields(value)
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def _step(kinds: dict[str, type], entry: Any, depth: int = 0) -> Any:
    if not isinstance(entry, dict):
        raise ValueError("expected a step with its fields")
    kind = kinds[typed.text(entry["step"])]
    known = {f.name: str(f.type) for f in dataclasses.fields(kind)}
    given = {**_ADDED.get(kind.__name__, {}), **entry}
    if set(given) - {"step"} != set(known):
        raise ValueError(f"step {kind.__name__}: other fields than {sorted(known)}")
    return kind(**{name: _value(given[name], kind_of, name, depth) for name, kind_of in known.items()})


def _value(value: Any, kind: str, name: str, depth: int) -> Any:
    """Returns a field of a dataclass from JSON by its annotation. Args: depth: of the step that it belongs to in steps that hold steps."""
    if kind == "Steps":
        demand(depth < _DEEPEST, f"steps nested at most {_DEEPEST} deep")
        inner = tuple(_step(INPUT_STEPS, entry, depth + 1) for entry in typed.entries(value, MOST_STEPS))
        _check_later(inner)
        return inner
    if kind == "Shapes":
        return tuple(typed.shape(shape) for shape in typed.entries(value, MOST_TENSORS))
    if kind == "StepsOfEach":
        return tuple(
            tuple(_step(INPUT_STEPS, entry, depth + 1) for entry in typed.entries(tensor_steps, MOST_STEPS))
            for tensor_steps in typed.entries(value, MOST_TENSORS)
        )
    if kind == "LastStepsOfEach":
        return tuple(
            tuple(last_step_from_fields(entry) for entry in typed.entries(tensor_steps, MOST_LAST_STEPS))
            for tensor_steps in typed.entries(value, MOST_TENSORS)
        )
    if kind == "Reals":
        return typed.reals(value, finite=name != "threshold")
    if kind.startswith("NDArray"):
        return typed.labels(value)
    if kind.startswith("tuple"):
        if value is None:
            return None
        values = typed.entries(value, MOST_COLUMNS)
        return tuple(tuple(_entry(e) for e in v) if isinstance(v, list) else _entry(v) for v in values)
    if kind == "int":
        return typed.integer(value, -typed.LARGEST_INTEGER)
    return {"Indices": typed.indices, "float": typed.real, "str": typed.text, "bool": typed.flag}[kind](value)


def _entry(value: Any) -> Any:
    return typed.text(value) if isinstance(value, str) else value
