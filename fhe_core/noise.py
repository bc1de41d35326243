"""The noise model: variances in torus squared of every operation of docs/reference/specification.md, and failure probabilities from them.

Pure arithmetic on a row of the parameter table (anything with the fields of `NoiseParameters`). Uniform masks and the independence of distinct
sources are assumed (docs/reference/parameters.md says what is distinct); a look-up sees

    weight_norm^2 * blind_rotation + keyswitch + modulus_switch.

Source: [CGGI20] the noise of each operation, on average and not in the worst case; [BBB+23] linear layer, keyswitch and bootstrap as one pattern.
Ours: moments of the digits as they are cut, mean and shared part of the keyswitch error, and no term for a transform where it is exact; sets of
rounded products have one (`transform_variance`).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cloakwork.fhe_core._engine import ParameterSet

__all__ = [
    "SD_INFLATION",
    "NoiseParameters",
    "blind_rotation_variance",
    "combined_variance",
    "digit_moment",
    "division_variance",
    "fresh_variance",
    "full_domain_p_fail_log2",
    "gadget_rounding_variance",
    "keyswitch_constant_variance",
    "keyswitch_digit_moment",
    "keyswitch_key_variance",
    "keyswitch_offset",
    "keyswitch_rounding_variance",
    "keyswitch_variance",
    "linear_variance",
    "log2_two_sided_tail",
    "lookup_margin",
    "lookup_offset",
    "lookup_p_fail_log2",
    "lookup_variance",
    "modulus_switch_variance",
    "p_fail_log2",
    "public_key_variance",
    "rerandomisation_variance",
    "rotation_correlation",
    "rotation_correlation_bound",
    "sample_extraction_variance",
    "step_units",
    "transform_variance",
    "word_rounding_variance",
]

# Failure probabilities are computed for a standard deviation this much above the model.
SD_INFLATION = 1.02

_SECRET_SQUARE = {"binary": 1 / 2, "ternary": 2 / 3, "quinary": 2.0}  # E[s^2]
_SECRET_MEAN = {"binary": 1 / 2, "ternary": 0.0, "quinary": 0.0}


NoiseParameters: TypeAlias = "ParameterSet"
"""A row of the parameter table; the search passes rows of its own, with the same fields."""


def _secret_mean(params: NoiseParameters) -> float:
    """Returns E[S] of a coefficient of the ring key: a sum over the parties."""
    return params.party_count * _SECRET_MEAN[params.glwe_secret]


def _secret_square(params: NoiseParameters) -> float:
    """Returns E[S^2] of it."""
    square, mean = _SECRET_SQUARE[params.glwe_secret], _SECRET_MEAN[params.glwe_secret]
    return params.party_count * (square - mean**2) + _secret_mean(params) ** 2


# Encryption


def fresh_variance(params: NoiseParameters) -> float:
    """Returns sigma^2 / Q^2: LWE and GLWE encryption under the secret key, seeded or not."""
    return (params.glwe_sigma / params.modulus) ** 2


def public_key_variance(params: NoiseParameters) -> float:
    """Returns (P kN E[u^2] + 1 + kN E[S^2]) sigma^2 / Q^2: the key's noise times u (centred, as wide as a party's S), e, and e_c times S (section
    10).

    The noise of a public key of P parties is the sum of theirs.
    Source: [LPR10], [Joy24]; ours has k rows.
    """
    d = params.large_dimension
    u_square = _SECRET_SQUARE["quinary" if params.glwe_secret == "quinary" else "ternary"]
    return (params.party_count * d * u_square + 1 + d * _secret_square(params)) * fresh_variance(params)


def rerandomisation_variance(params: NoiseParameters) -> float:
    """Returns the variance that `Session.rerandomise` adds to every answer, beside the noise of what was computed: an encryption of zero under the
    public key."""
    return public_key_variance(params)


def word_rounding_variance(params: NoiseParameters, word_bits: int) -> float:
    """Returns (kN E[S^2] + 1) / 12 / 2^2b: words rounded to a modulus 2^b, as answers are before they are sent (section 11).

    Source: [BV11].
    """
    masks = params.large_dimension * _secret_square(params)
    return (masks + 1) / 12 * 4.0**-word_bits


# Linear operations


def combined_variance(variance_x: float, scale_x: float, variance_y: float = 0.0, scale_y: float = 0.0) -> float:
    """Returns scale_x^2 V_x + scale_y^2 V_y for independent ciphertexts: addition, subtraction, multiplication by small integers."""
    return scale_x**2 * variance_x + scale_y**2 * variance_y


def linear_variance(variance: float, weight_norm: float) -> float:
    """||w||^2 V: an integer row of L2 norm `weight_norm` on ciphertexts of independent noise."""
    return weight_norm**2 * variance


# Keyswitch (section 2)


@cache
def keyswitch_digit_moment(base_log: int, level_count: int) -> float:
    """Returns sum over the levels of E[d^2] of the unbiased signed digits of a uniform residue.

    Exact: a chain from the least significant digit over (carry, which half the next raw digit lies in). Base 4 has 1.3 per digit in the
    limit; ties at +B always would give 1.5 and a mean of 1/2. The tie of the top digit counts as a fair coin.
    Source: [Joy21]; the chain is ours.
    """
    base, half = 1 << base_log, 1 << (base_log - 1)
    halves = {"any": range(base), "low": range(half), "high": range(half, base)}
    states = {(0, "any"): 1.0}
    total = 0.0
    for _ in range(level_count):
        following: dict[tuple[int, str], float] = {}
        for (carry, where), probability in states.items():
            share = probability / len(halves[where])
            for raw in halves[where]:
                residue, wrapped = (raw + carry) % base, (raw + carry) // base
                total += share * min(residue, base - residue) ** 2
                if residue == half:
                    outcomes = [((0, "low"), share / 2), ((1, "high"), share / 2)]
                else:
                    outcomes = [((1 if residue > half else wrapped, "any"), share)]
                for state, weight in outcomes:
                    following[state] = following.get(state, 0.0) + weight
        states = following
    return total


def keyswitch_key_variance(params: NoiseParameters) -> float:
    """Returns P * kN * sum_l E[d_l^2] * sigma^2 / 2^2w: the noise of the keyswitch key, to which each of P parties brings its own."""
    sigma = math.ldexp(params.lwe_sigma, -params.keyswitch_modulus_log2)
    return params.party_count * params.large_dimension * keyswitch_digit_moment(*params.keyswitch_gadget) * sigma**2


def keyswitch_rounding_variance(params: NoiseParameters) -> float:
    """Returns rounding of masks to T bits and of the body to w bits: (kN E[S^2] 2^-2T + 2^-2w) / 12."""
    w = params.keyswitch_modulus_log2
    base_log, level_count = params.keyswitch_gadget
    masks = params.large_dimension * _secret_square(params)
    variance = masks * 4.0 ** -(base_log * level_count) + 4.0**-w
    return variance / 12 + keyswitch_constant_variance(params)


def keyswitch_constant_variance(params: NoiseParameters) -> float:
    """Returns kN Var[S] 2^-2w / 4, the part of `keyswitch_rounding_variance` that is a constant of the key: all keyswitches under it share one draw.

    Step 2 rounds halves up, a mean error of -1/2 per mask when T < w, times the secret, about its mean (`keyswitch_offset`).
    """
    base_log, level_count = params.keyswitch_gadget
    if base_log * level_count == params.keyswitch_modulus_log2:
        return 0.0
    spread = _secret_square(params) - _secret_mean(params) ** 2
    return params.large_dimension * spread / 4 * 4.0**-params.keyswitch_modulus_log2


def keyswitch_offset(params: NoiseParameters) -> float:
    """Returns mean of the keyswitch error: step 2's rounding of halves upwards, -1/2 per mask, times the mean of the secret."""
    base_log, level_count = params.keyswitch_gadget
    if base_log * level_count == params.keyswitch_modulus_log2:
        return 0.0
    return -math.ldexp(params.large_dimension * _secret_mean(params) / 2, -params.keyswitch_modulus_log2)


