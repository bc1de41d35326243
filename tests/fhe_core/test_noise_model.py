"""The analytical noise model against the candidates of an independent model, brute force, and limits."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import pytest

from cloakwork.fhe_core import noise

Q27, Q27_SECOND = 134176769, 134111233
RAISING = 33538049


@dataclass(frozen=True)
class Row:
    """The fields of `noise.NoiseParameters`, with the modulus free."""

    lwe_dimension: int
    lwe_sigma: float
    keyswitch_modulus_log2: int
    polynomial_size: int
    glwe_dimension: int
    glwe_secret: str
    glwe_sigma: float
    mask_gadget: tuple[int, int]
    body_gadget: tuple[int, int]
    keyswitch_gadget: tuple[int, int]
    max_weight_norm: float
    limb_count: int = 1
    rotation: str = "binary"
    kind: str = "gate"
    message_bits: int = 0
    extension_factor: int = 1
    raised: bool = False
    raised_sigma: float = 0.0
    rounded_products: bool = False
    lane_count: int = 1
    party_count: int = 1
    accumulator: str = "glwe"

    @property
    def table_size(self) -> int:
        return self.extension_factor * self.polynomial_size

    @property
    def modulus(self) -> int:
        return Q27 if self.limb_count == 1 else Q27 * Q27_SECOND

    @property
    def key_modulus(self) -> int:
        return self.modulus * RAISING if self.raised else self.modulus

    @property
    def key_sigma(self) -> float:
        return self.raised_sigma if self.raised else self.glwe_sigma

    @property
    def key_bits(self) -> int:
        return {"binary_pair": 2, "block_3": 3, "block_4": 4, "block_6": 6, "block_8": 8}.get(self.rotation, 1)

    @property
    def small_key_variance(self) -> float:
        if self.rotation.startswith("block"):
            return self.key_bits / (self.key_bits + 1) ** 2
        return {"ternary": 2 / 3, "select_2x5": 1.0, "select_3x3": 1.0}.get(self.rotation, 1 / 4)

    @property
    def keys_per_step(self) -> int:
        return {"binary": 1, "ternary": 2, "binary_pair": 3}.get(self.rotation, self.key_bits)

    @property
    def factors_on_products(self) -> bool:
        return self.rotation != "binary" and not self.digit_bits

    @property
    def digit_bits(self) -> int:
        return {"select_2x5": 5, "select_3x3": 3}.get(self.rotation, 0)

    @property
    def large_dimension(self) -> int:
        return self.polynomial_size * self.glwe_dimension

    @property
    def step_count(self) -> int:
        digits = {"select_2x5": 2, "select_3x3": 3}.get(self.rotation, 1)
        return self.lwe_dimension // self.key_bits * digits


SQRT2 = math.sqrt(2)
# name: row, and the standard deviations of blind rotation, keyswitch, modulus switch, total (the project's survey of 2026-11-21).
CANDIDATES = {
    "G64-1024": (Row(608, 4.01, 15, 1024, 1, "ternary", 4.12, (8, 2), (8, 2), (2, 6), SQRT2), (4.11e-3, 1.19e-2, 1.74e-3, 1.33e-2)),
    "G64-512": (Row(610, 3.87, 15, 512, 2, "ternary", 4.12, (8, 2), (8, 2), (2, 6), SQRT2), (3.70e-3, 1.15e-2, 3.49e-3, 1.31e-2)),
    "G64-512a": (Row(648, 3.98, 16, 512, 2, "ternary", 4.12, (8, 2), (10, 1), (2, 6), SQRT2), (8.01e-3, 6.11e-3, 3.60e-3, 1.34e-2)),
    "G64-256": (Row(618, 3.37, 15, 256, 4, "ternary", 4.12, (8, 2), (8, 2), (2, 6), SQRT2), (3.50e-3, 1.00e-2, 7.03e-3, 1.32e-2)),
    "G64-1024T": (
        Row(594, 4.54, 16, 1024, 1, "ternary", 4.12, (8, 2), (8, 2), (2, 6), SQRT2, rotation="ternary"),
        (7.79e-3, 6.90e-3, 2.81e-3, 1.33e-2),
    ),
    "L2-512": (Row(682, 4.35, 17, 512, 2, "ternary", 4.12, (6, 3), (5, 3), (2, 6), 4), (1.03e-3, 3.68e-3, 3.69e-3, 6.65e-3)),
    "L3-1024": (Row(732, 3.56, 18, 1024, 1, "ternary", 4.12, (5, 4), (4, 4), (2, 7), 4), (5.73e-4, 1.48e-3, 1.91e-3, 3.33e-3)),
    "NN2-512": (Row(636, 4.91, 16, 512, 2, "ternary", 4.12, (6, 3), (7, 2), (2, 6), 4), (1.35e-3, 7.42e-3, 3.57e-3, 9.85e-3)),
    "L4-2048R": (
        Row(766, 3.88, 19, 2048, 1, "binary", 12.59, (25, 1), (22, 1), (2, 7), 64, limb_count=2),
        (1.02e-5, 1.16e-3, 9.78e-4, 1.65e-3),
    ),
    "L4-2048R128": (
        Row(804, 3.94, 20, 2048, 1, "binary", 12.59, (24, 1), (19, 1), (2, 8), 4, limb_count=2),
        (1.62e-5, 5.97e-4, 1.00e-3, 1.17e-3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CANDIDATES)
def test_candidates(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, (pbs, ks, ms, total) = CANDIDATES[name]
    # The survey keeps E[d^2] = 3/2 for base 4, the digits whose ties go one way.
    monkeypatch.setattr(noise, "keyswitch_digit_moment", lambda base_log, level_count: 1.5 * level_count)
    assert math.sqrt(noise.blind_rotation_variance(row)) == pytest.approx(pbs, rel=0.03)
    # Binary ring secrets: the survey centres the rounding error (s - 1/2), the specification does not.
    assert math.sqrt(noise.keyswitch_variance(row)) == pytest.approx(
        ks, rel=0.06 if row.glwe_secret == "binary" else 0.03
    )
    assert math.sqrt(noise.modulus_switch_variance(row)) == pytest.approx(ms, rel=0.01)
    assert math.sqrt(noise.lookup_variance(row)) == pytest.approx(total, rel=0.04)


@pytest.mark.parametrize("bits", [3, 4, 6])
def test_blocks_of_the_small_key(bits: int) -> None:
    """Two units of key noise per key bit; the one key of a step that is 1, if any is, has its rounding twice."""
    row = replace(CANDIDATES["G64-512"][0], lwe_dimension=600, rotation=f"block_{bits}")
    key, rounding = noise.external_product_key_variance(row), noise.external_product_rounding_variance(row)
    expected = 600 * 2 * key + 600 / bits * 2 * bits / (bits + 1) * rounding
    assert noise.blind_rotation_variance(row) == pytest.approx(expected)


@pytest.mark.parametrize("bits", [2, 3, 4, 6])
def test_covariances_in_a_block_do_not_count(bits: int) -> None:
    """Sum of e_i (s_i - p) over a block, exactly: all values of s, errors of two points -1 and 1 (variance 1)."""
    p = 1 / (bits + 1)
    blocks = [[float(i == j) for i in range(bits)] for j in range(-1, bits)]
    sums = [
        sum(e * (s - p) for e, s in zip(errors, block, strict=True))
        for block in blocks
        for errors in itertools.product((-1, 1), repeat=bits)
    ]
    assert sum(sums) == pytest.approx(0)
    assert sum(x * x for x in sums) / len(sums) == pytest.approx(bits * p * (1 - p))
    if bits > 2:
        row = replace(CANDIDATES["G64-512"][0], lwe_dimension=600, rotation=f"block_{bits}")
        expected = (600 * p * (1 - p) + 1) / 12 / 1024**2
        assert noise.modulus_switch_variance(row) == pytest.approx(expected)


def test_two_key_bits_per_step() -> None:
    """Six units of key noise and 3/2 of rounding per pair, against one and 1/2 per bit."""
    row = CANDIDATES["G64-512"][0]
    pair = replace(row, rotation="binary_pair")
    key, rounding = noise.external_product_key_variance(row), noise.external_product_rounding_variance(row)
    assert noise.blind_rotation_variance(row) == pytest.approx(610 * (key + rounding / 2))
    assert noise.blind_rotation_variance(pair) == pytest.approx(305 * (6 * key + 1.5 * rounding))


def test_raised_keys() -> None:
    """The key's own modulus and noise; one rounding of each step's products, of which each mask's error meets the secret."""
    row = replace(CANDIDATES["G64-512"][0], mask_gadget=(24, 1), body_gadget=(24, 1), rotation="binary_pair")
    raised = replace(row, raised=True, raised_sigma=5.0)
    assert noise.fresh_variance(raised) == noise.fresh_variance(row)
    digit = (Q27 / 8) ** 2 / 12
    key = 512 * 3 * digit * (5.0 / (Q27 * RAISING)) ** 2
    assert noise.external_product_key_variance(raised) == pytest.approx(key)
    rounding = noise.external_product_rounding_variance(raised)
    assert rounding == noise.external_product_rounding_variance(row)
    division = (1 + 1024 * 2 / 3) / 12 / Q27**2
    assert noise.blind_rotation_variance(raised) == pytest.approx(305 * (6 * key + 1.5 * rounding + division))
    assert noise.rotation_correlation_bound(raised) < 1


