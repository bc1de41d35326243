"""Searches the parameter table and writes fhe_core/src/core/tables/shipped.hpp.

    python fhe_core/tools/parameter_search.py           # print the header
    python fhe_core/tools/parameter_search.py --write   # replace it
    python fhe_core/tools/parameter_search.py --check   # exit 1 when it differs
    python fhe_core/tools/parameter_search.py --explain lut3   # the cheapest choices for one row
    python fhe_core/tools/parameter_search.py --docs    # the table of docs/reference/parameters.md

Deterministic. Security from security_curves.json, noise from fhe_core/noise.py, cost from operation counts weighted by kernel_costs.json.

Source: [BBB+23] the least cost under bounds on security and failure. Ours: a short list of shapes for which there are kernels, shared by sets.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import itertools
import json
import math
import re
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
HEADER = HERE.parent / "src" / "core" / "tables" / "shipped.hpp"
ROTATIONS_FILE = HEADER.parents[1] / "rotations.def"
LIMB_PRIMES = (132710401, 134176769)
RAISING_PRIME = 33538049
SIGMA_FLOOR = 3.19
SIGMA_LIMIT = 2000.0  # of the sampler (random.hpp)
GAUSSIAN_SECRET_SIGMA = 1.0  # kGaussianSecretSigma of rotation.hpp
TARGET_BITS = 132
NTRU_SIGMA = 1.0  # of the numerators of NTRU keys
HYPOTHETICAL, HYPOTHETICAL_MARGIN = "block_transform", 4  # of block_security.py
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
ESTIMATES = json.loads((HERE / "security_estimates.json").read_text())["estimates"]
COSTS = json.loads((HERE / "kernel_costs.json").read_text())


@dataclass(frozen=True)
class Rotation:
    """A line of rotations.def: what a step of the blind rotation reads."""

    name: str
    small_secret: str
    factors: str  # "accumulator", "products" or "selected"
    keys: tuple[tuple[int, ...], ...]  # none where they are selected
    digit_widths: tuple[int, ...] = ()  # of a word, where its digits select keys

    @property
    def key_bits(self) -> int:
        return 1 if self.digit_widths else len(self.keys[0])

    @property
    def key_count(self) -> int:
        """Counts the keys of a step."""
        return 2 ** self.digit_widths[0] - 1 if self.digit_widths else len(self.keys)

    @property
    def product_count(self) -> int:
        """External products of a step."""
        return 1 if self.digit_widths else len(self.keys)

    @property
    def digit_bits(self) -> int:
        return self.digit_widths[0] if self.digit_widths else 0

    @property
    def has_independent_bits(self) -> bool:
        if self.digit_widths:
            return True
        return len(self.keys) + 1 == {"binary": 2, "ternary": 3}[self.small_secret] ** self.key_bits

    @property
    def secret_variance(self) -> float:
        """Returns the variance of a coefficient of the small key: its own where keys are selected, else the values of a step, zero among them, are equally likely."""
        if self.digit_widths:
            return {"gaussian": GAUSSIAN_SECRET_SIGMA**2, "ternary": 2 / 3}[self.small_secret]
        values, total = len(self.keys) + 1, sum(key[0] for key in self.keys)
        return (values * sum(key[0] ** 2 for key in self.keys) - total**2) / values**2


def _read_rotations() -> dict[str, Rotation]:
    lines = re.findall(r"^ROTATION\((\w+), (\w+), (\w+), (.*)\)$", ROTATIONS_FILE.read_text(), flags=re.MULTILINE)
    rotations = {}
    for name, secret, factors, keys in lines:
        numbers = tuple(tuple(int(number) for number in key.split(",")) for key in re.findall(r"{([^}]*)}", keys))
        selected = factors == "selected"
        rotations[name] = Rotation(name, secret, factors, () if selected else numbers, numbers[0] if selected else ())
    return rotations


ROTATIONS = _read_rotations()


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
    extension_factor: int = 1
    raised: bool = False
    raised_sigma: float = 0.0
    rounded_products: bool = False
    lane_count: int = 1
    accumulator: str = "glwe"
    party_count: int = 1

    @property
    def party_dimension(self) -> int:
        """Returns the dimension of the small key of one party."""
        return self.lwe_dimension // self.party_count

    @property
    def table_size(self) -> int:
        return self.extension_factor * self.polynomial_size

    @property
    def rotation(self) -> Rotation:
        return ROTATIONS[self.cmux]

    @property
    def lwe_secret(self) -> str:
        return self.rotation.small_secret

    @property
    def small_key_variance(self) -> float:
        return self.rotation.secret_variance

    @property
    def structured_secret(self) -> bool:
        return not self.rotation.has_independent_bits or self.accumulator == "ntru"

    @property
    def lwe_problem(self) -> str:
        """The small key's distribution, as the stored curves and estimates name it."""
        return self.lwe_secret if self.rotation.has_independent_bits else self.cmux

    @property
    def modulus(self) -> int:
        return math.prod(LIMB_PRIMES[: self.limb_count])

    @property
    def key_modulus(self) -> int:
        return self.modulus * RAISING_PRIME if self.raised else self.modulus

    @property
    def key_limb_count(self) -> int:
        return self.limb_count + self.raised

    @property
    def key_sigma(self) -> float:
        return self.raised_sigma if self.raised or self.accumulator == "ntru" else self.glwe_sigma

    @property
    def large_dimension(self) -> int:
        return self.polynomial_size * self.glwe_dimension

    @property
    def keys_per_step(self) -> int:
        return self.rotation.key_count

    @property
    def digit_bits(self) -> int:
        return self.rotation.digit_bits

    @property
    def factors_on_products(self) -> bool:
        return self.rotation.factors == "products"

    @property
    def step_count(self) -> int:
        return self.lwe_dimension // self.rotation.key_bits * max(1, len(self.rotation.digit_widths))

    @property
    def row_count(self) -> int:
        bodies = self.lane_count if self.accumulator == "glwe" else 0
        return self.glwe_dimension * self.mask_gadget[1] + bodies * self.body_gadget[1]

    @property
    def component_count(self) -> int:
        return self.glwe_dimension + self.lane_count

    @property
    def accumulator_components(self) -> int:
        return self.glwe_dimension + (self.lane_count if self.accumulator == "glwe" else 0)

    @property
    def key_step_count(self) -> int:
        return self.step_count + (self.accumulator == "ntru")


