"""Searches the parameter table and writes fhe_core/include/fhe_core/parameter_sets.hpp.

    python fhe_core/tools/parameter_search.py           # print the header
    python fhe_core/tools/parameter_search.py --write   # replace it
    python fhe_core/tools/parameter_search.py --check   # exit 1 when it differs
    python fhe_core/tools/parameter_search.py --explain lut3   # the cheapest choices for one row

Deterministic. Security from security_curves.json, noise from fhe_core/noise.py, cost from operation counts weighted by kernel_costs.json.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import itertools
import json
import math
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
HEADER = HERE.parent / "include" / "fhe_core" / "parameter_sets.hpp"
LIMB_PRIMES = (132710401, 134176769)
SIGMA_FLOOR = 3.19
TARGET_BITS = 132.0
Gadget = tuple[int, int]  # base_log, level_count


def _load_noise() -> ModuleType:
    """noise.py from this checkout, whether or not cloakwork is installed."""
    spec = importlib.util.spec_from_file_location("cloakwork_noise_model", HERE.parent / "noise.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


noise = _load_noise()
CURVES = json.loads((HERE / "security_curves.json").read_text())
COSTS = json.loads((HERE / "kernel_costs.json").read_text())


@dataclass(frozen=True)
class Row:
    """One row of the table, with the field names of parameters.hpp."""

    name: str
    kind: str
    message_bits: int
    polynomial_size: int
    glwe_dimension: int
    limb_count: int
    mask_gadget: Gadget
    body_gadget: Gadget
    cmux: str
    glwe_secret: str
    glwe_sigma: float
    lwe_dimension: int
    keyswitch_modulus_log2: int
    lwe_sigma: float
    keyswitch_gadget: Gadget
    max_weight_norm: float

    @property
    def lwe_secret(self) -> str:
        return "ternary" if self.cmux == "ternary" else "binary"

    @property
    def modulus(self) -> int:
        return math.prod(LIMB_PRIMES[: self.limb_count])

    @property
    def large_dimension(self) -> int:
        return self.polynomial_size * self.glwe_dimension

    @property
    def keys_per_step(self) -> int:
        return {"binary": 1, "ternary": 2, "binary_pair": 3}[self.cmux]

    @property
    def step_count(self) -> int:
        return self.lwe_dimension // 2 if self.cmux == "binary_pair" else self.lwe_dimension

    @property
    def row_count(self) -> int:
        return self.glwe_dimension * self.mask_gadget[1] + self.body_gadget[1]


# Security


def _fit(table: dict[str, list[float]], secret: str, dimension: float) -> float:
    slope, constant = table[secret]
    return slope * dimension + constant


def _interpolate(xs: list[float], ys: list[float], x: float) -> float:
    i = min(max(next((j for j, edge in enumerate(xs) if edge >= x), len(xs)) - 1, 0), len(xs) - 2)
    return ys[i] + (ys[i + 1] - ys[i]) * (x - xs[i]) / (xs[i + 1] - xs[i])


def curve_128(side: str, secret: str, dimension: float) -> float:
    """log2(sigma/q) of 128 bits: the larger of the fit and the estimated points."""
    table = CURVES[side]["128"]
    if side == "lwe":
        points = table[secret]
    else:
        points = [math.log2(SIGMA_FLOOR) - modulus for modulus in table["log2_modulus_at_sigma_floor"][secret]]
    return max(_fit(table["fit"], secret, dimension), _interpolate(table["dimension"], points, dimension))


def curve_192(secret: str, dimension: float) -> float:
    """log2(sigma/q) of 192 bits: the LWE fit, for rings too (conservative), plus its residual."""
    table = CURVES["lwe"]["192"]
    return _fit(table["fit"], secret, dimension) + table["fit_residual"]


def _hyperbola(side: str, secret: str, dimension: float) -> tuple[float, float]:
    """bits = a / (c - log2(sigma/q)) through the 128-bit and the 192-bit curve: an attack's cost goes as 1 / log(q/sigma)."""
    at_128, at_192 = curve_128(side, secret, dimension), curve_192(secret, dimension)
    c = (192 * at_192 - 128 * at_128) / 64
    return 128 * (c - at_128), c


def security_bits(side: str, secret: str, dimension: float, log2_sigma_over_q: float) -> float:
    a, c = _hyperbola(side, secret, dimension)
    return a / (c - log2_sigma_over_q)


def smallest_sigma(side: str, secret: str, dimension: int, modulus: float, bits: float) -> float:
    """The smallest sigma (units of 1/modulus, hundredths, at least the floor) that has these bits."""
    a, c = _hyperbola(side, secret, dimension)
    return max(SIGMA_FLOOR, math.ceil(100 * modulus * 2 ** (c - a / bits)) / 100)