def test_rounded_products() -> None:
    """At the dimensions of the spike: what it measured, log2 of a standard deviation, of all steps (docs/benchmarks/fft.md)."""
    row = replace(
        CANDIDATES["L4-2048R"][0], limb_count=1, mask_gadget=(23, 1), body_gadget=(20, 1), raised=True, raised_sigma=9.0
    )
    for rotation, dimension, measured in (
        ("binary_pair", 834, -20.40),
        ("block_4", 868, -20.65),
        ("block_6", 882, -20.61),
    ):
        exact = replace(row, rotation=rotation, lwe_dimension=dimension)
        rounded = replace(exact, rounded_products=True)
        added = noise.blind_rotation_variance(rounded) - noise.blind_rotation_variance(exact)
        assert added / (rounded.step_count * noise.transform_variance(rounded)) == pytest.approx(1)
        coefficient = added / (1 + 2048 / 2)  # without its way into a phase
        assert math.log2(coefficient) / 2 == pytest.approx(measured, abs=0.07)
        assert noise.transform_variance(exact) == 0.0


def test_several_accumulators_as_one_table() -> None:
    """The switched phase is nu times as fine, the noise of a rotation the same, and accumulators do not share rounding errors."""
    row = CANDIDATES["L4-2048R128"][0]
    extended = replace(row, extension_factor=4)
    assert noise.modulus_switch_variance(extended) == pytest.approx(noise.modulus_switch_variance(row) / 16)
    assert noise.blind_rotation_variance(extended) == noise.blind_rotation_variance(row)
    assert noise.keyswitch_variance(extended) == noise.keyswitch_variance(row)
    step = noise.lookup_offset(row) - abs(noise.keyswitch_offset(row))
    assert noise.lookup_offset(extended) - abs(noise.keyswitch_offset(row)) == pytest.approx(step / 4)
    assert noise.rotation_correlation(extended, 0) == 1
    assert [noise.rotation_correlation(extended, lag) for lag in (1, 2, 3, 6)] == [0] * 4
    assert noise.rotation_correlation(extended, 8) == noise.rotation_correlation(row, 2) > 0