# Security

# How far above the interpolated curve log2 sigma is put: the estimator's own steps are about 0.1 bit, 8 bits per unit of log2 sigma.
CURVE_MARGIN = 0.01


def _interpolate(xs: list[float], ys: list[float], x: float) -> float:
    i = min(max(next((j for j, edge in enumerate(xs) if edge >= x), len(xs)) - 1, 0), len(xs) - 2)
    return ys[i] + (ys[i + 1] - ys[i]) * (x - xs[i]) / (xs[i + 1] - xs[i])


def _at_target(log2_alpha: float, bits: float, dimension: int, target: int) -> float:
    """A point moved to exactly the target: an attack costs about 3.49 dimension / (c - log2 alpha) bits."""
    return log2_alpha + (target - bits) * 3.49 * dimension / target**2


def least_bits(estimate: dict[str, float | None]) -> float:
    """Returns the least bits of all attacks that succeed; four bits more of the hypothetical one on blocks (block_security.py)."""
    return min(cost + HYPOTHETICAL_MARGIN * (attack == HYPOTHETICAL) for attack, cost in estimate.items() if cost is not None)


def lwe_sigma(problem: str, n: int, w: int, bits: int) -> float:
    """Finds the smallest keyswitch sigma (units of 2^-w) of a small key of this distribution that has these bits."""
    kind = {"binary": CURVES["points"]["lwe"], "gaussian": CURVES["points"]["gaussian"]}
    points = kind.get(problem, CURVES["points"]["blocks"].get(problem))[str(bits)]
    columns = zip(points["dimension"], points["log2_alpha"], points["bits"], strict=True)
    moved = [_at_target(log2_alpha, point_bits, dimension, bits) for dimension, log2_alpha, point_bits in columns]
    return _confirmed(problem, n, 2**w, 2 ** (_interpolate(points["dimension"], moved, n) + CURVE_MARGIN + w), bits)


def ring_sigma(secret: str, dimension: int, modulus: int, bits: int) -> float | None:
    """The smallest ring sigma (units of 1/Q) that has these bits; None when no point says so."""
    for point in CURVES["points"]["ring"]:
        if (point["target"], point["secret"], point["dimension"], point["modulus"]) == (bits, secret, dimension, modulus):
            log2_alpha = _at_target(point["log2_alpha"], point["bits"], dimension, bits) + CURVE_MARGIN
            return _confirmed(secret, dimension, modulus, modulus * 2**log2_alpha, bits)
    estimate = ESTIMATES.get(estimate_key(secret, dimension, modulus, SIGMA_FLOOR))
    return SIGMA_FLOOR if estimate is not None and least_bits(estimate) >= bits else None


def _confirmed(secret: str, dimension: int, modulus: int, sigma: float, bits: int) -> float:
    """Sigma in hundredths, 1 % up for as long as the estimator, whose search is not monotone, says less than `bits`."""
    while True:
        rounded = max(SIGMA_FLOOR, math.ceil(100 * sigma) / 100)
        estimate = ESTIMATES.get(estimate_key(secret, dimension, modulus, rounded))
        if estimate is None or least_bits(estimate) >= bits:
            return rounded
        sigma = 1.01 * rounded


def estimate_key(secret: str, dimension: int, modulus: int, sigma: float) -> str:
    return f"{secret} {dimension} {modulus} {sigma!r}"


def row_instances(row: Row) -> tuple[str, ...]:
    """The LWE and the GLWE problems of a row, as keys of security_estimates.json: of ciphertexts, and of a bootstrap key that is raised."""
    lwe = estimate_key(row.lwe_problem, row.party_dimension, 2**row.keyswitch_modulus_log2, row.lwe_sigma)
    ciphertexts = estimate_key(row.glwe_secret, row.large_dimension, row.modulus, row.glwe_sigma)
    key = estimate_key(row.glwe_secret, row.large_dimension, row.key_modulus, row.key_sigma)
    if row.accumulator == "ntru":
        ntru = estimate_key(f"ntru_{row.glwe_secret}", row.polynomial_size, row.modulus, row.key_sigma)
        return lwe, ciphertexts, ntru
    return (lwe, ciphertexts, key) if row.raised else (lwe, ciphertexts)


def is_toy(row: Row) -> bool:
    return row.name.startswith("toy")


def row_security(row: Row) -> float:
    """Returns bits: the least of all attacks on both sides, from the stored output of the estimator; nan when it is missing."""
    estimates = [ESTIMATES.get(instance) for instance in row_instances(row)]
    return min(least_bits(estimate) for estimate in estimates if estimate is not None) if all(estimates) else math.nan


# Cost