def row_security(row: Row) -> tuple[float, float]:
    """Bits of the LWE and of the GLWE side."""
    lwe = security_bits("lwe", row.lwe_secret, row.lwe_dimension, math.log2(row.lwe_sigma) - row.keyswitch_modulus_log2)
    ring = security_bits("ring", row.glwe_secret, row.large_dimension, math.log2(row.glwe_sigma / row.modulus))
    return lwe, ring


# Cost


def cost(row: Row) -> float:
    """Butterfly equivalents of one bootstrap, keyswitch included."""
    size, outputs, limbs = row.polynomial_size, row.glwe_dimension + 1, row.limb_count
    transforms = (row.row_count + outputs) * limbs * size / 2 * math.log2(size)
    products = row.row_count * outputs * row.keys_per_step * limbs * size
    reductions = outputs * limbs * size * (COSTS["reduction"] if row.cmux == "binary" else row.keys_per_step * COSTS["reduction_and_factor"])
    step = COSTS["butterfly"] * transforms + COSTS["multiply_accumulate"] * products + reductions
    keyswitch_weight = COSTS["keyswitch_multiply_16" if row.keyswitch_modulus_log2 <= 16 else "keyswitch_multiply_32"]
    keyswitch = row.large_dimension * row.keyswitch_gadget[1] * row.lwe_dimension * keyswitch_weight
    return row.step_count * step + keyswitch


