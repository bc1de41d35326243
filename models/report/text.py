"""The report for people."""

from __future__ import annotations

import math
from typing import Any, Final

from cloakwork.models.errors import some
from cloakwork.models.forecast.cache import measured_profiles
from cloakwork.models.program import Program
from cloakwork.models.report.facts import report

_NEVER: Final = 1000
HOW_TO_MEASURE: Final = (
    "stored figures may be off by a factor on this machine: 'cloakwork calibrate-machine' measures it"
)


def report_text(program: Program) -> str:
    facts = report(program)
    lines = [
        f"program {facts['program_digest'][:16]}",
        f"parameter set {facts['parameter_set']}: {facts['security_bits']} bits of security, keys of {facts['upload_bytes'] / 2**20:.1f} MiB",
        _bootstraps(facts),
        *_trees(facts),
        *_tensors(facts),
        f"one sample: {facts['input_ciphertext_bytes']} bytes in, {facts['output_ciphertext_bytes']} bytes out",
        *_seconds(facts),
        *_risks(facts),
        *_check(facts),
        "layer, noise in per cent of the half torus (one standard deviation), distance to a wrong value:",
        *map(_layer, facts["layers"]),
    ]
    if facts["client_steps"]:
        lines.append(f"the client does: {', '.join(facts['client_steps'])}")
    return "\n".join(lines)


def _bootstraps(facts: dict[str, Any]) -> str:
    if not facts["bootstraps"]:
        return "no bootstraps"
    levels = some(facts["bootstraps_per_level"])
    return (
        f"bootstraps per sample: {facts['bootstraps']} ({levels} by level), most of them in {facts['costliest_layer']}"
    )


def _trees(facts: dict[str, Any]) -> list[str]:
    if facts.get("kind") != "trees":
        return []
    bins = "every threshold" if facts["bin_bits"] is None else f"at most 2^{facts['bin_bits']} thresholds a feature"
    shape = f"{facts['trees']} of depth {facts['depth']} at most"
    comparisons = f"{facts['comparison_bits']} comparisons on {facts['features_compared']} features by the {facts['comparisons_by']} ({bins})"
    return [
        f"trees: {shape}, {comparisons}; one bootstrap for each node would be {facts['bootstraps_one_per_node']}",
        *(
            [f"flags on long paths: {facts['bootstraps_of_flags']} of the bootstraps"]
            if facts.get("bootstraps_of_flags")
            else []
        ),
        f"leaf values: {facts['leaf_bits']} bits, a score is off by {facts['leaf_rounding_error']:.2g} at most; outputs: {facts['outputs']}",
    ]


def _tensors(facts: dict[str, Any]) -> list[str]:
    """Several inputs and outputs, and what the client does to each output."""
    lines = []
    if facts["input_tensors"]:
        unused = f"; nothing depends on {some(facts['unused_inputs'])}" if facts["unused_inputs"] else ""
        named = some(f"{each['name']} {each['shape']}" for each in facts["input_tensors"])
        lines.append(f"inputs: {named}{unused}")
    if facts["output_tensors"]:
        lines.append(f"outputs: {some(map(_output, facts['output_tensors']))}")
    return lines


def _output(tensor: dict[str, Any]) -> str:
    steps = f" (the client does {', '.join(tensor['client_steps'])})" if tensor["client_steps"] else ""
    return f"{tensor['name']} {tensor['shape']}{steps}"


def _seconds(facts: dict[str, Any]) -> list[str]:
    estimates = facts["estimated_seconds"]
    lines = [_forecast(device, time) for device, time in estimates.items() if time["complete"] or facts["bootstraps"]]
    lines += [f"measurement ignored: {problem}" for problem in measured_profiles()[1]]
    if lines and not any(time["measured_here"] for time in estimates.values()):
        lines.append(HOW_TO_MEASURE)
    return lines


