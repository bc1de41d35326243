"""The report: what a program costs and risks as a whole, and under which names that is public."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cloakwork.fhe_core import parameters
from cloakwork.models.client_steps import named_inputs, named_outputs
from cloakwork.models.graph.lookup_parts import lookups_by_part
from cloakwork.models.program import Program
from cloakwork.models.program.answers import answer_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.report.disclosure import Disclosure, disclosures
from cloakwork.models.report.layers import Layer, layers_of
from cloakwork.models.report.timing import estimated_seconds


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