def upload_bytes(row: Row) -> int:
    """Seeded evaluation keys: bodies of the bootstrap key and of the keyswitch key."""
    word = 4 if row.limb_count == 1 else 7
    bootstrap = row.step_count * row.keys_per_step * row.row_count * row.polynomial_size * word
    return bootstrap + row.large_dimension * row.keyswitch_gadget[1] * ((row.keyswitch_modulus_log2 + 7) // 8)


# Search


@dataclass(frozen=True)
class Shape:
    """What selects a kernel."""

    polynomial_size: int
    glwe_dimension: int
    limb_count: int
    mask_gadget: Gadget
    body_gadget: Gadget
    cmux: str = "binary_pair"


@dataclass(frozen=True)
class Target:
    """One row to find. `limit`: log2 of the failure probability, or for approximate rows the standard deviation in torus units."""

    name: str
    kind: str
    message_bits: int
    limit: float
    weight_norm: float
    shapes: tuple[Shape, ...]
    bits: float = TARGET_BITS


GATE_SHAPES = (
    Shape(512, 2, 1, (8, 2), (8, 2)),
    Shape(512, 2, 1, (6, 3), (7, 2)),
    Shape(512, 2, 1, (6, 3), (6, 3)),
)
LUT_SHAPES = (
    *GATE_SHAPES,
    Shape(1024, 1, 1, (5, 4), (4, 4)),
    Shape(1024, 1, 1, (5, 4), (5, 4)),
    Shape(1024, 2, 2, (24, 1), (24, 1)),
    Shape(2048, 1, 2, (24, 1), (24, 1)),
    Shape(4096, 1, 2, (24, 1), (24, 1)),
)
WIDE_SHAPES = (
    Shape(1024, 2, 2, (24, 1), (24, 1)),
    Shape(2048, 1, 2, (24, 1), (24, 1)),
)
S192_SHAPES = (
    Shape(512, 3, 1, (8, 2), (8, 2)),
    Shape(512, 3, 1, (6, 3), (6, 3)),
    Shape(1024, 2, 1, (6, 3), (6, 3)),
    Shape(1024, 2, 1, (5, 4), (5, 4)),
)
SQRT3 = math.sqrt(3)


def _lut(bits: int, suffix: str, limit: float, security: float = TARGET_BITS, shapes: tuple[Shape, ...] = LUT_SHAPES) -> Target:
    return Target(f"lut{bits}{suffix}", "exact", bits, limit, 2.0 if bits <= 3 else 4.0, shapes, security)


TARGETS = (
    Target("gate_64", "gate", 0, -64, SQRT3, GATE_SHAPES),
    Target("gate_128", "gate", 0, -128, SQRT3, GATE_SHAPES),
    *(_lut(p, "_64", -64) for p in range(1, 6)),
    *(_lut(p, "", -128) for p in range(1, 6)),
    Target("nn2", "approximate", 0, 0.01, 4, LUT_SHAPES),
    Target("nn1", "approximate", 0, 0.005, 4, LUT_SHAPES),
    Target("nn05", "approximate", 0, 0.0025, 4, LUT_SHAPES),
    Target("nn2_wide", "approximate", 0, 0.01, 64, WIDE_SHAPES),
    Target("nn1_wide", "approximate", 0, 0.005, 64, WIDE_SHAPES),
    Target("nn05_wide", "approximate", 0, 0.0025, 64, WIDE_SHAPES),
    Target("gate_64_s192", "gate", 0, -64, SQRT3, S192_SHAPES, 192.0),
    Target("gate_128_s192", "gate", 0, -128, SQRT3, S192_SHAPES, 192.0),
    _lut(2, "_s192", -128, 192.0, S192_SHAPES),
)
KEYSWITCH_GADGETS = tuple((2, levels) for levels in range(5, 12))
KEYSWITCH_MODULI = (16, 24)  # whole bytes: two or three per word


def fits(row: Row, target: Target) -> bool:
    if target.kind == "approximate":
        return noise.SD_INFLATION * math.sqrt(noise.lookup_variance(row)) + abs(noise.keyswitch_offset(row)) <= target.limit
    return noise.lookup_failure_log2(row) <= target.limit


@cache
def _lwe_sigma(n: int, w: int, bits: float, secret: str) -> float:
    return smallest_sigma("lwe", secret, n, 2.0**w, bits)


def smallest_row(target: Target, shape: Shape, secret: str, w: int, keyswitch: Gadget) -> Row | None:
    """The row of least n for this shape, or None."""
    sigma = smallest_sigma("ring", secret, shape.polynomial_size * shape.glwe_dimension, math.prod(LIMB_PRIMES[: shape.limb_count]), target.bits)
    if sigma > 2000:
        return None
    row = Row(
        target.name, target.kind, target.message_bits, shape.polynomial_size, shape.glwe_dimension, shape.limb_count,
        shape.mask_gadget, shape.body_gadget, shape.cmux, secret, sigma, 0, w, SIGMA_FLOOR, keyswitch, target.weight_norm,
    )  # fmt: skip

    def with_dimension(n: int) -> Row:
        return replace(row, lwe_dimension=n, lwe_sigma=_lwe_sigma(n, w, target.bits, row.lwe_secret))

    step = 32
    coarse = next((n for n in range(560, 1400, step) if fits(with_dimension(n), target)), None)
    if coarse is None:
        return None
    candidates = (with_dimension(n) for n in range(max(coarse - step, 560), coarse + 1, 2))
    return next(candidate for candidate in candidates if fits(candidate, target))


def choices(target: Target) -> list[Row]:
    """Every row that reaches the target, cheapest first."""
    options = itertools.product(target.shapes, ("binary", "ternary"), KEYSWITCH_MODULI, KEYSWITCH_GADGETS)
    rows = [smallest_row(target, *option) for option in options if option[3][0] * option[3][1] <= option[2]]
    return sorted((row for row in rows if row is not None), key=lambda row: (cost(row), repr(row)))


TOYS = (
    # A two-bit look-up, two key bits per step.
    Row("toy", "exact", 2, 256, 1, 1, (7, 3), (7, 3), "binary_pair", "ternary", 3.19, 32, 24, 4.0, (2, 8), 4.0),
    # One key bit per step, binary ring secret, k = 2, different gadgets, a keyswitch that drops no bit (T = w).
    Row("toy_binary", "exact", 1, 256, 2, 1, (6, 3), (7, 2), "binary", "binary", 3.19, 24, 16, 3.19, (4, 4), 2.0),
    # Two keys per step, ternary small key.
    Row("toy_ternary", "exact", 2, 256, 1, 1, (8, 2), (6, 3), "ternary", "ternary", 3.19, 20, 20, 3.19, (3, 5), 2.0),
    # Two limbs, one digit of 24 bits.
    Row("toy_two_limb", "exact", 2, 256, 1, 2, (24, 1), (24, 1), "binary_pair", "ternary", 3.19, 32, 24, 4.0, (2, 9), 16.0),
    Row("toy_gate", "gate", 0, 256, 2, 1, (8, 2), (8, 2), "binary_pair", "ternary", 3.19, 32, 16, 3.19, (2, 6), SQRT3),
)


# Output


def find_rows() -> list[Row]:
    rows = []
    for target in TARGETS:
        found = choices(target)
        if not found:
            raise SystemExit(f"no parameters reach '{target.name}'; add shapes or loosen the target")
        rows.append(found[0])
    return [*rows, *TOYS]


def _number(value: float) -> str:
    return repr(float(value))


def _cells(row: Row) -> list[str]:
    bits = 0 if row.name.startswith("toy") else math.floor(min(row_security(row)) + 1e-9)
    p_fail = 0.0 if row.kind == "approximate" else math.ceil(10 * noise.lookup_failure_log2(row)) / 10
    shape = (
        f"{{{row.polynomial_size}, {row.glwe_dimension}, {row.limb_count}, {{{row.mask_gadget[0]}, {row.mask_gadget[1]}}}, "
        f"{{{row.body_gadget[0]}, {row.body_gadget[1]}}}, {row.cmux}}}"
    )
    return [
        f'{{"{row.name}"', row.kind, str(row.message_bits), shape, f"s_{row.glwe_secret}", _number(row.glwe_sigma), str(row.lwe_dimension),
        str(row.keyswitch_modulus_log2), _number(row.lwe_sigma), f"{{{row.keyswitch_gadget[0]}, {row.keyswitch_gadget[1]}}}",
        _number(row.max_weight_norm), _number(p_fail), f"{math.sqrt(noise.lookup_variance(row)):.3e}", f"{bits}}},",
    ]  # fmt: skip


COLUMNS = ["name", "kind", "p", "{N, k, limbs, mask, body, cmux}", "ring secret", "sigma", "n", "w", "sigma", "digits", "weights", "p_fail", "noise", "bits"]


def header(rows: list[Row]) -> str:
    cells = [["// " + COLUMNS[0], *COLUMNS[1:]], *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    lines = []
    for number, line in enumerate(cells):
        parts = [cell + ("," if number and i < len(line) - 1 else "") for i, cell in enumerate(line)]
        lines.append("    " + " ".join(part.ljust(width + 1) for part, width in zip(parts, widths, strict=True)).rstrip())
    estimator = CURVES["estimator"]
    return f"""\
// The shipped parameter sets, one row each. Written by fhe_core/tools/parameter_search.py: change that, not this.
//
// Security: {estimator["name"]} {estimator["commit"]} ({estimator["commit_date"]}), cost model {estimator["cost_model"]}, {estimator["samples"]} samples, the least of primal
// usvp, primal bdd and dual hybrid, of the LWE and of the GLWE side; from the curves in fhe_core/tools/security_curves.json.
// Noise and failure probability: fhe_core/noise.py, p_fail with the standard deviation inflated by {round(100 * (noise.SD_INFLATION - 1))} %.
// Units: gadgets {{base_log, level_count}}; ring sigma 1/Q; keyswitch sigma 2^-w; weights: largest L2 norm of integer weights on fresh
// outputs; p_fail: log2, 0 for approximate sets; noise: standard deviation at a look-up at that norm, fraction of the torus.
// toy*: insecure, for tests.
#pragma once

#include <array>

#include "fhe_core/parameters.hpp"

namespace fhe_core {{

namespace parameter_table {{

using enum CmuxKind;
using enum TableKind;
inline constexpr SecretKind s_binary = SecretKind::binary, s_ternary = SecretKind::ternary;

// clang-format off
inline constexpr std::array kRows = std::to_array<ParameterSet>({{
{chr(10).join(lines)}
}});
// clang-format on

}}  // namespace parameter_table

inline constexpr auto& kParameterSets = parameter_table::kRows;

}}  // namespace fhe_core
"""


def explain(name: str) -> None:
    target = next(target for target in TARGETS if target.name == name)
    rows = choices(target)
    seen: set[object] = set()
    for row in rows:
        key = (row.polynomial_size, row.glwe_dimension, row.limb_count, row.mask_gadget, row.body_gadget, row.cmux)
        if key in seen:
            continue
        seen.add(key)
        sds = [math.sqrt(v) for v in (noise.blind_rotation_variance(row), noise.keyswitch_variance(row), noise.modulus_switch_variance(row))]
        print(
            f"{cost(row) / 1e6:7.2f} M  N={row.polynomial_size} k={row.glwe_dimension} limbs={row.limb_count} {row.mask_gadget}/{row.body_gadget} "
            f"{row.cmux} {row.glwe_secret} {row.glwe_sigma} n={row.lwe_dimension} w={row.keyswitch_modulus_log2} {row.lwe_sigma} "
            f"{row.keyswitch_gadget} pbs {sds[0]:.2e} ks {sds[1]:.2e} ms {sds[2]:.2e} total {math.sqrt(noise.lookup_variance(row)):.3e} "
            f"p_fail {noise.lookup_failure_log2(row):.1f} bits {min(row_security(row)):.1f} upload {upload_bytes(row) / 2**20:.1f} MiB"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true", help="replace the header")
    mode.add_argument("--check", action="store_true", help="exit 1 when the header differs")
    mode.add_argument("--explain", metavar="NAME", help="the cheapest row per shape for one target")
    arguments = parser.parse_args()
    if arguments.explain:
        explain(arguments.explain)
        return 0
    text = header(find_rows())
    if arguments.write:
        HEADER.write_text(text)
    elif arguments.check:
        current = HEADER.read_text()
        sys.stdout.writelines(difflib.unified_diff(current.splitlines(True), text.splitlines(True), str(HEADER), "regenerated"))
        return int(current != text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