def _forecast(device: str, time: dict[str, Any]) -> str:
    source = (
        f"measured here on {time['measured_at'][:10]}"
        if time["measured_here"]
        else f"stored figures of {time['measured_on']}"
    )
    parts = ", ".join(f"{name} {seconds:.2g}" for name, seconds in time["parts_one_sample"].items() if seconds)
    scaled = f", scaled from {time['scaled_from']}" if time["scaled_from"] else ""
    what = f"of one: {parts}" if time["complete"] else "look-ups only"
    return (
        f"forecast for {device}: {time['seconds_per_sample']:.3g} s a sample in batches of {time['batch_samples']}, "
        f"{time['seconds_one_sample']:.3g} s for one alone ({what}; {source}{scaled})"
    )


def _risks(facts: dict[str, Any]) -> list[str]:
    lines = []
    if facts.get("kind") == "linear":
        one = facts["p_fail_log2"]
        sample = min(0.0, one + math.log2(facts["outputs"]))
        lines.append(
            f"failure: {_power(one)} for an output, {_power(sample)} for a sample; the sums are exact integers otherwise"
        )
    if facts["failure_log2"] is not None:
        lines.append(
            f"failure: {_power(facts['failure_log2'])} for an exact value, {_power(facts['failure_log2_program'])} for a sample"
        )
    if facts["wrap_log2"] is not None:
        lines.append(f"wrap-around of a value at the end of its range: {_power(facts['wrap_log2'])}")
    if facts.get("rounded"):
        lines.append(f"rounded, so at most one step off: {some(facts['rounded'])}")
    if facts.get("calibrated_ranges"):
        lines.append(f"ranges from calibration, values outside wrap: {some(facts['calibrated_ranges'])}")
    return lines


def _power(log2: float) -> str:
    """A probability; of what never happens a bound."""
    return f"2^{log2:.1f}" if log2 >= -_NEVER else f"below 2^-{_NEVER}"


def _check(facts: dict[str, Any]) -> list[str]:
    check = facts.get("check")
    if not check:
        return []
    text = _verdict(check["measure"], check["value"], "the output's")
    if check.get("outputs"):
        text = "; ".join(
            f"{name}: {_verdict(each['measure'], each['value'], 'its')}" for name, each in check["outputs"].items()
        )
    errors = some(f"{name} {100 * error:.1f} %" for name, error in check["layers"].items())
    outside = f"{100 * check['outside_share']:.1f} % (at most {100 * check['outside_share_at_most']:.1f} %)"
    return [
        f"simulated on {check['samples']} calibration samples it {text} ({100 * check['asked']:g} % asked for)",
        f"samples with a value beyond a table, which counts as its end: {outside}",
        f"error of a layer's values, of their spread: {errors}",
    ]


def _verdict(measure: str, value: float, whose: str) -> str:
    if measure == "agreement":
        return f"decides as the clear model on {100 * value:.1f} %"
    return f"gets {100 * value:.1f} % of {whose} variance right"


def _bits(layer: dict[str, Any]) -> str:
    """The truth about a layer: its rows differ."""
    rows = layer["row_bits"]
    empty = f", {rows['empty']} rows empty" if rows["empty"] else ""
    return f"{layer['weight_bits']} bits (median row {rows['median']}, worst {rows['worst']}{empty})"


def _functions(formulas: list[str]) -> str:
    """What the look-ups compute; of many the first two."""
    more = f" and {len(formulas) - 2} more" if len(formulas) > 2 else ""
    return f" of {', '.join(formulas[:2])}{more}" if formulas else ""


def _layer(layer: dict[str, Any]) -> str:
    end = "at the client" if layer["is_output"] else f"{layer['bootstraps']} look-ups{_functions(layer['functions'])}"
    limit = f" of {layer['noise_limit_percent']:g}" if layer["noise_limit_percent"] else ""
    margin = "-" if layer["margin_deviations"] is None else f"{layer['margin_deviations']:.1f} sd"
    return (
        f"  {layer['name']:<24} {layer['noise_percent']:6.3f}{limit}, {margin}; {end}; norm {layer['norm_on_input']:.1f} on the input, "
        f"{layer['norm_on_lookups']:.1f} on look-ups; weights of {_bits(layer)}; {layer['multiplications']} multiplications"
    )