def cost(row: Row) -> float:
    """Butterfly equivalents of one bootstrap (of all its lanes), keyswitch included: the mean of the devices of kernel_costs.json."""
    size, outputs, limbs = row.polynomial_size, row.accumulator_components, row.key_limb_count
    butterflies = limbs * size / 2 * math.log2(size)
    products = row.row_count * outputs * row.rotation.product_count * limbs * size
    words = outputs * limbs * size
    keyswitch = row.large_dimension * row.keyswitch_gadget[1] * row.lwe_dimension
    total = 0.0
    for device in (COSTS["cuda"], COSTS["cpu"]):
        step = row.row_count * butterflies * device["forward_butterfly"] + outputs * butterflies * device["inverse_butterfly"]
        if row.extension_factor > 1:  # digits with keys and with their sum; factors go to the keys, once, and Y to the digits
            step += products * (1 + 1 / row.keys_per_step) * device["multiply_accumulate"]
            step += (words + row.row_count * limbs * size) * device["reduction"]
            step = row.extension_factor * step + products * device["reduction_and_factor"]
        else:
            reduction = row.keys_per_step * device["reduction_and_factor"] if row.factors_on_products else device["reduction"]
            step += products * device["multiply_accumulate"] + words * reduction
        total += row.step_count * step + keyswitch * device["keyswitch_multiply"]
    return total / 2


