"""The report in all details, for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cloakwork.fhe_core import parameters
from cloakwork.fhe_core.parameters import upload_bytes
from cloakwork.models.client_steps.running import FROM_SCORES
from cloakwork.models.errors import printable, some
from cloakwork.models.forecast.profile import measured_profiles
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node, source_nodes, wires
from cloakwork.models.graph.last_steps import LogSoftmax, Softmax
from cloakwork.models.graph.lookup_parts import DIRECT
from cloakwork.models.graph.steps import formula
from cloakwork.models.program import Program
from cloakwork.models.program.answers import answer_bytes
from cloakwork.models.program.facts import CheckFacts, GridFacts, Measure, TreeFacts, VerdictFacts
from cloakwork.models.report.costs import Report
from cloakwork.models.report.layers import Layer

# A graph in lines of text, for people who watch it being compiled.


def graph_text(graph: Graph) -> list[str]:
    """Returns one line for each node: what it reads, its shape, its functions, and the range of its values where it is known."""
    owner = graph.owners()
    lines = []
    for number, node in enumerate(graph.nodes):
        sources = ", ".join(str(source) for source in source_nodes(graph, node.gather, owner))
        read = f" of {sources}" if sources else ""
        lines.append(f"{number:>3} {_node(node)}{read}{_range(graph, node)}")
    outputs = ", ".join(str(source) for source in source_nodes(graph, graph.output, owner))
    after = [step.title for step in graph.client_steps]
    lines.append(
        f"    output {list(graph.output.shape)} of {outputs}"
        + (f"; the client does {', '.join(after)}" if after else "")
    )
    return lines


def _node(node: Node) -> str:
    if isinstance(node, Input):
        return f"input '{node.origin}' {list(node.shape)}"
    if isinstance(node, Linear):
        blocks, rows, columns = node.weights.shape
        kind = "integer" if node.weights.dtype.kind == "i" else "real"
        shared = f", {blocks} blocks of weights" if blocks > 1 else ""
        return f"linear '{node.origin}' {len(node.gather)} x {rows} x {columns}, {kind}{shared}"
    if isinstance(node, Lookup):
        return f"look-up '{node.origin}' {node.bootstraps} x {formula(node.steps)}"
    return f"{node.operator.lower()} '{node.origin}' {node.size}"


def _range(graph: Graph, node: Node) -> str:
    if graph.lower is None or graph.upper is None:
        return ""
    node_wires = wires(node)
    return f" in [{float(graph.lower[node_wires].min()):.3g}, {float(graph.upper[node_wires].max()):.3g}]"


def summary(graph: Graph) -> str:
    """Returns "3 linear nodes of 25,450 weights, 2 look-ups, 40 bootstraps"."""
    weights = sum(node.weights.size for node in graph.linears)
    return f"{len(graph.linears)} linear nodes of {weights:,} weights, {len(graph.lookups)} look-ups, {graph.bootstraps:,} bootstraps"


# The report in four lines: how true, how fast, how many bytes, what a client learns.

UNKNOWN: Final = "as your model: not measured; 'cloakwork simulate' does it, with samples"
_HOW_TO_MEASURE: Final = "from stored figures: 'cloakwork calibrate-machine' measures this machine"


def short_report(program: Program) -> str:
    """Describe a program in four lines of plain text; `report_text` has the details."""
    report = Report.of(program)
    sizes = bytes_line(report.input_bytes, answer_bytes(program), upload_bytes(program.parameters))
    return four_lines(
        _accuracy(program), _short_seconds(report.seconds, program.bootstraps > 0), sizes, _learns(report)
    )


def four_lines(accuracy: str, seconds: str, sizes: str, learns: str) -> str:
    """Join them. Args: learns: what a client learns, without a verb."""
    return "\n".join(map(printable, (accuracy, seconds, sizes, f"a client learns: {learns}")))


def bytes_line(up: float, down: float, keys: int | None) -> str:
    """Say what travels for one sample. Args: keys: bytes of evaluation keys; None: not known before they are made; 0: none."""
    once = {None: "evaluation keys once", 0: "no evaluation keys"}.get(keys)
    return f"bytes to send: {up:,.0f} up and {down:,.0f} down for one sample; {once or f'evaluation keys of {keys:,} once'}"


def _accuracy(program: Program) -> str:
    facts = program.facts
    if facts.original is not None:
        return facts.original.text
    if facts.check is not None:
        return f"as your model: {verdict_text(facts.check)} ({samples_text(facts.check)})"
    return UNKNOWN


def _short_seconds(seconds: Mapping[str, Mapping[str, Any]], has_bootstraps: bool) -> str:
    shown = {device: time for device, time in seconds.items() if time["complete"] or has_bootstraps}
    parts = [_of_device(device, time) for device, time in shown.items()]
    if not parts:
        return "seconds for one sample: no forecast; 'cloakwork calibrate-machine' measures this machine"
    end = "" if any(time["measured_here"] for time in shown.values()) else f", {_HOW_TO_MEASURE}"
    return f"seconds for one sample: {', '.join(parts)}{end}"


def _of_device(device: str, time: Mapping[str, Any]) -> str:
    where = f"here ({device})" if time["measured_here"] else f"on {device}"
    return f"{time['seconds_one_sample']:.3g} {where}{'' if time['complete'] else ', look-ups only'}"


def _learns(report: Report) -> str:
    disclosed = report.disclosed
    return f"{_answers(report.program)}, and of the model {some(each.text() for each in disclosed)}"


def _answers(program: Program) -> str:
    if program.facts.tell == "labels":
        return "labels only"
    steps = (*program.output_steps, *program.graph.client_steps)
    return "scores" if any(isinstance(step, (*FROM_SCORES, Softmax, LogSoftmax)) for step in steps) else "the answers"


# The results of the compiler's check of its own work, as text.


def verdict_text(check: CheckFacts) -> str:
    """Say how true the program is; of several outputs each by name."""
    if check.outputs:
        return "; ".join(f"{name}: {_verdict(each)}" for name, each in check.outputs.items())
    return _verdict(check)


def samples_text(check: CheckFacts) -> str:
    """Say how many samples it was measured on, and how many of them the program had been fitted to."""
    if check.unseen is None:
        return f"{check.samples} samples"
    if check.unseen == check.samples:
        return f"{check.samples} samples that it has not been fitted to"
    seen = f"{check.unseen} of which it" if check.unseen else "all of which it"
    return f"{check.samples} samples, {seen} has {'not ' if check.unseen else ''}been fitted to"


def _verdict(verdict: CheckFacts | VerdictFacts) -> str:
    end = "" if verdict.at_least is None else f", at least {100 * verdict.at_least:.1f} %"
    if verdict.measure == "agreement":
        return f"decides as the clear model on {100 * verdict.value:.1f} %{end}"
    if verdict.measure == "determination":
        return f"gets {100 * verdict.value:.1f} % of an output's variance right"
    of = "of the spread of its values" if verdict.measure == "closeness" else "in cosines between pairs"
    end = "" if verdict.at_least is None else f", at most {100 * (1 - verdict.at_least):.1f} %"
    return f"is off by {100 * (1 - verdict.value):.1f} % {of}{end}"


_NEVER: Final = 1000
HOW_TO_MEASURE: Final = (
    "stored figures may be off by a factor on this machine: 'cloakwork calibrate-machine' measures it"
)


def report_text(program: Program) -> str:
    """Describe a program in lines of plain text, as `cloakwork inspect --details` shows it."""
    report, params = Report.of(program), program.parameters
    fields = report.to_fields()
    lines = [
        *([program.facts.original.text] if program.facts.original else []),
        f"program {program.digest.hex()[:16]}",
        f"parameter set {params.name}: {params.security_bits} bits of security, keys of {fields['upload_bytes'] / 2**20:.1f} MiB",
        *([parameters.structure_of(params)] if params.structured_secret else []),
        *([parameters.products_of(params)] if params.rounded_products else []),
        *([parameters.lanes_of(params)] if params.lane_count > 1 else []),
        _bootstraps(report),
        *_parts(report.bootstraps_by_part),
        *(_trees(program.facts.trees, program.facts.grid) if program.facts.trees else []),
        *_tensors(fields),
        f"the client specification tells: {some(each.text() for each in report.disclosed)}",
        f"{_unit(params)}: {report.input_bytes} bytes in, {fields['output_ciphertext_bytes']} bytes out",
        *_seconds(report),
        *_risks(report),
        *(_check(program.facts.check) if program.facts.check else []),
        "layer, noise in per cent of the half torus (one standard deviation), distance to a wrong value:",
        *map(_layer, report.layers),
    ]
    if program.graph.client_steps:
        lines.append(f"the client does: {', '.join(step.title for step in program.graph.client_steps)}")
    return "\n".join(map(printable, lines))


def _unit(params: parameters.ParameterSet) -> str:
    """Returns what a row of ciphertexts holds."""
    return "one sample" if params.lane_count == 1 else f"{params.lane_count} samples"


def _bootstraps(report: Report) -> str:
    if not report.program.bootstraps:
        return "no bootstraps"
    levels = some(report.bootstraps_per_level)
    unit = "sample" if report.program.parameters.lane_count == 1 else _unit(report.program.parameters)
    return f"bootstraps per {unit}: {report.program.bootstraps} ({levels} by level), most of them in {report.costliest_layer}"


def _parts(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Returns the parts of programs in which chains stand for look-ups: what those are for, of the whole and of each."""
    whole = Counter[str]()
    for each in counts.values():
        whole.update(each)
    if set(whole) <= {DIRECT}:
        return []
    listed = "; ".join(f"{name}: {_counted(each)}" for name, each in counts.items())
    return [f"look-ups by part: {_counted(whole)}", f"of which {listed}"]


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {part}" for part, count in counts.items())