def keyswitch_variance(params: NoiseParameters) -> float:
    """Returns the variance that a keyswitch adds, around `keyswitch_offset`."""
    return keyswitch_key_variance(params) + keyswitch_rounding_variance(params)


# Modulus switch (section 3)


def modulus_switch_variance(params: NoiseParameters) -> float:
    """Returns (n Var[s] + 1) / 12 / (2 nu N)^2: the body loses the mean of the masks' errors, so each error meets s - E[s].

    Coefficients of a block depend on each other, errors do not: E[e_i e_j] = 0 takes every covariance of s out. Var[s] is 1/4 for `binary` and
    `binary_pair`, 2/3 for `ternary`, p (1 - p) with p = 1/(l + 1) for blocks of l, 1 for a Gaussian small key. It is the mean over
    keys: of one key whose weight is W it is W (1 - p)^2 + (n - W) p^2 in place of n p (1 - p).
    Source: [RDV25]; ours for small keys of any mean.
    """
    return (params.lwe_dimension * params.small_key_variance + 1) / 12 / (2 * params.table_size) ** 2


# Blind rotation (sections 4 to 6)


def digit_moment(params: NoiseParameters, gadget: tuple[int, int]) -> float:
    """Returns sum over levels of E[d^2]: (B^2 + 2) / 12 in [-B/2, B/2), and the top digit uniform on the part of its range that Q fills."""
    base_log, level_count = gadget
    drop = 27 * params.limb_count - base_log * level_count
    top_range = params.modulus / 2.0 ** (drop + base_log * (level_count - 1))
    return (level_count - 1) * (4.0**base_log + 2) / 12 + top_range**2 / 12


