"""The results of the compiler's check of its own work, as text."""

from __future__ import annotations

from cloakwork.models.program.facts import CheckFacts, VerdictFacts


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