def _trees(facts: TreeFacts, grid: GridFacts | None) -> list[str]:
    shape = f"{facts.trees} of depth {facts.depth} at most"
    by = f"by the {facts.comparisons_by}" if grid is None or grid.digit_bits else "picked by the server"
    comparisons = f"{facts.comparison_bits} comparisons on {facts.features_compared} features {by}"
    flags = [f"flags on long paths: {facts.bootstraps_of_flags} of the bootstraps"] if facts.bootstraps_of_flags else []
    return [
        f"trees: {shape}, {comparisons}; one bootstrap for each node would be {facts.bootstraps_one_per_node}",
        *([] if grid is None else _grid(grid)),
        *flags,
        f"leaf values: {facts.leaf_bits} bits, a score is off by {facts.leaf_rounding_error:.2g} at most; outputs: {facts.outputs}",
    ]


def _grid(grid: GridFacts) -> list[str]:
    kinds = some(f"{count} {kind}" for kind, count in grid.kinds.items())
    sent = f"{grid.sent} bits" if grid.digit_bits is None else f"{grid.sent} numbers of {grid.digit_bits} bits"
    lines = [f"public grid: {grid.bits} bits, {grid.points} points ({kinds}), {sent} sent for a sample"]
    if grid.agreement is not None:
        kept = _KEPT[grid.measure or "agreement"]
        lines.append(
            f"on the grid, before leaf values are rounded, the trees {kept} {100 * grid.agreement:.1f} % ({grid.samples} samples)"
        )
    return lines


