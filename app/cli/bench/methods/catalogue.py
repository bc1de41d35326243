"""The rows of `cloakwork bench methods`: every method on the sets of the table that show it, large precision, and the papers' own rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cloakwork.app.cli.bench.methods.published import OF_SHIPPED_SETS, PAPER_CASES, Published
from cloakwork.fhe_core.parameters import ParameterSet, is_insecure, is_paper_set, paper_sets, parameter_sets


@dataclass(frozen=True)
class Case:
    """One row: what is measured on which set."""

    method: str
    parameters: ParameterSet
    operation: str  # "gate" (NAND), "lookup", or of large precision "func", "floor", "sign" or "decomp"
    bits: int = 0
    p_fail_log2: float = -128.0  # of large precision
    published: Published | None = None

    @property
    def name(self) -> str:
        """The name that --only searches."""
        bits = f" {self.bits} bits" if self.bits else ""
        row = f" {self.published.row}" if self.published else ""
        return f"{self.method} {self.parameters.name} {self.operation}{bits}{row}"


# Of each kind of look-up the sets that differ in the method alone.
BASES: Final = ("gate_64", "lut3", "lut4", "lut6_64")
SUFFIXES: Final = ("", "_block", "_raised", "_fft", "_cm2", "_block_cm2")
# Sets of these are taken whatever they are called before.
OPT_IN_METHODS: Final = {"_ap": "AP accumulator", "_ntru": "NTRU accumulator"}
LARGE_SET: Final = "large16"
LARGE_BITS: Final = {"func": 3, "floor": 16, "sign": 16, "decomp": 16}
QUICK: Final = (
    "gate_64",
    "gate_64_block",
    "gate_64_cm2",
    "lut4",
    "lut4_raised",
    "lut4_fft",
    "lut6_64_block",
    "papers/velofhe_gd1",
)
STEPS: Final = {
    "binary": "one key bit a step",
    "binary_pair": "two key bits a step",
    "ternary": "ternary key bits, one a step",
}


def method_of(params: ParameterSet) -> str:
    """Names the method of a set, from its row."""
    for suffix, method in OPT_IN_METHODS.items():
        if params.name.endswith(suffix):
            return method
    parts = []
    if params.rounded_products:
        parts.append("double precision")
    elif params.raised:
        parts.append("modulus raising")
    if params.extension_factor > 1:
        parts.append("extended tables")
    if params.lane_count > 1:
        parts.append("common mask")
    if params.structured_secret:
        parts.append("blocks of key bits")
    elif not parts or params.cmux != "binary_pair":
        parts.append(STEPS.get(params.cmux, params.cmux.replace("_", " ")))
    return ", ".join(parts)


def all_cases() -> list[Case]:
    """Lists all cases by the sets that this build has."""
    shipped = {params.name: params for params in parameter_sets() if not is_insecure(params)}
    names = [base + suffix for base in BASES for suffix in SUFFIXES]
    names += [name for name in shipped if name.endswith(tuple(OPT_IN_METHODS))]
    cases = [
        Case(method_of(shipped[name]), shipped[name], _operation(shipped[name]), published=OF_SHIPPED_SETS.get(name))
        for name in names
        if name in shipped
    ]
    large = shipped.get(LARGE_SET)
    if large is not None:
        cases += [Case("large precision", large, kind, bits) for kind, bits in LARGE_BITS.items()]
    return cases + _paper_cases({params.name: params for params in paper_sets()})


def _operation(params: ParameterSet) -> str:
    return "gate" if params.kind == "gate" else "lookup"


def _paper_cases(sets: Mapping[str, ParameterSet]) -> list[Case]:
    return [
        Case(
            method_of(sets[each.set_name]),
            sets[each.set_name],
            each.operation,
            each.bits,
            each.p_fail_log2,
            each.published,
        )
        for each in PAPER_CASES
        if each.set_name in sets
    ]


def chosen_cases(only: list[str], quick: bool) -> list[Case]:
    """Returns those whose name holds one of `only` (all where there are none), and with `quick` a short list of look-ups and gates."""
    cases = all_cases()
    if only:
        return [case for case in cases if any(text.lower() in case.name.lower() for text in only)]
    if quick:
        return [case for case in cases if case.parameters.name in QUICK or _is_opt_in(case.parameters)]
    return cases


def _is_opt_in(params: ParameterSet) -> bool:
    return not is_paper_set(params) and params.name.endswith(tuple(OPT_IN_METHODS))