def gadget_rounding_variance(params: NoiseParameters, gadget: tuple[int, int]) -> float:
    """Returns the error error of one coefficient of the approximate decomposition: uniform on 2^drop residues."""
    drop = 27 * params.limb_count - gadget[0] * gadget[1]
    return 4.0**drop / 12 / params.modulus**2


def external_product_key_variance(params: NoiseParameters) -> float:
    """Returns N * (k sum E[d_mask^2] + r sum E[d_body^2]) * sigma^2 / Q^2, with the noise and the modulus of the bootstrap key.

    Rows of every lane's body have noise in every lane, so a lane meets the digits of all r bodies. An NTRU accumulator has no body, and the noise
    of its keys is that of their numerators. Rows of several parties' keys are encrypted under their public key.
    Source: [CGGI20]; [BBC+25] for r bodies; [BIP+22] NTRU.
    """
    masks = params.glwe_dimension * digit_moment(params, params.mask_gadget)
    bodies = params.lane_count if params.accumulator == "glwe" else 0
    digits = masks + bodies * digit_moment(params, params.body_gadget)
    row = public_key_variance(params) if params.party_count > 1 else (params.key_sigma / params.key_modulus) ** 2
    return params.polynomial_size * digits * row


def external_product_rounding_variance(params: NoiseParameters) -> float:
    """Returns phase error of decomposing a GLWE ciphertext: body error plus kN mask errors times the secret; an NTRU accumulator has no body."""
    masks = params.large_dimension * _secret_square(params) * gadget_rounding_variance(params, params.mask_gadget)
    return masks + (gadget_rounding_variance(params, params.body_gadget) if params.accumulator == "glwe" else 0.0)


def division_variance(params: NoiseParameters) -> float:
    """Returns (kN E[S^2] + 1) / 12 / Q^2 of each step of raised sets: its products, modulo QP, are divided by P and rounded."""
    masks = params.large_dimension * _secret_square(params)
    return (masks + 1) / 12 / params.modulus**2 if params.raised else 0.0


