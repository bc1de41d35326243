"""Reads and writes measured.json: for each set what its numbers follow from, and the numbers.

With fixed entropy and an exact engine a measured number follows from the row of the parameter table, from the engine's words, and from the code that
measures. The file has a digest of the row and one of the rest: the known-answer vectors of tests/vectors, which pin the engine's words, and the
text of the code. Of the noise model it has the predictions themselves instead of a digest, so that a test can name the one that changed.
The numbers do not follow from the model. So a changed model must be accepted (`make test-release`, or measure.py), and nothing is measured again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from measurements import SCRIPT, Facts, is_shipped_block, laboratory_script

from cloakwork.fhe_core import _engine, noise
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.parameters import parameter_text

FOLDER = Path(__file__).resolve().parent
FILE = FOLDER / "measured.json"
VECTORS = FOLDER.parent / "vectors" / "digests.json"  # of the words of every stage
COMMAND = "CLOAKWORK_ALLOW_TOY=1 python tests/noise/measure.py"
TOLERANCE = 1e-9  # of floats: sums of the same numbers, on another processor in another order
_PRESENTATION = ("main", "model", "ratio")  # functions of the script that no measured number follows from

# The sets with a test of every stage: one row of every shape of the shipped table (but those of 192 bits and N = 4096, which are slow), and every
# toy. Of the papers' sets one with a ternary small key of one limb, and of two.
STAGE_SETS = (
    "toy",
    "toy_binary",
    "toy_ternary",
    "toy_two_limb",
    "toy_gate",
    "toy_block",
    "toy_block_two_limb",
    "toy_block_gate",
    "toy_raised",
    "toy_raised_block",
    "toy_raised_binary",
    "toy_fft",
    "toy_large",
    "toy_fine",
    "toy_three_digits",
    "toy_four_digits",
    "toy_extended",
    "toy_extended_two_limb",
    "toy_lanes",
    "toy_lanes_block",
    "toy_ntru",
    "toy_ntru_lut",
    "gate_64",
    "gate_128",
    "lut2",
    "lut3_64",
    "lut4",
    "lut4_fft",
    "large16",
    "fine4",
    "nn2",
    "nn2_wide",
    "lut3_raised",
    "lut4_raised",
    "gate_64_block",
    "lut2_block",
    "gate_64_cm2",
    "lut2_cm2",
    "nn2_block_cm2",
    "gate_ntru",
    "lut4_ntru",
    "papers/velofhe_gd1",
    "papers/velofhe_gd2",
)
JOINT_SETS = ("toy_2p", "toy_3p", "lut3_2p", "lut3_3p")
SELECTED_TOYS = ("toy_ap", "toy_ap_gate", "toy_ap_ternary", "toy_ap_two_limb", "toy_ap_raised")
SELECTED_SET = "gate_ap"
CORRELATED_SETS = ("toy_binary", "lut3", "toy", "toy_extended")  # whose entries of one rotation have a test
RERANDOMISED_SETS = ("nn2", "lut3")


def block_sets() -> tuple[str, ...]:
    """The shipped sets with block-binary small keys whose ring is at most 2048."""
    rows = map(_engine.parameter_set, _engine.parameter_set_names())
    return tuple(row.name for row in rows if is_shipped_block(row) and row.polynomial_size <= 2048)


def sets() -> tuple[str, ...]:
    """Every set that measured.json has."""
    names = (
        *STAGE_SETS,
        *block_sets(),
        *JOINT_SETS,
        *SELECTED_TOYS,
        SELECTED_SET,
        *CORRELATED_SETS,
        *RERANDOMISED_SETS,
    )
    return tuple(dict.fromkeys(names))


def load() -> dict[str, Any]:
    """Every stored set: {name: {"row", "vectors", "model", "facts"}}."""
    return dict(json.loads(FILE.read_text())) if FILE.exists() else {}


def save(records: dict[str, Any]) -> None:
    """Writes the sets in the order of `sets()`, one line for each part, so that a difference shows what changed."""
    ordered = {name: records[name] for name in sets() if name in records}
    FILE.write_text(_text(ordered, 0) + "\n")


def _text(value: Any, depth: int) -> str:
    if not (isinstance(value, dict) and any(isinstance(part, dict | list) for part in value.values())):
        return json.dumps(value)
    pad = " " * (depth + 1)
    parts = [f"{pad}{json.dumps(key)}: {_text(part, depth + 1)}" for key, part in value.items()]
    return "{\n" + ",\n".join(parts) + "\n" + " " * depth + "}"


# What a record follows from


def origin(name: str) -> dict[str, Any]:
    """Today's digests and predictions for a set."""
    params = _engine.parameter_set(name)
    return {"row": row_digest(params), "vectors": vectors_digest(), "model": predictions(params)}


def row_digest(params: ParameterSet) -> str:
    """Of what keys and words depend on, of the norm that a look-up is measured at, and of the name, which entropy follows from."""
    text = f"{parameter_text(params)}name={params.name}\nmax_weight_norm={params.max_weight_norm!r}\n"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def vectors_digest() -> str:
    """Of the known-answer vectors and of the code that measures, without its imports, comments and docstrings."""
    digest = hashlib.sha256()
    digest.update(VECTORS.read_bytes())
    for path in (SCRIPT, FOLDER / "measurements.py"):
        digest.update(code_text(path.read_text()).encode())
    return digest.hexdigest()[:16]


