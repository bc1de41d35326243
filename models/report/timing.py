"""Seconds per sample: measured on this machine where `cloakwork calibrate-machine` has been run on it, else from stored figures of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from cloakwork.models.forecast.cache import measured_profiles, stored_profiles
from cloakwork.models.forecast.profile import MachineProfile
from cloakwork.models.forecast.work import batch_samples, work_of
from cloakwork.models.program import Program


def estimated_seconds(program: Program, measured: Sequence[MachineProfile] | None = None) -> dict[str, dict[str, Any]]:
    """Estimates seconds by device: of a sample in full batches, and of one sample alone, from encrypted input to encrypted answer.

    Args:
        measured: of this machine; None: what the user's cache holds of it. Stored figures stand for kinds of device without one.
    """
    here = measured_profiles()[0] if measured is None else list(measured)
    result = {profile.machine.label: _estimate(program, profile, is_here=True) for profile in here}
    kinds = {profile.machine.device == "cpu" for profile in here}
    for name, profile in _stored().items():
        if (profile.machine.device == "cpu") not in kinds:
            result[name] = _estimate(program, profile, is_here=False)
    return result


def cpu_estimate(estimates: Mapping[str, Mapping[str, Any]], threads: int = 1) -> tuple[float, float] | None:
    """Forecasts seconds of a sample in batches and alone on these threads of a CPU: as measured with as many, else with fewer and shared among
    them."""
    cpus = [each for name, each in estimates.items() if name.startswith("cpu-")]
    if not cpus:
        return None
    most = max(cpus, key=lambda each: (each.get("threads", 1) <= threads, -abs(each.get("threads", 1) - threads)))
    share = max(1.0, threads / most.get("threads", 1))
    return most["seconds_per_sample"] / share, most["seconds_one_sample"]


def _estimate(program: Program, profile: MachineProfile, is_here: bool) -> dict[str, Any]:
    rates, scaled = profile.rates(program.parameters)
    device = profile.machine.device
    rows, lanes = batch_samples(program, device), program.parameters.lane_count
    samples = rows * lanes
    batch, one = (rates.parts(work_of(program, count, device)) for count in (rows, 1))
    return {
        "seconds_per_sample": sum(batch.values()) / samples,
        "seconds_one_sample": sum(one.values()),
        "batch_samples": samples,
        "parts_per_sample": {part: seconds / samples for part, seconds in batch.items()},
        "parts_one_sample": dict(one),
        "complete": rates.is_complete,
        "scaled_from": scaled,
        "threads": profile.machine.threads,
        "measured_here": is_here,
        "measured_on": profile.machine.name,
        "measured_at": profile.measured,
    }


@cache
def _stored() -> dict[str, MachineProfile]:
    return stored_profiles()