def transform_variance(params: NoiseParameters) -> float:
    """Returns (kN E[S^2] + 1) 4 keys N / 16 * (k B_mask^2 + B_body^2) eps^2 of each step of sets with rounded products, eps = 2^-53; else 0.

    The published variance of a coefficient is 2 u d (B Q sqrt(N) / 4)^2 eps^2 of one product. Ours: u = 2 keys, for the two products of each
    factor X^e - 1, and B^2 summed over the rows; fitted to measurements of three kinds of steps (docs/benchmarks/fft.md) and tested from both
    sides. An average for uniform words, not a bound.
    Source: [XLWX24].
    """
    if not params.rounded_products:
        return 0.0
    rows = params.glwe_dimension * 4.0 ** params.mask_gadget[0] + 4.0 ** params.body_gadget[0]
    coefficient = 4 * params.keys_per_step * params.polynomial_size / 16 * rows * 2.0**-106
    return (params.large_dimension * _secret_square(params) + 1) * coefficient


def step_units(params: NoiseParameters) -> tuple[float, float]:
    """Returns (keys, keys / (keys + 1)), twice where factors multiply products: a step's key noise and rounding, in units of an external product.

    Every key's noise counts. Rounding counts for the key that is 1, if one is: keys + 1 values of the key bits are equally likely
    (fhe_core/src/core/rotations.def). A factor X^e - 1 after the product doubles a variance. So `binary` has 1 and 1/2, `ternary` 4
    and 4/3, `binary_pair` 6 and 3/2. Where a digit of b bits selects the key, its one product replaces the accumulator unless the digit is 0: the
    noise that is there is turned and stays, and one of each is added, 1 - 2^-b on average; the top digit of a word has the bits that are left.
    Source: [CGGI20] binary, [MP21] ternary, [BMMP18] pairs, [DM15] selected keys; ours counts the factors on the products.
    """
    if params.digit_bits:
        nonzero = share_of_steps_taken(params)
        return nonzero, nonzero
    keys, doubled = params.keys_per_step, 2 if params.factors_on_products else 1
    return doubled * keys, doubled * keys / (keys + 1)


def share_of_steps_taken(params: NoiseParameters) -> float:
    """Returns 1, or where digits select keys the mean of 1 - 2^-b over the digits of a word: those that are not 0."""
    if not params.digit_bits:
        return 1.0
    digits, bits = params.step_count // params.lwe_dimension, round(math.log2(2 * params.table_size))
    top_bits = bits - params.digit_bits * (digits - 1)
    return 1 - ((digits - 1) * 2.0**-params.digit_bits + 2.0**-top_bits) / digits


def blind_rotation_variance(params: NoiseParameters) -> float:
    """Returns steps * (key units * external product's key noise + rounding units * its rounding + division + transform), independent of the input's
    noise.

    Of each of the nu accumulators where several are one table: each meets the same keys, and its own digits. An NTRU accumulator's entry is one
    external product more, of the digits of a table, which may be three times as large as those of uniform words.
    """
    key_units, rounding_units = step_units(params)
    key, rounding = external_product_key_variance(params), external_product_rounding_variance(params)
    division = share_of_steps_taken(params) * division_variance(params)
    step = key_units * key + rounding_units * rounding + division + transform_variance(params)
    entry = 3 * (key + rounding) if params.accumulator == "ntru" else 0.0
    return params.step_count * step + entry


def sample_extraction_variance(variance: float) -> float:
    """Returns the variance unchanged: the coefficients are only rearranged."""
    return variance


def rotation_correlation(params: NoiseParameters, lag: int) -> float:
    """Returns correlation of the noise of two entries of one rotation, `lag` in [0, nu N) apart.

    The key's noise is as good as independent. The rounding error e of a mask brings (e S)_i, and E[(e S)_i (e S)_j] is the negacyclic
    autocorrelation of S: (N - 2 lag) E[s]^2 for each of k polynomials where the secret's mean is not zero, about none where it is.
    Entries of different accumulators have different e.
    """
    if lag == 0:
        return 1.0
    if lag % params.extension_factor:
        return 0.0
    shape = _secret_mean(params) ** 2 / _secret_square(params)
    return _rounding_share(params) * shape * (1 - 2 * lag / params.table_size)