def upload_bytes(row: Row) -> int:
    """Seeded evaluation keys: bodies of the bootstrap key and of the keyswitch key. Several parties' bootstrap key has masks too."""
    word = 4 if row.key_limb_count == 1 else 7
    if row.party_count > 1:
        word *= row.component_count
    bootstrap = row.key_step_count * row.keys_per_step * row.row_count * row.polynomial_size * word
    return row.lane_count * (bootstrap + row.large_dimension * row.keyswitch_gadget[1] * ((row.keyswitch_modulus_log2 + 7) // 8))


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
    extension_factor: int = 1
    raised: bool = False
    rounded_products: bool = False
    lane_count: int = 1
    accumulator: str = "glwe"


KEYSWITCH_GADGETS = tuple((2, levels) for levels in range(5, 12))
BINARY_KEYSWITCH = ((1, 20),)  # twice the digits of {2, 10} and half their noise, where that saves accumulators


@dataclass(frozen=True)
class Target:
    """One row to find. `limit`: log2 of the failure probability, or for approximate rows the standard deviation in torus units."""

    name: str
    kind: str
    message_bits: int
    limit: float
    weight_norm: float
    shapes: tuple[Shape, ...]
    bits: int = TARGET_BITS
    output_noise: float = math.inf  # the largest standard deviation of a look-up's output, torus units
    parties: int = 1  # whose small keys stand side by side, each with the bits
    keyswitches: tuple[Gadget, ...] = KEYSWITCH_GADGETS


# Each shape is a GPU kernel, so rows share them where that costs a few per cent.
ONE_LIMB = (
    Shape(512, 2, 1, (8, 2), (7, 2)),
    Shape(512, 2, 1, (6, 3), (7, 2)),
    Shape(512, 2, 1, (6, 3), (5, 3)),
    Shape(512, 2, 1, (5, 4), (5, 3)),
    Shape(1024, 1, 1, (5, 4), (5, 3)),
)
TWO_LIMBS = (
    Shape(1024, 2, 2, (24, 1), (24, 1)),
    Shape(2048, 1, 2, (24, 1), (24, 1)),
    Shape(4096, 1, 2, (24, 1), (24, 1)),
)
ALL_SHAPES = (*ONE_LIMB, *TWO_LIMBS)
# Blocks of six cost as much by count, within 2 %, of four and three more; on cards eight are faster, and one length is one set of kernels.
BLOCKS = ("block_8",)


def _in_blocks(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The same shapes with blocks of these lengths."""
    return tuple(replace(shape, cmux=cmux) for shape in shapes for cmux in BLOCKS)


# Of two limbs, with ciphertexts of one: no others want more than 27 bits for their keys.
RAISED = tuple(replace(shape, limb_count=1, raised=True) for shape in TWO_LIMBS)

# Several accumulators as one table. A body digit of 22 bits has less noise: of rounding, the body's share is one of a thousand.
EXTENDED = tuple(Shape(2048, 1, 2, (24, 1), (22, 1), extension_factor=factor) for factor in (2, 4, 8, 16, 32))
EXTENDED_BLOCKS = _in_blocks(EXTENDED[:4])
# Rounded products. Digits of 24 bits have more error of the transforms than of rounding, of 22 less; either takes a larger n.
ROUNDED = (Shape(2048, 1, 1, (23, 1), (20, 1), raised=True, rounded_products=True),)
# Two digits: outputs of low noise, of which many multiples fit into one look-up and many bits into one number.
TWO_DIGITS = tuple(Shape(2048, 1, 2, (base_log, 2), (base_log, 2)) for base_log in (15, 16, 17, 18))
# Many small digits: outputs so quiet that sums of hundreds keep 20 bits. As many of mask and body, as the rotation kernels take them.
MANY_DIGITS = tuple(Shape(2048, 1, 2, gadget, gadget) for gadget in ((7, 7), (6, 8), (5, 9), (5, 10)))
MANY_DIGITS_4096 = tuple(replace(shape, polynomial_size=4096) for shape in (*MANY_DIGITS, Shape(4096, 1, 2, (7, 6), (7, 6))))
# Two accumulators of N = 2048 cost 1.6 times as much as one of 4096 by count, four 2.6 times: `--explain fine5`.
MANY_DIGITS_EXTENDED = tuple(replace(shape, extension_factor=factor) for shape in MANY_DIGITS for factor in (2, 4))
S192_SHAPES = (
    Shape(512, 3, 1, (6, 3), (7, 2)),
    Shape(1024, 2, 1, (5, 4), (5, 3)),
)
SQRT2 = math.sqrt(2)
# Accumulators of one polynomial. N = 2048 alone: at N = 1024 a modulus of 27 bits is far beyond what NTRU bears.
NTRU = tuple(Shape(2048, 1, 1, gadget, gadget, accumulator="ntru") for gadget in ((9, 2), (10, 2), (8, 2), (7, 3), (6, 3), (6, 4), (5, 5), (4, 6), (3, 8)))


# A small key that need not be binary: digits of the mask select keys. Masks keep 18 bits: a whole rounding counts in every step.
SELECTED = tuple(Shape(512, 2, 1, mask, body, "select_2x5") for mask, body in (((9, 2), (7, 2)), ((9, 2), (8, 2))))


def _in_lanes(shapes: tuple[Shape, ...], lanes: int = 2) -> tuple[Shape, ...]:
    """The same shapes with several bodies under a mask."""
    return tuple(replace(shape, lane_count=lanes) for shape in shapes)


def _lut(p: int, suffix: str, limit: float, bits: int = TARGET_BITS, shapes: tuple[Shape, ...] = ALL_SHAPES) -> Target:
    return Target(f"lut{p}{suffix}", "exact", p, limit, 2.0 if p <= 3 else 4.0, shapes, bits)


TARGETS = (
    Target("gate_64", "gate", 0, -64, SQRT2, ONE_LIMB),
    Target("gate_128", "gate", 0, -128, SQRT2, ONE_LIMB),
    *(_lut(p, "_64", -64) for p in range(1, 6)),
    *(_lut(p, "", -128) for p in range(1, 6)),
    _lut(4, "_fft", -128, shapes=ROUNDED),
    Target("lut6_64", "exact", 6, -64, 4, EXTENDED),
    Target("lut7_64", "exact", 7, -64, 4, EXTENDED),
    Target("lut8_64", "exact", 8, -64, 2, EXTENDED),
    Target("lut6", "exact", 6, -128, 2, EXTENDED),
    Target("lut7", "exact", 7, -128, 4, EXTENDED),
    Target("lut8", "exact", 8, -128, 2, EXTENDED),
    Target("nn2", "approximate", 0, 0.01, 4, ALL_SHAPES),
    Target("nn1", "approximate", 0, 0.005, 4, ALL_SHAPES),
    Target("nn05", "approximate", 0, 0.0025, 4, ALL_SHAPES),
    Target("nn2_wide", "approximate", 0, 0.01, 256, TWO_LIMBS),
    Target("nn1_wide", "approximate", 0, 0.005, 128, TWO_LIMBS),
    Target("nn05_wide", "approximate", 0, 0.0025, 64, TWO_LIMBS),
    Target("gate_64_s192", "gate", 0, -64, SQRT2, S192_SHAPES, 192),
    Target("gate_128_s192", "gate", 0, -128, SQRT2, S192_SHAPES, 192),
    _lut(2, "_s192", -128, 192, S192_SHAPES),
    # Block-binary small keys: a structured secret, for who asks for it.
    Target("gate_64_block", "gate", 0, -64, SQRT2, _in_blocks(ONE_LIMB)),
    Target("gate_128_block", "gate", 0, -128, SQRT2, _in_blocks(ONE_LIMB)),
    *(_lut(p, "_block", -128, shapes=_in_blocks(ALL_SHAPES)) for p in range(1, 6)),
    Target("lut6_64_block", "exact", 6, -64, 4, EXTENDED_BLOCKS),
    Target("lut7_64_block", "exact", 7, -64, 4, EXTENDED_BLOCKS, keyswitches=BINARY_KEYSWITCH),
    Target("lut8_64_block", "exact", 8, -64, 1, EXTENDED_BLOCKS, keyswitches=BINARY_KEYSWITCH),
    Target("lut6_block", "exact", 6, -128, 4, EXTENDED_BLOCKS),
    Target("lut7_block", "exact", 7, -128, 4, EXTENDED_BLOCKS),
    Target("lut8_block", "exact", 8, -128, 2, EXTENDED_BLOCKS),
    Target("nn2_block", "approximate", 0, 0.01, 4, _in_blocks(ALL_SHAPES)),
    Target("nn1_block", "approximate", 0, 0.005, 4, _in_blocks(ALL_SHAPES)),
    # Outputs quieter than a binary ring key's leave room for larger weights, at the same cost.
    Target("nn05_block", "approximate", 0, 0.0025, 4, _in_blocks(ALL_SHAPES), output_noise=2**-15.5),
    # Raised bootstrap keys: half the ciphertext, for who names them.
    *(_lut(p, "_raised", -128, shapes=RAISED) for p in range(3, 6)),
    Target("nn05_raised", "approximate", 0, 0.0025, 4, RAISED),
    Target("nn2_wide_raised", "approximate", 0, 0.01, 256, RAISED),
    Target("nn1_wide_raised", "approximate", 0, 0.005, 128, RAISED),
    Target("nn05_wide_raised", "approximate", 0, 0.0025, 64, RAISED),
    # Two values under one mask: for batches of one client.
    Target("gate_64_cm2", "gate", 0, -64, SQRT2, _in_lanes(ONE_LIMB)),
    Target("gate_64_block_cm2", "gate", 0, -64, SQRT2, _in_lanes(_in_blocks(ONE_LIMB))),
    *(_lut(p, "_cm2", -128, shapes=_in_lanes(ONE_LIMB)) for p in (1, 2)),
    Target("nn2_cm2", "approximate", 0, 0.01, 4, _in_lanes(ONE_LIMB)),
    Target("nn2_block_cm2", "approximate", 0, 0.01, 4, _in_lanes(_in_blocks(ONE_LIMB))),
    # A Gaussian small key: for who names it, as its upload is large.
    Target("gate_ap", "gate", 0, -64, SQRT2, SELECTED),
    # NTRU accumulators: an assumption of their own, for who names them.
    Target("gate_ntru", "gate", 0, -64, SQRT2, NTRU),
    Target("lut4_ntru", "exact", 4, -128, 2, NTRU),
    # Integers of 16 bits and more in one ciphertext, for who names it. 2^-130: their floor and sign are several look-ups.
    Target("large16", "exact", 4, -130, 256, TWO_DIGITS, output_noise=2**-23.25),
    # Sums of 20 bits of look-ups' outputs under 8-bit weights, for who names it: half of 2^-21 is 13 deviations of a sum of norm 300.
    Target("fine4", "exact", 4, -130, 4096, MANY_DIGITS, output_noise=2**-34),
    # 2^-131: of n = 912, which has 2^-130.8, there is no stored estimate; n = 914 is that of lut5.
    Target("fine5", "exact", 5, -131, 4096, (*MANY_DIGITS_4096, *MANY_DIGITS_EXTENDED), output_noise=2**-34),
    # Keys of several parties, each of whose small keys has the bits; for who names them. Rows of such a bootstrap key are 70 to 90 times as noisy,
    # and what a decryption floods is an output's noise: digits and ring secret are those of quiet outputs.
    Target("lut3_2p", "exact", 3, -128, 16, TWO_DIGITS[1:2], output_noise=2**-17, parties=2),
    Target("lut3_3p", "exact", 3, -128, 16, TWO_DIGITS[1:2], output_noise=2**-16.25, parties=3),
)
KEYSWITCH_MODULI = (16, 24)  # whole bytes: two or three per word


def fits(row: Row, target: Target) -> bool:
    if row.lwe_sigma > SIGMA_LIMIT:
        return False
    if noise.SD_INFLATION * math.sqrt(noise.blind_rotation_variance(row)) > target.output_noise:
        return False
    if target.kind == "approximate":
        return noise.SD_INFLATION * math.sqrt(noise.lookup_variance(row)) + abs(noise.keyswitch_offset(row)) <= target.limit
    return noise.lookup_p_fail_log2(row) <= target.limit


cached_lwe_sigma = cache(lwe_sigma)


def estimated_dimensions(problem: str, modulus: int) -> set[int]:
    """Lists the dimensions of small keys of this distribution that have a stored estimate."""
    keys = (key.split() for key in ESTIMATES)
    return {int(dimension) for secret, dimension, key_modulus, _ in keys if (secret, int(key_modulus)) == (problem, modulus)}


def smallest_row(target: Target, shape: Shape, secret: str, w: int, keyswitch: Gadget) -> Row | None:
    """The row of least n for this shape, or None."""
    modulus, dimension = math.prod(LIMB_PRIMES[: shape.limb_count]), shape.polynomial_size * shape.glwe_dimension
    sigma = ring_sigma(secret, dimension, modulus, target.bits)
    raised_sigma = ring_sigma(secret, dimension, modulus * RAISING_PRIME, target.bits) if shape.raised else 0.0
    if shape.accumulator == "ntru":
        raised_sigma = NTRU_SIGMA if secret == "ternary" else None
    if sigma is None or raised_sigma is None:
        return None
    row = Row(
        target.name, target.kind, target.message_bits, shape.polynomial_size, shape.glwe_dimension, shape.limb_count,
        shape.mask_gadget, shape.body_gadget, shape.cmux, secret, sigma, 0, w, SIGMA_FLOOR, keyswitch, target.weight_norm, shape.extension_factor,
        shape.raised, raised_sigma, shape.rounded_products, shape.lane_count, shape.accumulator, target.parties,
    )  # fmt: skip

    def with_dimension(n: int) -> Row:
        return replace(row, lwe_dimension=target.parties * n, lwe_sigma=cached_lwe_sigma(row.lwe_problem, n, w, target.bits))

    if target.parties > 1:  # of a party's dimensions those that the estimator was asked for already
        estimated = (with_dimension(n) for n in sorted(estimated_dimensions(row.lwe_problem, 2**w)))
        return next((candidate for candidate in estimated if row_security(candidate) >= target.bits and fits(candidate, target)), None)
    bits = row.rotation.key_bits
    first, step = -(-560 // bits) * bits, 32 // bits * bits
    coarse = next((n for n in range(first, 1400, step) if fits(with_dimension(n), target)), None)
    if coarse is None:
        return None
    candidates = (with_dimension(n) for n in range(max(coarse - step, first), coarse + 1, bits))
    return next(candidate for candidate in candidates if fits(candidate, target))


def choices(target: Target) -> list[Row]:
    """Lists rows that reach the target: the cheapest first, after those within 1 % of it in order of upload."""
    options = itertools.product(target.shapes, ("binary", "ternary", "quinary"), KEYSWITCH_MODULI, target.keyswitches)
    candidates = [smallest_row(target, *option) for option in options if option[3][0] * option[3][1] <= option[2]]
    rows = [row for row in candidates if row is not None]
    least = min(map(cost, rows), default=0.0)
    return sorted(rows, key=lambda row: (cost(row) if cost(row) > 1.01 * least else 0.0, upload_bytes(row), cost(row), repr(row)))


TOYS = (
    # A two-bit look-up, two key bits per step.
    Row("toy", "exact", 2, 256, 1, 1, (7, 3), (7, 3), "binary_pair", "ternary", 3.19, 32, 24, 4.0, (2, 8), 4.0),
    # One key bit per step, binary ring secret, k = 2, different gadgets, a keyswitch that drops no bit (T = w).
    Row("toy_binary", "exact", 1, 256, 2, 1, (6, 3), (7, 2), "binary", "binary", 3.19, 24, 16, 3.19, (4, 4), 2.0),
    # Two keys per step, ternary small key.
    Row("toy_ternary", "exact", 2, 256, 1, 1, (8, 2), (6, 3), "ternary", "ternary", 3.19, 20, 20, 3.19, (3, 5), 2.0),
    # Two limbs, one digit of 24 bits.
    Row("toy_two_limb", "exact", 2, 256, 1, 2, (24, 1), (24, 1), "binary_pair", "ternary", 3.19, 32, 24, 4.0, (2, 9), 16.0),
    # Gates, quinary ring secret.
    Row("toy_gate", "gate", 0, 256, 2, 1, (8, 2), (6, 2), "binary_pair", "quinary", 3.19, 32, 16, 3.19, (2, 6), SQRT2),
    # Blocks of the small key with at most one 1: one limb, two limbs, gates.
    Row("toy_block", "exact", 2, 256, 1, 1, (7, 3), (7, 3), "block_4", "ternary", 3.19, 36, 24, 4.0, (2, 8), 4.0),
    Row("toy_block_two_limb", "exact", 2, 256, 1, 2, (24, 1), (24, 1), "block_8", "ternary", 3.19, 40, 24, 4.0, (2, 9), 16.0),
    Row("toy_block_gate", "gate", 0, 256, 2, 1, (8, 2), (6, 2), "block_3", "quinary", 3.19, 36, 16, 3.19, (2, 6), SQRT2),
    # Ciphertexts of one limb, a raised bootstrap key; with blocks; one key bit per step, several digits.
    Row("toy_raised", "exact", 2, 256, 1, 1, (24, 1), (24, 1), "binary_pair", "ternary", 3.19, 32, 24, 4.0, (2, 9), 16.0, 1, True, 4.0),
    Row("toy_raised_block", "exact", 2, 256, 1, 1, (24, 1), (24, 1), "block_6", "ternary", 3.19, 36, 24, 4.0, (2, 9), 16.0, 1, True, 4.0),
    Row("toy_raised_binary", "exact", 1, 256, 2, 1, (13, 2), (9, 2), "binary", "binary", 3.19, 24, 16, 3.19, (4, 4), 2.0, 1, True, 5.0),
    # The same with rounded products, which N = 2048 alone has.
    Row("toy_fft", "exact", 2, 2048, 1, 1, (23, 1), (20, 1), "binary_pair", "binary", 9.12, 16, 24, 4.0, (2, 8), 16.0, 1, True, 9.12, True),
    # Two limbs, two digits.
    Row("toy_large", "exact", 4, 2048, 1, 2, (16, 2), (16, 2), "binary_pair", "ternary", 15.08, 16, 24, 4.0, (2, 8), 256.0),
    # Two limbs, many digits.
    Row("toy_fine", "exact", 4, 2048, 1, 2, (5, 9), (5, 9), "binary_pair", "quinary", 8.39, 16, 24, 4.0, (2, 8), 4096.0),
    # Several accumulators as one table: pairs and k = 2; blocks, two limbs.
    Row("toy_extended", "exact", 2, 256, 2, 1, (8, 2), (7, 2), "binary_pair", "ternary", 3.19, 32, 24, 4.0, (2, 8), 4.0, 4),
    Row("toy_extended_two_limb", "exact", 2, 256, 1, 2, (24, 1), (22, 1), "block_8", "ternary", 3.19, 80, 24, 4.0, (2, 9), 4.0, 8),
    # Two lanes of a common mask: pairs; blocks, gates, k = 2.
    Row("toy_lanes", "exact", 2, 256, 1, 1, (7, 3), (7, 3), "binary_pair", "ternary", 3.19, 32, 24, 4.0, (2, 8), 4.0, lane_count=2),
    Row("toy_lanes_block", "gate", 0, 256, 2, 1, (8, 2), (6, 2), "block_3", "quinary", 3.19, 36, 16, 3.19, (2, 6), SQRT2, lane_count=2),
    # Keys selected by digits: three of 3 bits, a look-up; two of 5 bits, gates, k = 2.
    Row("toy_ap", "exact", 2, 256, 1, 1, (7, 3), (6, 3), "select_3x3", "ternary", 3.19, 20, 24, 4.0, (2, 8), 4.0),
    # An NTRU accumulator, with the digits of a gate and of a look-up.
    Row("toy_ntru", "gate", 0, 2048, 1, 1, (9, 2), (9, 2), "binary_pair", "ternary", 3.19, 16, 16, 3.19, (2, 6), SQRT2, raised_sigma=1.0, accumulator="ntru"),
    Row("toy_ntru_lut", "exact", 2, 2048, 1, 1, (4, 6), (4, 6), "binary_pair", "ternary", 3.19, 16, 24, 4.0, (2, 8), 2.0, raised_sigma=1.0, accumulator="ntru"),
    Row("toy_ap_gate", "gate", 0, 512, 2, 1, (9, 2), (7, 2), "select_2x5", "quinary", 3.19, 12, 16, 3.19, (2, 6), SQRT2),
    # Keys selected by two digits of 6 bits, of an exponent of 11 bits; two limbs, 12 bits; raised. Two limbs, three and four digits.
    Row("toy_ap_ternary", "exact", 2, 1024, 1, 1, (6, 4), (6, 4), "select_2x6", "ternary", 3.19, 8, 24, 4.0, (2, 8), 4.0),
    Row("toy_ap_two_limb", "exact", 2, 2048, 1, 2, (24, 2), (24, 2), "select_2x6", "ternary", 3.19, 4, 24, 4.0, (2, 8), 16.0),
    Row("toy_ap_raised", "exact", 2, 1024, 1, 1, (24, 1), (24, 1), "select_2x6", "ternary", 3.19, 8, 24, 4.0, (2, 8), 16.0, 1, True, 3.19),
    Row("toy_three_digits", "exact", 4, 2048, 1, 2, (17, 3), (17, 3), "ternary", "ternary", 3.19, 8, 24, 4.0, (2, 8), 16.0),
    Row("toy_four_digits", "exact", 4, 2048, 1, 2, (13, 4), (13, 4), "ternary", "ternary", 3.19, 8, 24, 4.0, (2, 8), 16.0),
    # Keys of two parties, two digits; of three, k = 2 and a binary ring secret, whose sum has a mean.
    Row("toy_2p", "exact", 2, 256, 1, 2, (16, 2), (16, 2), "binary_pair", "ternary", 3.19, 32, 24, 4.0, (2, 9), 16.0, party_count=2),
    Row("toy_3p", "exact", 2, 256, 2, 2, (24, 1), (24, 1), "binary_pair", "binary", 3.19, 36, 24, 4.0, (2, 9), 4.0, party_count=3),
)


# Output


def find_rows() -> list[Row]:
    rows = []
    for target in TARGETS:
        candidates = choices(target)
        if not candidates:
            raise SystemExit(f"no parameters reach '{target.name}'; add shapes or loosen the target")
        rows.append(candidates[0])
    return [*rows, *TOYS]


def _number(value: float) -> str:
    return repr(float(value))


def _stored_bits(row: Row) -> int:
    bits = row_security(row)
    if math.isnan(bits):
        raise SystemExit(f"'{row.name}' has no stored estimate: run fhe_core/tools/estimate_security.py first")
    return math.floor(bits)


def _stated_failure(row: Row) -> float:
    """log2 in tenths, rounded towards failure."""
    return 0.0 if row.kind == "approximate" else math.ceil(10 * noise.lookup_p_fail_log2(row)) / 10


def _raising(row: Row) -> str:
    return "rounded" if row.rounded_products else "raised" if row.raised else "none"


def row_cells(row: Row, bits: int) -> list[str]:
    p_fail = _stated_failure(row)
    options = [str(row.extension_factor), _raising(row), str(row.lane_count), row.accumulator]
    defaults = ["1", "none", "1", "glwe"]
    stated = max((i + 1 for i in range(4) if options[i] != defaults[i]), default=0)
    extension = "".join(f", {option}" for option in options[:stated])
    shape = (
        f"{{{row.polynomial_size}, {row.glwe_dimension}, {row.limb_count}, {{{row.mask_gadget[0]}, {row.mask_gadget[1]}}}, "
        f"{{{row.body_gadget[0]}, {row.body_gadget[1]}}}, {row.cmux}{extension}}}"
    )
    raised_sigma = f", {_number(row.raised_sigma)}" if row.raised_sigma else ""
    if row.party_count > 1:
        raised_sigma = f"{raised_sigma or ', 0.0'}, {row.party_count}"
    return [
        f'{{"{row.name}"', row.kind, str(row.message_bits), shape, f"s_{row.glwe_secret}", _number(row.glwe_sigma), str(row.lwe_dimension),
        str(row.keyswitch_modulus_log2), _number(row.lwe_sigma), f"{{{row.keyswitch_gadget[0]}, {row.keyswitch_gadget[1]}}}",
        _number(row.max_weight_norm), _number(p_fail), f"{math.sqrt(noise.lookup_variance(row)):.3e}", f"{bits}{raised_sigma}}},",
    ]  # fmt: skip


COLUMNS = ["name", "kind", "p", "{N, k, limbs, mask, body, cmux, nu, raising, lanes, accumulator}", "ring secret", "sigma", "n", "w", "sigma", "digits", "weights", "p_fail", "noise", "bits, key sigma, parties"]


def table_text(rows: list[list[str]]) -> str:
    """The lines of a table of parameter sets, below a comment that names its columns."""
    cells = [["// " + COLUMNS[0], *COLUMNS[1:]], *rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    lines = []
    for number, line in enumerate(cells):
        parts = [cell + ("," if number and i < len(line) - 1 else "") for i, cell in enumerate(line)]
        lines.append("    " + " ".join(part.ljust(width + 1) for part, width in zip(parts, widths, strict=True)).rstrip())
    return "\n".join(lines)


def header(rows: list[Row]) -> str:
    table = table_text([row_cells(row, 0 if is_toy(row) else _stored_bits(row)) for row in rows])
    estimator = CURVES["estimator"]
    return f"""\
// The shipped parameter sets, one row each. Written by fhe_core/tools/parameter_search.py: change that, not this.
//
// Security: {estimator["name"]} {estimator["commit"]} ({estimator["commit_date"]}), cost model {estimator["cost_model"]}, {estimator["samples"]} samples, the least of primal
// usvp, primal bdd and dual hybrid, of the LWE and of the GLWE side; from the curves in fhe_core/tools/security_curves.json.
// Of block-binary keys the least of the attacks in block_security.py and meet_in_the_middle.py as well.
// Noise and failure probability: fhe_core/noise.py, p_fail with the standard deviation inflated by {round(100 * (noise.SD_INFLATION - 1))} %.
// Units: gadgets {{base_log, level_count}}; ring sigma 1/Q, of raised keys 1/(QP), of NTRU keys 1/Q; keyswitch sigma 2^-w;
// weights: largest L2 norm of integer weights on fresh outputs; p_fail: log2, 0 for approximate sets; noise: standard deviation
// at a look-up at that norm, fraction of the torus.
// toy*: insecure, for tests.
#pragma once

#include <algorithm>
#include <array>

#include "core/parameters.hpp"

namespace fhe_core {{

namespace parameter_table {{

using enum Accumulator;
using enum CmuxKind;
using enum Raising;
using enum TableKind;
inline constexpr SecretKind s_binary = SecretKind::binary, s_ternary = SecretKind::ternary, s_quinary = SecretKind::quinary;

// clang-format off
inline constexpr std::array kRows = std::to_array<ParameterSet>({{
{table}
}});
// clang-format on

static_assert(std::ranges::all_of(kRows, &ParameterSet::has_whole_steps), "n is a multiple of the key bits of a step");
static_assert(std::ranges::all_of(kRows, &ParameterSet::has_whole_accumulator), "what back ends turn of an NTRU accumulator");
static_assert(std::ranges::all_of(kRows, &ParameterSet::has_whole_digits), "digits that select keys are all those of an exponent");
static_assert(std::ranges::all_of(kRows, &ParameterSet::has_whole_parties), "a step's bits are those of one party");
static_assert(std::ranges::none_of(kRows, [](const ParameterSet& p) {{ return p.is_raised() && p.extension_factor() > 1; }}),
              "no back end rotates several accumulators with a raised key");
static_assert(std::ranges::none_of(kRows,
                                   [](const ParameterSet& p) {{
                                       return p.lane_count() > 1 && (p.key_limbs().count > 1 || p.extension_factor() > 1);
                                   }}),
              "lanes are tested with one limb and one accumulator");

}}  // namespace parameter_table

inline constexpr auto& kParameterSets = parameter_table::kRows;

}}  // namespace fhe_core
"""


def documentation(rows: list[Row]) -> str:
    """The table of docs/reference/parameters.md."""
    lines = ["| set | shape | mask / body | ring secret | n | weights | p_fail | noise, % of the half torus | bits | upload | cost |", "|" + "---|" * 11]
    unit = cost(next(row for row in rows if row.name == "gate_64"))
    for row in rows:
        if is_toy(row):
            continue
        p_fail = "" if row.kind == "approximate" else f"2^{_stated_failure(row):.1f}"
        (a, b), (c, d) = row.mask_gadget, row.body_gadget
        extended = f" nu={row.extension_factor}" if row.extension_factor > 1 else f" r={row.lane_count}" if row.lane_count > 1 else ""
        small = f"{row.party_count} x {row.party_dimension}" if row.party_count > 1 else str(row.lwe_dimension)
        lines.append(
            f"| `{row.name}` | N={row.polynomial_size} k={row.glwe_dimension}{' two limbs' if row.limb_count == 2 else ' rounded' if row.rounded_products else ' raised' if row.raised else ''}{extended} | {b}x2^{a} / {d}x2^{c} | "
            f"{row.glwe_secret} | {small} | {row.max_weight_norm:.4g} | {p_fail} | {200 * math.sqrt(noise.lookup_variance(row)):.2f} | "
            f"{_stored_bits(row)} | {upload_bytes(row) / 2**20:.1f} MiB | {cost(row) / unit:.2f} |"
        )
    return "\n".join(lines) + "\n"


def explain(name: str) -> None:
    target = next(target for target in TARGETS if target.name == name)
    rows = choices(target)
    seen: set[object] = set()
    for row in rows:
        key = (row.polynomial_size, row.glwe_dimension, row.limb_count, row.mask_gadget, row.body_gadget, row.cmux, row.extension_factor, row.raised)
        if key in seen:
            continue
        seen.add(key)
        sds = [math.sqrt(v) for v in (noise.blind_rotation_variance(row), noise.keyswitch_variance(row), noise.modulus_switch_variance(row))]
        print(
            f"{cost(row) / 1e6:7.2f} M  N={row.polynomial_size} k={row.glwe_dimension} limbs={row.limb_count} nu={row.extension_factor} {row.mask_gadget}/{row.body_gadget} "
            f"{row.cmux} {row.glwe_secret} {row.glwe_sigma} n={row.lwe_dimension} w={row.keyswitch_modulus_log2} {row.lwe_sigma} "
            f"{row.keyswitch_gadget} pbs {sds[0]:.2e} ks {sds[1]:.2e} ms {sds[2]:.2e} total {math.sqrt(noise.lookup_variance(row)):.3e} "
            f"p_fail {noise.lookup_p_fail_log2(row):.1f} bits {row_security(row):.1f} upload {upload_bytes(row) / 2**20:.1f} MiB"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true", help="replace the header")
    mode.add_argument("--check", action="store_true", help="exit 1 when the header differs")
    mode.add_argument("--explain", metavar="NAME", help="the cheapest row per shape for one target")
    mode.add_argument("--docs", action="store_true", help="print the table of docs/reference/parameters.md")
    arguments = parser.parse_args()
    if arguments.docs:
        print(documentation(find_rows()), end="")
        return 0
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