def digits(base_log: int, level_count: int, v: int) -> list[int]:
    """Section 2, step 3 of docs/reference/specification.md, least significant first."""
    base, lowest, out = 1 << base_log, v & 1, []
    for level in reversed(range(level_count)):
        r, v = v % base, v // base
        tie_down = (v >> (base_log - 1)) & 1 if level > 0 else lowest
        down = r > base // 2 or (r == base // 2 and tie_down)
        out.append(r - base if down else r)
        v += down
    return out


@pytest.mark.parametrize(("base_log", "level_count"), [(2, 1), (2, 3), (2, 6), (3, 4), (4, 3), (1, 5)])
def test_keyswitch_digit_moment_is_exact(base_log: int, level_count: int) -> None:
    everything = [digits(base_log, level_count, v) for v in range(1 << (base_log * level_count))]
    exact = sum(d * d for ds in everything for d in ds) / len(everything)
    assert noise.keyswitch_digit_moment(base_log, level_count) == pytest.approx(exact, rel=1e-12)
    for level in range(level_count):  # unbiased: what makes the offset of a key vanish
        mean = sum(ds[level] for ds in everything) / len(everything)
        assert abs(mean) < 0.01 or level == level_count - 1


def test_base_four_digits_have_moment_1_3() -> None:
    steps = [noise.keyswitch_digit_moment(2, levels) for levels in (9, 10)]
    assert steps[1] - steps[0] == pytest.approx(1.3, abs=0.001)


