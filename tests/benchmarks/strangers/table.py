"""Records as a Markdown table, alone or beside earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

Record = dict[str, Any]

_COLUMNS: Final = (
    "model", "data", "clear", "quantised", "simulated", "drop", "agreement q, s", "error q, s", "look-ups, levels", "set",
    "profile", "bits", "compile s", "est. s", "",
)  # fmt: skip
_LONGEST_MESSAGE: Final = 160


def markdown(records: Sequence[Record]) -> str:
    """Per cent of accuracy or R2; agreement with the clear model; error: root mean square in deviations of the clear answers, per cent; bits:
    of the weights, least layer to largest; est. s: one sample alone on the CPU, bootstraps only."""
    lines = [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    lines += [_row(_cells(record)) for record in records]
    return "\n".join([*lines, "", summary(records)])


def compared(records: Sequence[Record], before: Sequence[Record]) -> str:
    """Both where a name is in both."""
    old = {record["name"]: record for record in before}
    head = ("model", "clear", "simulated before", "now", "look-ups, set, est. s before", "now", "")
    lines = [_row(head), _row(["---"] * len(head))]
    for record in records:
        earlier = old.get(record["name"], {})
        cells = [record["name"], _number(record.get("clear"))]
        cells += [_simulated(earlier), _simulated(record), _cost(earlier), _cost(record), record["status"]]
        lines.append(_row(cells))
    return "\n".join([*lines, "", f"before: {summary(before)}", f"now: {summary(records)}"])


def summary(records: Sequence[Record]) -> str:
    counts = {
        status: [r["name"] for r in records if r["status"] == status] for status in ("ok", "worse", "refused", "broken")
    }
    named = [
        f"{len(names)} {status}" + (f" ({', '.join(names)})" if status != "ok" and names else "")
        for status, names in counts.items()
    ]
    return f"{len(records)} models: {'; '.join(named)}"


def _cells(record: Record) -> list[str]:
    about = [f"{record['name']}{' *' if record['issue_row'] else ''}: {record['architecture']}", record["data"]]
    if record["status"] in ("refused", "broken"):
        message = " ".join(record["message"].split()).replace("|", "/")
        empty = [""] * (len(_COLUMNS) - 6)
        return [
            *about,
            _number(record.get("clear")),
            "",
            "",
            "",
            *empty[:-1],
            f"{record['status']}: {message[:_LONGEST_MESSAGE]}",
        ]
    drop = record["clear"] - record["simulated"]
    deviation = record["drop_deviation"]
    bits = [layer["weight_bits"] for layer in record["layers"]]
    return [
        *about,
        _number(record["clear"]),
        _number(record["quantised"]),
        _number(record["simulated"]),
        f"{drop:.1f}" + (f" ± {deviation:.1f}" if deviation == deviation else ""),
        f"{_number(record['quantised_agreement'])}, {_number(record['simulated_agreement'])}",
        f"{_number(record['quantised_error'])}, {_number(record['simulated_error'])}",
        f"{record['lookups']}, {record['levels']}",
        record["parameter_set"],
        str(record["profile"]),
        f"{min(bits)}-{max(bits)}" if bits else "",
        _number(record["compile_seconds"]),
        _seconds(record),
        record["status"],
    ]


def _simulated(record: Record) -> str:
    return _number(record.get("simulated")) if "simulated" in record else str(record.get("status", "-"))


def _cost(record: Record) -> str:
    return f"{record['lookups']}, {record['parameter_set']}, {_seconds(record)}" if "lookups" in record else "-"


def _seconds(record: Record) -> str:
    found = [
        each["seconds_one_sample"] for device, each in record["estimated_seconds"].items() if device.startswith("cpu")
    ]
    return f"{found[0]:.3g}" if found else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
