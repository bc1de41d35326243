"""Seeded mutations of JSON: wrong types, huge and negative numbers, NaN and infinities, deep nesting, missing and surplus keys."""

from __future__ import annotations

import copy
import random
from typing import Any

STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 255, -(2**31), 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**40, 10**400, 10**12,
    0.0, -0.0, 0.5, -0.5, 1e-320, 1e-300, 1e300, 1.7e308, -1.7e308, float("nan"), float("inf"), float("-inf"),
    "", "1", "1.5", "nan", "Softmax", "TopK", "x" * 5000, "\x00", "\ud800",
    [], {}, [[]], [[[]]], [0], [-1], [1.5], ["1"], [None], [10**12], [10**12, 10**12], [1] * 40, {"a": 1}, [[1, 2], [3]],
]  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def mutated(fields: Any, rng: random.Random, strange: list[Any] = STRANGE) -> Any:
    """A copy with one to three changes."""
    fields = copy.deepcopy(fields)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change(fields, rng, strange)
    return fields


def change(fields: Any, rng: random.Random, strange: list[Any] = STRANGE) -> None:
    """Changes one entry somewhere, in place."""
    while True:  # down to a container; each level with the same chance, so that large arrays do not take all mutations
        keys = list(fields) if isinstance(fields, dict) else list(range(len(fields)))
        inner = [key for key in keys if isinstance(fields[key], dict | list) and fields[key]]
        if not inner or rng.random() < 0.3:
            break
        fields = fields[rng.choice(inner)]
    if not keys:
        return
    key, other = rng.choice(keys), rng.choice(keys)
    value = fields[key]
    kind = rng.randrange(9)
    if kind <= 2:
        fields[key] = copy.deepcopy(rng.choice(strange))
    elif kind == 3:
        del fields[key]
    elif kind == 4:
        surplus = copy.deepcopy(rng.choice([*strange, value]))
        if isinstance(fields, dict):
            fields["surplus"] = surplus
        else:
            fields.insert(rng.randrange(len(fields) + 1), surplus)
    elif kind == 5:
        fields[key], fields[other] = fields[other], value
    elif kind == 6:
        fields[key] = nested(rng.choice((1, 2, 20, 70, 300)))
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e100:
        fields[key] = rng.choice([-value, value + 1, value - 1, value * 1000, value * 1e-3, -value - 1, value * 2**40])
    elif isinstance(value, list):
        fields[key] = rng.choice([value[:-1], value + value[:1], value[::-1], value * 2, [value]])
    else:
        fields[key] = str(value)[:-1]
