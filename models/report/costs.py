"""The report: what a program costs and risks as a whole, and under which names that is public."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from cloakwork.fhe_core import parameters
from cloakwork.models.client_steps import named_inputs, named_outputs
from cloakwork.models.forecast.profile import MachineProfile, measured_profiles, stored_profiles
from cloakwork.models.forecast.rates import batch_samples, work_of
from cloakwork.models.graph.lookup_parts import lookups_by_part
from cloakwork.models.program import Program
from cloakwork.models.program.answers import answer_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.report.disclosure import Disclosure, disclosures
from cloakwork.models.report.layers import Layer, layers_of

# Seconds per sample: measured on this machine where `cloakwork calibrate-machine` has been run on it, else from stored figures of others.


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


@dataclass(frozen=True, eq=False)
class Report:
    """Counts per sample; probabilities as log2, None of what cannot happen."""

    program: Program
    layers: tuple[Layer, ...]
    seconds: dict[str, dict[str, Any]]  # by device, see timing.estimated_seconds

    @classmethod
    def of(cls, program: Program) -> Report:
        """Counts, probabilities and forecasts of a program."""
        return cls(program, layers_of(program), estimated_seconds(program))

    @property
    def disclosed(self) -> list[Disclosure]:
        """Lists what every client is told of the model."""
        return disclosures(ClientSpecification.of(self.program))

    @property
    def p_fail_log2(self) -> float | None:
        """log2 of the probability that an exact value comes out wrong, at the worst layer."""
        return max(
            (layer.risk.p_fail_log2 for layer in self.layers if layer.risk.p_fail_log2 is not None), default=None
        )

    @property
    def program_p_fail_log2(self) -> float | None:
        """log2 of the probability that any exact value of a sample does."""
        return _union(
            [(each.risk.p_fail_log2, each.decisions) for each in self.layers if each.risk.p_fail_log2 is not None]
        )

    @property
    def p_wrap_log2(self) -> float | None:
        """log2 of the probability that a real value at the end of its range comes out at the other end, at the worst layer."""
        return max(
            (layer.risk.p_wrap_log2 for layer in self.layers if layer.risk.p_wrap_log2 is not None), default=None
        )

    @property
    def costliest_layer(self) -> str | None:
        """The one with most look-ups behind it."""
        inner = [layer for layer in self.layers if layer.bootstraps]
        return max(inner, key=lambda layer: layer.bootstraps).name if inner else None

    @property
    def bootstraps_per_level(self) -> list[int]:
        """Look-ups of a sample, in the order in which levels are computed."""
        return self.program.schedule.bootstraps_per_level

    @property
    def bootstraps_by_part(self) -> dict[str, dict[str, int]]:
        """Bootstraps by look-up of the model, and by what those that the compiler put in its place are for (lookup_parts.LookupRole), or "direct"."""
        return lookups_by_part(self.program.graph)

    @property
    def input_bytes(self) -> int:
        """Counts the bytes of one sample, seeded: whole polynomials of body words."""
        params = self.program.parameters
        polynomials = -(-self.program.graph.input.size // params.polynomial_size)
        return polynomials * params.polynomial_size * parameters.seeded_ciphertext_bytes(params)

    def to_fields(self) -> dict[str, Any]:
        """Returns plain values under the public names: sizes in bytes, noise in per cent of the half torus.

        `failure_log2` is the probability of the worst exact value (None without any), `failure_log2_program` that of all of them together,
        `wrap_log2` that of a value at the end of its range at an approximate look-up: the noise carries it over the edge of the table.
        """
        program, params = self.program, self.program.parameters
        return {
            **program.facts.to_fields(),
            "program_digest": program.digest.hex(),
            "parameter_set": params.name,
            "security_bits": params.security_bits,
            "structured_secret": params.structured_secret,
            "samples_per_ciphertext": params.lane_count,
            "noise_limit_percent": program.noise_percent,
            "bootstraps": program.bootstraps,
            "bootstraps_per_level": self.bootstraps_per_level,
            "bootstraps_by_part": self.bootstraps_by_part,
            "upload_bytes": parameters.upload_bytes(params),
            "input_ciphertext_bytes": self.input_bytes,
            "output_ciphertext_bytes": answer_bytes(program),
            "failure_log2": self.p_fail_log2,
            "failure_log2_program": self.program_p_fail_log2,
            "wrap_log2": self.p_wrap_log2,
            "estimated_seconds": self.seconds,
            "costliest_layer": self.costliest_layer,
            "discloses": [each.to_fields() for each in self.disclosed],
            "client_steps": [step.title for step in program.graph.client_steps],
            **_tensors(program),
            "layers": [layer.to_fields() for layer in self.layers],
        }


def report(program: Program) -> dict[str, Any]:
    """Returns the plain values of `Report.to_fields`."""
    return Report.of(program).to_fields()


def report_json(program: Program) -> str:
    """Returns the same as JSON."""
    return json.dumps(report(program), indent=2)


def sample_p_fail_log2(program: Program) -> float:
    """Returns log2 of the probability that a sample fails; with approximate look-ups, that a value at the end of its calibrated range wraps."""
    whole = program.facts.trees or program.facts.linear
    report = Report.of(program)
    known = (whole.p_fail_log2 if whole else None, report.program_p_fail_log2, report.p_wrap_log2)
    return float(next((each for each in known if each is not None), program.parameters.p_fail_log2))


def _tensors(program: Program) -> dict[str, Any]:
    """Lists names and shapes (without the batch) of several inputs and outputs; nothing where there is one."""
    inputs, outputs = named_inputs(program.input_steps), named_outputs(program.output_steps)
    return {
        "input_tensors": []
        if inputs is None
        else [{"name": name, "shape": list(shape)} for name, shape in zip(inputs.names, inputs.shapes, strict=True)],
        "unused_inputs": [] if inputs is None else list(inputs.unused),
        "output_tensors": []
        if outputs is None
        else [
            {"name": name, "shape": list(shape), "client_steps": [step.title for step in tensor_steps]}
            for name, shape, tensor_steps in zip(outputs.names, outputs.shapes, outputs.steps, strict=True)
        ],
    }


def _union(risks: Sequence[tuple[float, int]]) -> float | None:
    """log2 of the sum of count 2^log2."""
    if not risks:
        return None
    largest = max(log2 for log2, _ in risks)
    return min(0.0, largest + math.log2(sum(count * 2.0 ** (log2 - largest) for log2, count in risks)))
