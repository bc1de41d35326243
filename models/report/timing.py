"""Seconds per sample from measured bootstraps per second (timings.json); sets that were not measured scale with their counted operations."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from cloakwork.fhe_core.parameters import ParameterSet, parameter_set
from cloakwork.models.passes.choose_parameters import bootstrap_cost
from cloakwork.models.program import Program


def estimated_seconds(program: Program) -> dict[str, dict[str, Any]]:
    """By device: of a sample in full batches, and of one sample alone. Bootstraps only; linear layers and transfers come on top."""
    params, levels = program.parameters, [level.bootstraps for level in program.levels if level.lookups]
    result = {}
    for device, measured in _timings().items():
        rate, scaled = _scaled(measured["bootstraps_per_second"], params, rising=False)
        one_ms, _ = _scaled(measured["milliseconds_of_one"], params, rising=True)
        result[device] = {
            "seconds_per_sample": sum(levels) / rate,
            "seconds_one_sample": sum(max(one_ms / 1000, count / rate) for count in levels),
            "scaled_from": scaled,
            "measured_on": measured["description"],
        }
    return result


@cache
def _timings() -> dict[str, Any]:
    text = files("cloakwork.models.report").joinpath("timings.json").read_text(encoding="utf-8")
    result: dict[str, Any] = json.loads(text)
    return result


def _scaled(measured: dict[str, float], params: ParameterSet, rising: bool) -> tuple[float, str | None]:
    """The figure of a set, and the set that it was scaled from; preferably one with as many limbs."""
    if params.name in measured:
        return measured[params.name], None
    cost = bootstrap_cost(params)

    def distance(name: str) -> tuple[bool, float]:
        other = parameter_set(name)
        return other.limb_count != params.limb_count, abs(bootstrap_cost(other) / cost - 1)

    nearest = min(measured, key=distance)
    ratio = cost / bootstrap_cost(parameter_set(nearest))
    return measured[nearest] * (ratio if rising else 1 / ratio), nearest