def test_keyswitch_offset_of_binary_secrets() -> None:
    row = CANDIDATES["L4-2048R"][0]
    assert noise.keyswitch_offset(row) == -2048 / 4 / 2**19
    assert noise.keyswitch_offset(replace(row, keyswitch_gadget=(1, 19))) == 0  # nothing is rounded off
    assert noise.keyswitch_offset(replace(row, glwe_secret="quinary")) == 0


def test_public_key_noise() -> None:
    row = CANDIDATES["G64-512"][0]
    assert noise.public_key_variance(row) == pytest.approx((1024 * 4 / 3 + 1) * noise.fresh_variance(row))
    quinary = replace(row, glwe_secret="quinary")
    assert noise.public_key_variance(quinary) == pytest.approx((1024 * 4 + 1) * noise.fresh_variance(quinary))


def test_linear_rules() -> None:
    assert noise.linear_variance(2.0, 3.0) == 18.0
    assert noise.combined_variance(2.0, -3.0, 5.0, 2.0) == 38.0
    row = CANDIDATES["G64-512"][0]
    fresh = noise.lookup_variance(row, 0.0)
    assert noise.lookup_variance(row, 2.0) - fresh == pytest.approx(4 * noise.blind_rotation_variance(row))
    assert noise.lookup_variance(row, 2.0, input_variance=0.0) == fresh


@pytest.mark.parametrize("z", [0.1, 1.0, 5.0, 9.2, 13.4, 20.0, 27.0])
def test_tail_against_erfc(z: float) -> None:
    assert noise.log2_two_sided_tail(z) == pytest.approx(math.log2(math.erfc(z / math.sqrt(2))), abs=1e-9)


def test_tail_where_erfc_underflows() -> None:
    z = math.sqrt(2) * 20
    assert noise.log2_two_sided_tail(z * (1 + 1e-12)) == pytest.approx(
        noise.log2_two_sided_tail(z * (1 - 1e-12)), abs=1e-4
    )
    values = [noise.log2_two_sided_tail(z) for z in (20.5, 30, 40, 100, 1000)]
    assert all(a > b for a, b in itertools.pairwise(values))
    assert -310 < values[0] < -300
    assert math.isfinite(values[-1])


def test_failure() -> None:
    assert noise.p_fail_log2(0.1, 1.0, offset=0.1) == 0.0
    assert noise.p_fail_log2(1.96 * noise.SD_INFLATION, 1.0) == pytest.approx(math.log2(0.05), abs=0.01)
    row = replace(CANDIDATES["L2-512"][0], kind="exact", message_bits=2)
    assert noise.lookup_margin(row) == 1 / 16
    assert noise.lookup_p_fail_log2(row) == pytest.approx(
        -64.7, abs=6
    )  # the survey ignores the half step of the switched phase
    assert noise.lookup_p_fail_log2(replace(row, kind="approximate")) == 0.0
    assert noise.lookup_p_fail_log2(row, 8.0) > noise.lookup_p_fail_log2(row, 4.0)


def test_full_domain_lookup() -> None:
    row = replace(CANDIDATES["L2-512"][0], kind="exact", message_bits=2)
    # Two look-ups, and the second sees the first one's noise: worse than a padded look-up on noiseless inputs, better at large norms.
    assert noise.full_domain_p_fail_log2(row, 0.0) > noise.lookup_p_fail_log2(row, 0.0)
    assert noise.full_domain_p_fail_log2(row, 8.0) < noise.lookup_p_fail_log2(row, 8.0)
