"""What a compiled model costs and risks, before any key is made."""

from __future__ import annotations

import json
from typing import Any

from cloakwork.fhe_core import parameters
from cloakwork.models.passes.choose_parameters import phase_noise, weight_norms
from cloakwork.models.passes.quantise_weights import weight_bits
from cloakwork.models.program import Program


def report(program: Program) -> dict[str, Any]:
    """Sizes in bytes, noise in per cent of the half torus, counts per sample."""
    params = program.parameters
    return {
        "parameter_set": params.name,
        "security_bits": params.security_bits,
        "noise_limit_percent": program.noise_percent,
        "bootstraps": program.bootstraps,
        "bootstraps_per_level": [level.bootstraps for level in program.levels if level.lookups],
        "upload_bytes": parameters.upload_bytes(params),
        "input_ciphertext_bytes": _packed_bytes(program),
        "output_ciphertext_bytes": program.graph.output.size * parameters.ciphertext_bytes(params),
        "client_steps": [step.operator for step in program.graph.client_steps],
        "layers": _layers(program),
        **program.facts,
    }


def _layers(program: Program) -> list[dict[str, Any]]:
    rows = []
    for node, norms in zip(program.graph.linears, weight_norms(program.graph), strict=True):
        positions, width = node.gather.shape
        rows.append(
            {
                "name": norms.origin,
                "multiplications": positions * node.weights.shape[1] * width,
                "weight_bits": weight_bits(node),
                "norm_on_input": norms.on_input,
                "norm_on_lookups": norms.on_lookups,
                "noise_percent": 200 * phase_noise(program.parameters, norms),
                "noise_limit_percent": program.layer_noise.get(node.origin, program.noise_percent),
                "is_output": norms.is_output,
            }
        )
    return rows


def _packed_bytes(program: Program) -> int:
    """One sample, seeded: whole polynomials of body words."""
    params = program.parameters
    polynomials = -(-program.graph.input.size // params.polynomial_size)
    return polynomials * params.polynomial_size * parameters.word_bytes(params)


def report_json(program: Program) -> str:
    return json.dumps(report(program), indent=2)


def report_text(program: Program) -> str:
    facts = report(program)
    per_level = " + ".join(str(count) for count in facts["bootstraps_per_level"])
    lines = [
        f"parameter set {facts['parameter_set']}: {facts['security_bits']} bits of security, keys of {facts['upload_bytes'] / 2**20:.1f} MiB",
        f"bootstraps per sample: {facts['bootstraps']} ({per_level} by level)"
        if facts["bootstraps"]
        else "no bootstraps",
        f"one sample: {facts['input_ciphertext_bytes']} bytes in, {facts['output_ciphertext_bytes']} bytes out",
        f"noise, per cent of the half torus, at most {facts['noise_limit_percent']:g}:",
    ]
    for layer in facts["layers"]:
        end = "client" if layer["is_output"] else "look-up"
        lines.append(
            f"  {layer['name']:<24} {layer['noise_percent']:6.3f} at the {end}; norm {layer['norm_on_input']:.1f} on the input, "
            f"{layer['norm_on_lookups']:.1f} on look-ups; weights of {layer['weight_bits']} bits; {layer['multiplications']} multiplications"
        )
    if facts["client_steps"]:
        lines.append(f"the client does: {', '.join(facts['client_steps'])}")
    return "\n".join(lines)