_KEPT: Final[Mapping[Measure, str]] = {
    "agreement": "decide as before on",
    "closeness": "keep their values to",
    "determination": "keep of the variance of their values",  # by earlier releases
}


def _tensors(fields: dict[str, Any]) -> list[str]:
    """Returns several inputs and outputs, and what the client does to each output."""
    lines = []
    if fields["input_tensors"]:
        unused = f"; nothing depends on {some(fields['unused_inputs'])}" if fields["unused_inputs"] else ""
        named = some(f"{each['name']} {each['shape']}" for each in fields["input_tensors"])
        lines.append(f"inputs: {named}{unused}")
    if fields["output_tensors"]:
        lines.append(f"outputs: {some(map(_output, fields['output_tensors']))}")
    return lines


def _output(tensor: dict[str, Any]) -> str:
    steps = f" (the client does {', '.join(tensor['client_steps'])})" if tensor["client_steps"] else ""
    return f"{tensor['name']} {tensor['shape']}{steps}"


def _seconds(report: Report) -> list[str]:
    shown = {device: time for device, time in report.seconds.items() if time["complete"] or report.program.bootstraps}
    lines = [_forecast(device, time) for device, time in shown.items()]
    lines += [f"measurement ignored: {problem}" for problem in measured_profiles()[1]]
    if lines and not any(time["measured_here"] for time in report.seconds.values()):
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


