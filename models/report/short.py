"""The report in four lines: how true, how fast, how many bytes, what a client learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloakwork.fhe_core.parameters import upload_bytes
from cloakwork.models.client_steps.running import FROM_SCORES
from cloakwork.models.errors import printable, some
from cloakwork.models.graph.last_steps import LogSoftmax, Softmax
from cloakwork.models.program import Program
from cloakwork.models.program.answers import answer_bytes
from cloakwork.models.report.costs import Report
from cloakwork.models.report.verdict_text import samples_text, verdict_text

UNKNOWN: Final = "as your model: not measured; 'cloakwork simulate' does it, with samples"
_HOW_TO_MEASURE: Final = "from stored figures: 'cloakwork calibrate-machine' measures this machine"


def short_report(program: Program) -> str:
    """Describe a program in four lines of plain text; `report_text` has the details."""
    report = Report.of(program)
    sizes = bytes_line(report.input_bytes, answer_bytes(program), upload_bytes(program.parameters))
    return four_lines(_accuracy(program), _seconds(report.seconds, program.bootstraps > 0), sizes, _learns(report))


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


def _seconds(seconds: Mapping[str, Mapping[str, Any]], has_bootstraps: bool) -> str:
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