def code_text(source: str) -> str:
    """The lines that say what is measured, wherever its names lie: the same text for every version of Python."""
    lines: list[str | None] = list(source.splitlines())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr):
            left_out = isinstance(node.value, ast.Constant)  # a docstring
        else:
            left_out = isinstance(node, ast.Import | ast.ImportFrom) or (
                isinstance(node, ast.FunctionDef) and node.name in _PRESENTATION
            )
        if left_out:
            lines[node.lineno - 1 : node.end_lineno] = [None] * (node.end_lineno - node.lineno + 1)  # type: ignore[attr-defined]
    kept = (line.rstrip() for line in lines if line is not None)
    return "\n".join(line for line in kept if line and not line.lstrip().startswith("#"))


def predictions(params: ParameterSet) -> dict[str, float]:
    """What the noise model says about a row: every variance, mean and probability."""
    key_units, rounding_units = noise.step_units(params)
    values = {
        "fresh": noise.fresh_variance(params),
        "public key": noise.public_key_variance(params),
        "zeros": noise.rerandomisation_variance(params),
        "words of 16 bits": noise.word_rounding_variance(params, 16),
        "keyswitch key": noise.keyswitch_key_variance(params),
        "keyswitch rounding": noise.keyswitch_rounding_variance(params),
        "keyswitch constant": noise.keyswitch_constant_variance(params),
        "keyswitch offset": noise.keyswitch_offset(params),
        "keyswitch": noise.keyswitch_variance(params),
        "modulus switch": noise.modulus_switch_variance(params),
        "product key": noise.external_product_key_variance(params),
        "product rounding": noise.external_product_rounding_variance(params),
        "division": noise.division_variance(params),
        "transform": noise.transform_variance(params),
        "key units": key_units,
        "rounding units": rounding_units,
        "blind rotation": noise.blind_rotation_variance(params),
        "neighbours": noise.rotation_correlation(params, params.extension_factor),
        "largest correlation": noise.rotation_correlation_bound(params),
        "look-up": noise.lookup_variance(params),
        "margin": noise.lookup_margin(params),
        "offset": noise.lookup_offset(params),
        "failure log2": noise.lookup_p_fail_log2(params),
        "full-domain failure log2": noise.full_domain_p_fail_log2(params),
    }
    return {name: shortened(value) for name, value in values.items()}


def shortened(value: Any) -> Any:
    """Floats with 12 digits."""
    if isinstance(value, dict):
        return {key: shortened(part) for key, part in value.items()}
    if isinstance(value, list):
        return [shortened(part) for part in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def changes(record: dict[str, Any] | None, today: dict[str, Any]) -> list[str]:
    """What a stored set follows from and is not so today, in words."""
    if record is None:
        return ["it is not stored"]
    said = {
        "row": "the row of the parameter table",
        "vectors": "the vectors of tests/vectors or the code that measures",
    }
    lines = [f"{words} changed" for key, words in said.items() if record[key] != today[key]]
    return lines + [f"the noise model changed: {line}" for line in differences(record["model"], today["model"])]


def differences(stored: Any, now: Any, place: str = "") -> list[str]:
    """Where two nests of numbers differ by more than the order of a sum: a line for each number."""
    if isinstance(stored, dict) and isinstance(now, dict):
        lines = []
        for key in {**stored, **now}:
            inner = f"{place}, {key}" if place else key
            if key not in stored or key not in now:
                lines.append(f"{inner}: only {'stored' if key in stored else 'measured'}")
            elif key == "mean":  # of errors of either sign, whose sum may cancel
                lines += _difference(stored[key], now[key], inner, TOLERANCE * math.sqrt(stored["variance"]))
            else:
                lines += differences(stored[key], now[key], inner)
        return lines
    if isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        pairs = enumerate(zip(stored, now, strict=True))
        return [line for i, pair in pairs for line in differences(*pair, f"{place}, {i}")]
    near_zero = "correlations" in place or place.endswith(("neighbours", "masks"))
    return _difference(stored, now, place, TOLERANCE if near_zero else 0.0)


def _difference(stored: Any, now: Any, place: str, absolute: float) -> list[str]:
    numbers = isinstance(stored, int | float) and isinstance(now, int | float)
    same = math.isclose(stored, now, rel_tol=TOLERANCE, abs_tol=absolute) if numbers else stored == now
    return [] if same else [f"{place}: stored {stored!r}, now {now!r}"]


# What tests read


@dataclass(frozen=True)
class StoredStage:
    """Moments of one stage's errors, against the model of today."""

    name: str
    samples: int
    mean: float
    variance: float
    largest: float
    model_variance: float
    model_mean: float = 0.0

    @property
    def variance_ratio(self) -> float:
        """The mean square about the model's mean, over the model's variance."""
        return (self.variance + (self.mean - self.model_mean) ** 2) / self.model_variance

    @property
    def ratio(self) -> float:
        """The same of standard deviations."""
        return math.sqrt(self.variance_ratio)

    @property
    def shift(self) -> float:
        """How far the mean is off the model's, in standard deviations of the model."""
        return (self.mean - self.model_mean) / math.sqrt(self.model_variance)


@dataclass(frozen=True)
class Stored:
    """The stored numbers of a set, and its row."""

    params: ParameterSet
    facts: Facts

    @property
    def is_toy(self) -> bool:
        return self.params.name.startswith("toy")

    def stage(self, name: str) -> StoredStage:
        """A stage of a look-up or of encryption, against its model."""
        variance, mean = laboratory_script().model(self.params, name)
        return StoredStage(name, **self.facts["stages"][name], model_variance=variance, model_mean=mean)


def stored_set(name: str) -> Stored:
    records = _stored()
    if name not in records:
        raise LookupError(f"{FILE.name} has no numbers of {name}: run {COMMAND} {name}")
    return Stored(_engine.parameter_set(name), records[name]["facts"])


@cache
def _stored() -> dict[str, Any]:
    return load()