def _risks(report: Report) -> list[str]:
    lines = []
    linear, exact = report.program.facts.linear, report.program.facts.exact
    if linear is not None:
        sample = min(0.0, linear.p_fail_log2 + math.log2(linear.outputs))
        lines.append(
            f"failure: {_power(linear.p_fail_log2)} for an output, {_power(sample)} for a sample; the sums are exact integers otherwise"
        )
    if report.p_fail_log2 is not None and report.program_p_fail_log2 is not None:
        lines.append(
            f"failure: {_power(report.p_fail_log2)} for an exact value, {_power(report.program_p_fail_log2)} for a sample"
        )
    if report.p_wrap_log2 is not None:
        lines.append(f"wrap-around of a value at the end of its range: {_power(report.p_wrap_log2)}")
    approximate = [layer.name for layer in report.layers if layer.bootstraps and layer.risk.p_wrap_log2 is not None]
    if exact is not None and approximate:
        lines.append(f"approximate, so a step or more off: {some(approximate)}")
    if exact is not None and exact.results_rounded is not None:
        lines.append(
            f"results rounded to {exact.activation_bits} bits, not the model's integers: {some(exact.results_rounded)}"
        )
    if exact is not None and exact.rounded:
        lines.append(f"rounded, so at most one step off: {some(exact.rounded)}")
    if exact is not None and exact.calibrated_ranges:
        lines.append(f"ranges from calibration, values outside wrap: {some(exact.calibrated_ranges)}")
    return lines


def _power(log2: float) -> str:
    """Returns a probability; of what never happens a bound."""
    return f"2^{log2:.1f}" if log2 >= -_NEVER else f"never (below 2^-{_NEVER})"


def _check(check: CheckFacts) -> list[str]:
    errors = some(f"{name} {100 * error:.1f} %" for name, error in check.layers.items())
    outside = f"{100 * check.outside_share:.1f} % (at most {100 * check.outside_share_at_most:.1f} %)"
    return [
        f"simulated on {samples_text(check)}: it {verdict_text(check)}; {_asked(check)}",
        f"samples with a value beyond a table, which counts as its end: {outside}",
        f"error of a layer's values, of their spread: {errors}",
    ]


def _asked(check: CheckFacts) -> str:
    if check.measure in ("agreement", "determination"):
        return f"{100 * check.asked:g} % asked for"
    return f"at most {100 * (1 - check.asked):.3g} % asked for"


def _bits(layer: Layer) -> str:
    """Returns the truth about a layer: its rows differ."""
    rows = layer.row_bits
    empty = f", {rows.empty} rows empty" if rows.empty else ""
    return f"{layer.weight_bits} bits (median row {rows.median}, worst {rows.worst}{empty})"


def _functions(formulas: Sequence[str]) -> str:
    """Returns what the look-ups compute; of many the first two."""
    more = f" and {len(formulas) - 2} more" if len(formulas) > 2 else ""
    return f" of {', '.join(formulas[:2])}{more}" if formulas else ""


def _layer(layer: Layer) -> str:
    end = "at the client" if layer.is_output else f"{layer.bootstraps} look-ups{_functions(layer.functions)}"
    limit = f" of {layer.noise_limit_percent:g}" if layer.noise_limit_percent else ""
    distance = "-" if layer.risk.deviations is None else f"{layer.risk.deviations:.1f} sd"
    return (
        f"  {layer.name:<24} {layer.noise_percent:6.3f}{limit}, {distance}; {end}; norm {layer.norm_on_input:.1f} on the input, "
        f"{layer.norm_on_lookups:.1f} on look-ups; weights of {_bits(layer)}; {layer.multiplications} multiplications"
    )