def rotation_correlation_bound(params: NoiseParameters) -> float:
    """Returns largest correlation, either way, of two coefficients of one rotation but for 2^-28 of all keys and pairs.

    The autocorrelation of a random secret is off its mean by E[s^2] sqrt(kN), one standard deviation; six are allowed.
    """
    shape = _secret_mean(params) ** 2 / _secret_square(params)
    return _rounding_share(params) * min(1.0, shape + 6 / math.sqrt(params.large_dimension))


def _rounding_share(params: NoiseParameters) -> float:
    """Returns the rounding share of the variance of a blind rotation: what rounding masks brings, at most."""
    masks = params.large_dimension * _secret_square(params)
    gadget = step_units(params)[1] * masks * gadget_rounding_variance(params, params.mask_gadget)
    rounding = gadget + share_of_steps_taken(params) * division_variance(params) + transform_variance(params)
    return params.step_count * rounding / blind_rotation_variance(params)


# A whole look-up


def lookup_variance(
    params: NoiseParameters, weight_norm: float | None = None, input_variance: float | None = None
) -> float:
    """Returns variance of the phase a look-up sees.

    Args:
        weight_norm: L2 norm of the weights on the inputs; None: the row's largest.
        input_variance: of each input, torus squared; None: a fresh bootstrap output.
    """
    norm = params.max_weight_norm if weight_norm is None else weight_norm
    variance = blind_rotation_variance(params) if input_variance is None else input_variance
    return linear_variance(variance, norm) + keyswitch_variance(params) + modulus_switch_variance(params)


def lookup_margin(params: NoiseParameters) -> float:
    """Returns distance in torus units from a message's phase to the next wrong one: 1/8 for gates, 2^-(p+2) with a padding bit."""
    return 1 / 8 if params.kind == "gate" else 2.0 ** -(params.message_bits + 2)


def lookup_offset(params: NoiseParameters) -> float:
    """Returns largest shift of the mean towards an edge: half a step of the switched phase (tables are constant on [-slot/2, slot/2)), and the
    keyswitch's mean."""
    return 1 / (4 * params.table_size) + abs(keyswitch_offset(params))


def log2_two_sided_tail(z: float) -> float:
    """log2 of P(|X| > z) for a standard Gaussian; by the asymptotic series where erfc would underflow."""
    x = z / math.sqrt(2)
    if x < 20:
        return math.log2(math.erfc(x))
    series = 1 - 1 / (2 * x**2) + 3 / (4 * x**4)
    return (-(x**2) + math.log(series / (x * math.sqrt(math.pi)))) / math.log(2)


def p_fail_log2(margin: float, variance: float, offset: float = 0.0) -> float:
    """Returns log2 of P(noise leaves [-margin, margin]) with the standard deviation inflated by `SD_INFLATION`; 0 when offset >= margin."""
    if offset >= margin:
        return 0.0
    return log2_two_sided_tail((margin - offset) / (SD_INFLATION * math.sqrt(variance)))


def lookup_p_fail_log2(params: NoiseParameters, weight_norm: float | None = None) -> float:
    """Returns log2 of the failure probability of one look-up with a padding bit (or of one gate); 0 for approximate rows."""
    if params.kind == "approximate":
        return 0.0
    return p_fail_log2(lookup_margin(params), lookup_variance(params, weight_norm), lookup_offset(params))


def full_domain_p_fail_log2(params: NoiseParameters, weight_norm: float | None = None) -> float:
    """Returns log2 of the failure probability of a full-domain look-up (two bootstraps) of p = message_bits bits without padding.

    Halving the phase halves the input's noise; the sign look-up sees it with margin 2^-(p+2), the padded look-up after it sees the
    sign's own noise as well.
    """
    norm = params.max_weight_norm if weight_norm is None else weight_norm
    fresh = blind_rotation_variance(params)
    added = keyswitch_variance(params) + modulus_switch_variance(params)
    halved = linear_variance(fresh, norm) / 4
    margin, offset = lookup_margin(params), lookup_offset(params)
    sign = p_fail_log2(margin, halved + added, offset)
    padded = p_fail_log2(margin, halved + fresh + added, offset)
    low, high = sorted((sign, padded))
    return high + math.log2(1 + 2.0 ** (low - high))
