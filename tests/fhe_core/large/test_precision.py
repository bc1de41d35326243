"""Large precision: every function against its clear one, plans against exact arithmetic, noise and failures against what plans claim."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulation import some_of

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import CancelledError, FheError, KeyMismatchError, ParameterError, ShapeError
from cloakwork.fhe_core.large import plan as large_plan
from cloakwork.fhe_core.large import search as large_search
from cloakwork.fhe_core.large.plan import Input, Plan
from cloakwork.fhe_core.large.precision import eval_bin_gate, eval_decomp, eval_floor, eval_func, eval_sign, plan_of
from cloakwork.fhe_core.modular_integers import ModularIntegers, decode_integers, encode_integers, encryption_norm
from cloakwork.fhe_core.parameters import ParameterSet, parameter_set
from cloakwork.fhe_core.server import Session

ALL = pytest.mark.tier("all")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, ALL])]
# Two limbs (outputs of 2^-20 of the torus), one limb (2^-11.5), two limbs with several accumulators, a raised key.
SETS = ["toy_two_limb", "toy", *(pytest.param(name, marks=ALL) for name in ("toy_extended_two_limb", "toy_raised"))]


@pytest.fixture(scope="module", params=SETS)
def key(request: pytest.FixtureRequest) -> ClientKey:
    return ClientKey._from_entropy(request.param, bytes(range(32)))


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, key: ClientKey) -> Iterator[Session]:
    yield Session(key.evaluation_keys(), device=request.param)


@pytest.fixture(scope="module")
def two_limbs() -> tuple[ClientKey, Session]:
    key = ClientKey._from_entropy("toy_two_limb", bytes(32))
    return key, Session(key.evaluation_keys())


def edges_and_random(bits: int, count: int = 30) -> np.ndarray:
    """Both ends, both sides of the sign, values whose low bits are all ones or zeros, and random ones."""
    q = 1 << bits
    known = [0, 1, q // 4, q // 2 - 1, q // 2, q // 2 + 1, q - 2, q - 1]
    known += [(1 << i) - 1 for i in range(1, bits)] + [q - (1 << i) for i in range(1, bits)]
    return np.unique([*known, *np.random.default_rng(bits).integers(0, q, count)])


def digits_of(m: np.ndarray, lengths: list[int]) -> list[np.ndarray]:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return [m >> start & ((1 << bits) - 1) for start, bits in zip(starts, lengths, strict=True)]


# --- every function --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", range(1, 7))
def test_every_value_of_few_bits(key: ClientKey, session: Session, bits: int) -> None:
    m = some_of(session, np.arange(1 << bits))
    x = key.encrypt_integers(m, 1 << bits)
    np.testing.assert_array_equal(key.decrypt(eval_sign(session, x)), m >> (bits - 1))
    for removed in range(bits):
        floor = eval_floor(session, x, removed)
        assert floor.modulus == 1 << (bits - removed)
        np.testing.assert_array_equal(key.decrypt_integers(floor), m >> removed)
    for length in (1, 2):
        found = eval_decomp(session, x, digit_bits=length)
        for digit, clear in zip(found, digits_of(m, [length] * len(found)), strict=True):
            np.testing.assert_array_equal(key.decrypt(digit), clear)


@pytest.mark.parametrize("bits", [8, 12, 16, 21, 32])
def test_signs_and_digits_of_many_bits(key: ClientKey, session: Session, bits: int) -> None:
    if key.parameters.limb_count == 1 and bits > 16:
        with pytest.raises(ParameterError, match="modulus: expected at most"):
            key.encrypt_integers([0], 1 << bits)
        return
    m = some_of(session, edges_and_random(bits))
    x = key.encrypt_integers(m, 1 << bits)
    np.testing.assert_array_equal(key.decrypt(eval_sign(session, x)), m >> (bits - 1))
    lengths = [1, 2, 2] + [2] * ((bits - 5) // 2) + [1] * ((bits - 5) % 2)
    for digit, clear in zip(eval_decomp(session, x, lengths), digits_of(m, lengths), strict=True):
        np.testing.assert_array_equal(key.decrypt(digit), clear)
        assert digit.encoding is Encoding.MESSAGE and digit.message_bound[1] < 4  # type: ignore[index]


@pytest.mark.parametrize(("bits", "removed"), [(8, 1), (8, 7), (12, 5), (16, 8), (21, 13), (32, 20), (32, 31)])
def test_floors_of_many_bits(two_limbs: tuple[ClientKey, Session], bits: int, removed: int) -> None:
    key, session = two_limbs
    m = edges_and_random(bits)
    floor = eval_floor(session, key.encrypt_integers(m, 1 << bits), removed)
    np.testing.assert_array_equal(key.decrypt_integers(floor), m >> removed)


@pytest.mark.parametrize("modulus", [2, 3, 4, 5, 7, 8, 10])
@pytest.mark.parametrize("output", [None, 3, 13])
def test_any_function_of_any_modulus(key: ClientKey, session: Session, modulus: int, output: int | None) -> None:
    m = np.arange(modulus)
    values = np.random.default_rng(modulus).integers(-50, 50, modulus)
    result = eval_func(session, key.encrypt_integers(m, modulus), values, output_modulus=output)
    assert result.weight_norm == 1
    np.testing.assert_array_equal(key.decrypt_integers(result), values % (output or modulus))


def test_a_negacyclic_function_takes_one_rotation(key: ClientKey, session: Session) -> None:
    """And so tells twice as many values apart: modulo 16 on sets that take arbitrary functions modulo 10 at most."""
    half = np.random.default_rng(1).integers(0, 16, 8)
    calls: list[tuple[int, int]] = []
    x, function = key.encrypt_integers(np.arange(16), 16), np.concatenate([half, -half])
    result = eval_func(session, x, function, progress=lambda done, total: calls.append((done, total)))
    np.testing.assert_array_equal(key.decrypt_integers(result), function % 16)
    ((done, total),) = calls[-1:]
    eval_func(session, ModularIntegers(x.ciphertexts, 4), [0, 1, 2, 1], progress=lambda d, t: calls.append((d, t)))
    assert (done, calls[-1]) == (total, (2 * total, 2 * total))


def test_functions_in_a_chain(two_limbs: tuple[ClientKey, Session]) -> None:
    """Digits go into look-ups of the set, a sign into gates, a floor into a sign."""
    key, session = two_limbs
    m = edges_and_random(12)
    x = key.encrypt_integers(m, 1 << 12)
    digits = eval_decomp(session, x, digit_bits=2)
    squares = session.bootstrap(digits[1], lambda d: d * d % 4)
    np.testing.assert_array_equal(key.decrypt(squares), (m >> 2 & 3) ** 2 % 4)
    negative = eval_sign(session, x, output=Encoding.BOOLEAN)
    upper = eval_sign(session, eval_floor(session, 2 * x, 4), output=Encoding.BOOLEAN)
    np.testing.assert_array_equal(key.decrypt(eval_bin_gate(session, "ANDYN", negative, upper)), (m >> 10) == 2)


@pytest.mark.parametrize("encoding", [Encoding.MESSAGE, Encoding.FULL_DOMAIN, Encoding.BOOLEAN])
def test_encodings_of_signs_and_digits(two_limbs: tuple[ClientKey, Session], encoding: Encoding) -> None:
    key, session = two_limbs
    m = edges_and_random(9)
    x = key.encrypt_integers(m, 1 << 9)
    sign = eval_sign(session, x, output=encoding)
    assert sign.encoding is encoding and sign.weight_norm == 1
    np.testing.assert_array_equal(key.decrypt(sign), m >> 8)
    if encoding is not Encoding.BOOLEAN:
        found = eval_decomp(session, x, [2, 1, 2, 2, 2], output=encoding)
        for digit, clear in zip(found, digits_of(m, [2, 1, 2, 2, 2]), strict=True):
            assert digit.weight_norm <= key.parameters.max_weight_norm
            np.testing.assert_array_equal(key.decrypt(digit), clear)


def test_signs_of_a_gate_set() -> None:
    key = ClientKey.generate("toy_gate")
    session = Session(key.evaluation_keys())
    m = edges_and_random(12)
    bits = eval_sign(session, key.encrypt_integers(m, 1 << 12))
    np.testing.assert_array_equal(key.decrypt(bits), m >= 2048)
    with pytest.raises(ParameterError, match="no integer messages"):
        eval_decomp(session, key.encrypt_integers(m, 1 << 12), digit_bits=1)


def test_floors_leave_many_bits_where_outputs_have_low_noise() -> None:
    key = ClientKey.generate("toy_large")
    session = Session(key.evaluation_keys())
    m = edges_and_random(20)[:16]
    floor = eval_floor(session, key.encrypt_integers(m, 1 << 20), 3)
    np.testing.assert_array_equal(key.decrypt_integers(floor), m >> 3)
    again = eval_floor(session, floor, 5)
    np.testing.assert_array_equal(key.decrypt_integers(again), m >> 8)
    np.testing.assert_array_equal(key.decrypt(eval_sign(session, again)), m >> 19)


@ALL
def test_a_shipped_set() -> None:
    """16 bits on `lut4`, at 2^-128 for each value."""
    key = ClientKey.generate("lut4")
    session = Session(key.evaluation_keys())
    m = np.array([0, 32767, 32768, 65535])
    x = key.encrypt_integers(m, 1 << 16)
    np.testing.assert_array_equal(key.decrypt(eval_sign(session, x)), m >> 15)
    np.testing.assert_array_equal(key.decrypt_integers(eval_floor(session, x, 8)), m >> 8)
    for digit, clear in zip(eval_decomp(session, x, digit_bits=4), digits_of(m, [4] * 4), strict=True):
        np.testing.assert_array_equal(key.decrypt(digit), clear)


# --- values ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modulus", [2, 3, 1000, 65536, 4294967291, 1 << 32])
def test_arithmetic_is_that_of_integers(two_limbs: tuple[ClientKey, Session], modulus: int) -> None:
    key, _ = two_limbs
    rng = np.random.default_rng(modulus)
    a, b = rng.integers(0, modulus, (2, 3, 4)), rng.integers(-(modulus // 2), modulus, 4)
    x, y = key.encrypt_integers(a, modulus), key.encrypt_integers(b, modulus)
    factor = int(rng.integers(-1000, 1000))
    for result, clear in [
        (x, a),
        (y, b),
        (x + y, a + b),
        (x - y, a - b),
        (-y, -b),
        (x * factor, a * factor),
        (factor * y, b * factor),
        (x + b, a + b),
        (5 - y, 5 - b),
        (y - np.uint64(7), b - 7),
        (x[:, 0] + x[:, 1], a[:, 0] + a[:, 1]),
        (x.reshape(-1, 2)[3], a.reshape(-1, 2)[3]),
    ]:
        np.testing.assert_array_equal(key.decrypt_integers(result), clear % modulus)
        signed = key.decrypt_integers(result, signed=True)
        assert signed.min() >= -(modulus // 2) and signed.max() < (modulus + 1) // 2
        np.testing.assert_array_equal(signed % modulus, clear % modulus)


def test_multiples_grow_the_noise_and_are_refused(two_limbs: tuple[ClientKey, Session]) -> None:
    """2^31 is as far as a multiple modulo 2^32 goes: the same words as by a sum, and no bits left."""
    key, session = two_limbs
    x = key.encrypt_integers([3, 5], 1 << 32)
    far = x * [1 << 31, -(1 << 31)]
    twice = x * (1 << 30) + x * (1 << 30)
    np.testing.assert_array_equal(far.ciphertexts.words, twice.ciphertexts.words)
    assert far.weight_norm == pytest.approx(2.0**31 * x.weight_norm)
    with pytest.raises(ParameterError, match="eval_sign: no look-ups"):
        eval_sign(session, far)


@pytest.mark.parametrize("modulus", [2, 3, 255, 256, 65537, (1 << 32) - 1, 1 << 32])
@pytest.mark.parametrize("name", ["toy", "toy_two_limb"])
def test_encoding_is_exact(name: str, modulus: int) -> None:
    params = parameter_set(name)
    m = np.unique(np.random.default_rng(2).integers(0, modulus, 200).astype(np.uint64))
    words = encode_integers(params, m, modulus)
    exact = [(int(v) * params.modulus + modulus // 2) // modulus % params.modulus for v in m]
    assert words.tolist() == exact
    phases = np.random.default_rng(3).integers(0, params.modulus, 200).astype(np.uint64)
    nearest = [(2 * int(w) * modulus + params.modulus) // (2 * params.modulus) % modulus for w in phases]
    assert decode_integers(params, phases, modulus).tolist() == nearest


def test_ways_to_send_values(two_limbs: tuple[ClientKey, Session]) -> None:
    """Seeded, under the public key, and as bytes: the noise travels with them."""
    key, session = two_limbs
    m = edges_and_random(16)
    packed = session.extract(key.public_key().encrypt_integers(m, 1 << 16))
    sent = key.encrypt_integers(m, 1 << 16).ciphertexts.to_bytes()
    for ciphertexts in (
        key.encrypt_integers_seeded(m, 1 << 16).expand(),
        packed,
        type(packed).from_bytes(sent),
    ):
        x = ModularIntegers(ciphertexts, 1 << 16)
        assert x.weight_norm < 1e-6
        np.testing.assert_array_equal(key.decrypt(eval_sign(session, x)), m >> 15)


def test_noise_of_a_value_counts(two_limbs: tuple[ClientKey, Session]) -> None:
    """Fresh encryptions count with their own noise, outputs of look-ups with theirs, which leaves room for fewer bits."""
    key, session = two_limbs
    m = np.arange(16)
    noisy = eval_func(session, key.encrypt_integers(m % 8, 8), 100 * np.arange(8), output_modulus=1 << 10)
    assert key.encrypt_integers(m, 1 << 10).weight_norm == pytest.approx(encryption_norm(key.parameters, 1 << 10))
    assert (noisy.weight_norm, (5 * noisy).weight_norm) == (1, 5)
    np.testing.assert_array_equal(key.decrypt(eval_sign(session, 5 * noisy)), m % 8 * 500 % 1024 >= 512)
    with pytest.raises(ParameterError, match=r"eval_sign: .*values of up to 1\d bits are possible"):
        eval_sign(session, ModularIntegers(noisy.ciphertexts, 1 << 24))


@pytest.mark.parametrize("public", [False, True])
def test_encryptions_have_the_noise_of_their_weight_norm(two_limbs: tuple[ClientKey, Session], public: bool) -> None:
    """4,096 values: standard error of the deviation 1.1 %; bounds of five (false alarm 10^-6), and 6 % for the key's own part of public ones."""
    key, session = two_limbs
    m = np.random.default_rng(9).integers(0, 1 << 16, 4096)
    x = key.encrypt_integers(m, 1 << 16)
    if public:
        x = ModularIntegers(session.extract(key.public_key().encrypt_integers(m, 1 << 16)), 1 << 16)
    modulus = key.parameters.modulus
    words = encode_integers(key.parameters, m.astype(np.uint64), 1 << 16)
    errors = (key.phases(x.ciphertexts) - words).astype(np.int64)
    errors = np.where(
        errors > modulus // 2, errors - modulus, np.where(errors < -(modulus // 2), errors + modulus, errors)
    )
    unit = math.sqrt(noise.blind_rotation_variance(key.parameters)) * modulus
    assert float(errors.std()) == pytest.approx(x.weight_norm * unit, rel=0.06 + 0.06 * public)


def test_what_constants_and_floors_move_is_counted(two_limbs: tuple[ClientKey, Session]) -> None:
    """Phases with constants are off by no more than `rounding`, exactly; values that far off are refused."""
    key, session = two_limbs
    modulus, q = key.parameters.modulus, 1000
    x = key.encrypt_integers(np.zeros(500, int), q)
    constants = np.arange(500)
    moved = 37 * (x + constants) + constants
    assert moved.rounding == 37 * 0.5 + 0.5
    noise_alone = 37 * key.phases(x.ciphertexts).astype(object)
    off = [
        (int(phase) - int(before) - Fraction(38 * int(c) * modulus, q) + Fraction(modulus, 2)) % modulus
        - Fraction(modulus, 2)
        for phase, before, c in zip(key.phases(moved.ciphertexts), noise_alone, constants, strict=True)
    ]
    assert moved.rounding / 2 < max(map(abs, off)) <= moved.rounding
    params = key.parameters
    for rounding, fits in ((modulus / 2**18, True), (modulus / 2**17, False)):
        assert (large_search.sign_plan(params, Input(16, 1e-9, rounding), 18, -128.0) is not None) is fits
        assert (large_search.floor_plan(params, Input(16, 1e-9, rounding), 8, -128.0) is not None) is fits
    value = Input(32, encryption_norm(params, 1 << 32))
    plan = plan_of("floor", params, value, bits=24)
    left = plan.left_below(plan.outputs[0])
    floor = eval_floor(session, key.encrypt_integers([0, (1 << 32) - 1], 1 << 32), 24)
    assert 0 < left / 2**33 <= floor.rounding / modulus <= left / 2**33 + 20 / modulus


@pytest.mark.parametrize("name", ["toy", "lut3", "lut4_64"])
@pytest.mark.parametrize("norm", [0.0, 1.0, 2.0])
def test_functions_fail_as_full_domain_look_ups_do(name: str, norm: float) -> None:
    params = parameter_set(name)
    found = large_plan.function_p_fail_log2(params, 1 << params.message_bits, Input(0, norm), False)
    assert found == pytest.approx(noise.full_domain_p_fail_log2(params, norm), rel=1e-4)


@pytest.mark.gpu
def test_words_on_a_device_are_those_on_the_host(key: ClientKey) -> None:
    keys = key.evaluation_keys()
    host, device = Session(keys), Session(keys, device="cuda")
    m = some_of(device, edges_and_random(10))
    x = key.encrypt_integers(m, 1 << 10)
    there = x.to("cuda")
    np.testing.assert_array_equal(eval_sign(device, there).to_host().words, eval_sign(host, x).words)
    floor = eval_floor(device, there + 3, 6)
    assert floor.device.startswith("cuda")
    np.testing.assert_array_equal(floor.to_host().ciphertexts.words, eval_floor(host, x + 3, 6).ciphertexts.words)
    digits = zip(eval_decomp(device, there, digit_bits=2), eval_decomp(host, x, digit_bits=2), strict=True)
    for found, expected in digits:
        np.testing.assert_array_equal(found.to_host().words, expected.words)
    small = key.encrypt_integers(m % 5, 5)
    on_device = eval_func(device, small.to_device("cuda"), lambda v: v * v)
    np.testing.assert_array_equal(
        on_device.to_host().ciphertexts.words, eval_func(host, small, lambda v: v * v).ciphertexts.words
    )


# --- plans -----------------------------------------------------------------------------------------------------------------------


def clear_outputs(plan: Plan, m: int) -> list[Fraction]:
    """Every rotation in exact arithmetic: its input lies no nearer to an edge of a slot than the plan's margin, and it finds the right bits."""
    return [found for _, found in clear_rotations(plan, m)]


def clear_inputs(plan: Plan, m: int) -> list[Fraction]:
    return [phase for phase, _ in clear_rotations(plan, m)]


def clear_rotations(plan: Plan, m: int) -> list[tuple[Fraction, Fraction]]:
    """Input and output of each."""
    found: list[Fraction] = []
    phases = []
    for rotation in plan.rotations:
        phase = Fraction(m, 1 << rotation.top) + Fraction(plan.margin(rotation))
        for i in rotation.removed:
            phase -= found[i] * 2 ** (plan.rotations[i].scale - rotation.top)
        phase %= 1
        margin = Fraction(plan.margin(rotation))
        slot = Fraction(1, 1 << (rotation.top - rotation.position))
        assert margin <= phase % slot <= slot - margin
        if not rotation.sign:
            assert phase < Fraction(1, 2)
        lowest, end = rotation.found
        bits = int(phase * 2) if rotation.sign else int(phase / slot)
        assert bits == m >> lowest & ((1 << (end - lowest)) - 1)
        found.append(Fraction(bits, 1 << (rotation.scale - lowest)))
        phases.append(phase)
    return list(zip(phases, found, strict=True))


def summed(plan: Plan, found: list[Fraction]) -> list[Fraction]:
    return [
        sum((found[i] * 2 ** (plan.rotations[i].scale - output.scale) for i in output.parts), Fraction())
        for output in plan.outputs
    ]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("toy", -128.0),
        pytest.param("toy", -20.0, marks=ALL),
        *(
            pytest.param(name, target, marks=ALL)
            for name in ("toy_two_limb", "toy_extended_two_limb", "gate_64", "lut3", "large16", "lut8")
            for target in (-20.0, -128.0)
        ),
    ],
)
def test_plans_are_right_in_exact_arithmetic(name: str, target: float) -> None:
    """Of two limbs for every value of 9 bits, else of 5; for others at the edges and between."""
    params = parameter_set(name)
    exhaustive = 9 if name == "toy_two_limb" else 5
    for bits in (1, 2, 5, 9, 11, 20):
        value, q = Input(bits, encryption_norm(params, 1 << min(bits, 16))), 1 << bits
        values = range(q) if bits <= exhaustive else edges_and_random(bits, 10).tolist()
        for removed in {1, bits // 2, bits - 1} - {0, bits}:
            floor = large_search.floor_plan(params, value, removed, target)
            for m in values if floor else ():
                assert floor is not None
                (taken,) = summed(floor, clear_outputs(floor, m))
                assert 0 <= Fraction(m % (1 << removed), q) - taken <= Fraction(floor.left_below(floor.outputs[0]), q)
        sign = large_search.sign_plan(params, value, bits + 1, target)
        assert sign is not None and sign.p_fail_log2 <= target
        for m in values:
            assert clear_outputs(sign, m)[-1] == Fraction(m >> (bits - 1), 4)
        if params.message_bits < 2:
            continue
        lengths = [2] * (bits // 2) + [1] * (bits % 2)
        digits = plan_of("decomp", params, value, digits=lengths, p_fail_log2=target)
        for m in values:
            clear = digits_of(np.array(m), lengths)
            assert summed(digits, clear_outputs(digits, m)) == [
                Fraction(int(d), 2 << params.message_bits) for d in clear
            ]


PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "large-precision.md"


def stated_rotations() -> dict[str, list[int]]:
    """Rows of the table of docs/howto/large-precision.md."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d| ]+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: [int(number) for number in numbers.split(" | ")] for name, numbers in rows}


@pytest.mark.parametrize(
    ("name", "stated"),
    [pytest.param(*row, marks=() if row[0] == "lut3" else ALL) for row in stated_rotations().items()],
)
def test_rotations_are_those_of_the_documentation(name: str, stated: list[int]) -> None:
    params = parameter_set(name)

    def rotations(operation: str, length: int, **options: object) -> int:
        value = Input(length, encryption_norm(params, 1 << length))
        return len(plan_of(operation, params, value, **options).rotations)  # type: ignore[arg-type]

    def digits(length: int) -> list[int]:
        return [min(params.message_bits, length - start) for start in range(0, length, params.message_bits)]

    found = [rotations("sign", bits) for bits in (8, 16, 24, 32)]
    left = next(left for left in range(1, 24) if floor_of_24_bits(params, left) is None) - 1
    found += [left, *(rotations("floor", bits, bits=bits - 8) for bits in (12, 16, 32))]
    found += [rotations("decomp", bits, digits=digits(bits)) for bits in (8, 16, 32)]
    for negacyclic in (False, True):
        fits = functools.partial(function_fits, params, negacyclic=negacyclic)
        found.append(next(q for q in itertools.count(2, 1 + negacyclic) if not fits(q + 1 + negacyclic)))
    assert found == stated


def floor_of_24_bits(params: ParameterSet, left: int) -> Plan | None:
    return large_search.floor_plan(params, Input(24, encryption_norm(params, 1 << 24)), 24 - left, -128.0)


def function_fits(params: ParameterSet, modulus: int, *, negacyclic: bool) -> bool:
    value = Input(0, encryption_norm(params, modulus))
    return large_plan.function_p_fail_log2(params, modulus, value, negacyclic) <= -128


@pytest.mark.parametrize("bits", [8, 16, pytest.param(32, marks=ALL)])
def test_more_noise_or_a_smaller_failure_probability_never_takes_fewer_rotations(bits: int) -> None:
    params = parameter_set("lut4")
    counts = []
    for target in (-20.0, -64.0, -128.0, -300.0):
        plan = large_search.sign_plan(params, Input(bits, 2.0**-30), bits, target)
        assert plan is not None and plan.p_fail_log2 <= target
        counts.append(len(plan.rotations))
    assert counts == sorted(counts)
    assert large_search.sign_plan(params, Input(16, 1.0), 16, -128.0) is None  # a look-up's output has no 16 bits


# --- noise and failures ----------------------------------------------------------------------------------------------------------


@ALL
@pytest.mark.parametrize("name", ["toy_two_limb", "toy"])
def test_noise_of_a_chain_is_what_its_weight_norm_says(name: str) -> None:
    """Two floors, one after the other, in units of plain look-ups under the same key (a toy key of 32 bits is off the mean of all keys).

    4,000 of each: standard error of the ratio 1.6 %; bounds of five, a false alarm in 10^6.
    """
    key = ClientKey._from_entropy(name, bytes(range(1, 33)))
    session = Session(key.evaluation_keys())
    m = np.random.default_rng(5).integers(0, 1 << 9, 4000)
    floor = eval_floor(session, eval_floor(session, key.encrypt_integers(m, 1 << 9), 3), 3)
    words = encode_integers(key.parameters, (m >> 6).astype(np.uint64), 8)
    errors = (key.phases(floor.ciphertexts).astype(np.int64) - words.astype(np.int64)) / key.parameters.modulus
    errors -= np.rint(errors)
    _, unit = key.decrypt(session.bootstrap(key.encrypt(m % 4), [0, 1, 2, 3]), return_noise=True)
    ratio = np.sqrt(np.mean(errors**2) / np.mean(unit**2))
    assert floor.weight_norm > 1.5
    assert ratio == pytest.approx(floor.weight_norm, rel=5 / math.sqrt(len(m)))
    assert float(np.std(unit)) == pytest.approx(math.sqrt(noise.blind_rotation_variance(key.parameters)), rel=0.3)


class Recording(Session):
    """Keeps what look-ups are given."""

    seen: list[Ciphertexts]

    def bootstrap_negacyclic(self, ciphertexts: Ciphertexts, *arguments: Any, **options: Any) -> Ciphertexts:
        self.seen.append(ciphertexts)
        return super().bootstrap_negacyclic(ciphertexts, *arguments, **options)


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("toy_two_limb", "floor"),
        *(pytest.param(*case, marks=ALL) for case in (("toy", "sign"), ("toy_two_limb", "sign"), ("toy", "decomp"))),
    ],
)
def test_inputs_of_look_ups_have_the_noise_that_plans_count(name: str, operation: str) -> None:
    """Each look-up's, in units of plain ones under the same key; 2,000 values: standard error of a ratio 2.2 %, bounds of five."""
    key = ClientKey._from_entropy(name, bytes(range(1, 33)))
    session = Recording(key.evaluation_keys())
    bits = 8
    m = np.random.default_rng(8).integers(0, 1 << bits, 2000)
    x = key.encrypt_integers(m, 1 << bits)
    _, unit = key.decrypt(session.bootstrap(key.encrypt(m % 4), [0, 1, 2, 3]), return_noise=True)
    session.seen = []
    options: dict[str, Any] = {"sign": {}, "decomp": {"digits": [2, 2, 2, 2]}, "floor": {"bits": 4}}[operation]
    {"sign": eval_sign, "decomp": eval_decomp, "floor": eval_floor}[operation](session, x, **options)  # type: ignore[operator]
    plan = plan_of(operation, key.parameters, Input(bits, x.weight_norm), **options)
    clear = np.array([[float(phase) for phase in clear_inputs(plan, int(v))] for v in m])
    counted = []
    for i, (rotation, given) in enumerate(zip(plan.rotations, session.seen, strict=True)):
        errors = key.phases(given) / key.parameters.modulus - clear[:, i]
        errors -= np.rint(errors)
        squares = sum(4.0 ** (plan.rotations[j].scale - rotation.top) for j in rotation.removed)
        if squares:
            counted.append(squares)
            norm = float(np.sqrt(np.mean(errors**2) / np.mean(unit**2)))
            assert norm == pytest.approx(math.sqrt(squares), rel=5 / math.sqrt(len(m)))
    assert counted and max(counted) > 1


def with_noise(key: ClientKey, session: Session, m: np.ndarray, modulus: int, share: float) -> ModularIntegers:
    """Values whose noise is this share of half a slot, in standard deviations: look-ups' outputs, all different, times an integer."""
    zeros = session.bootstrap(key.encrypt(np.zeros(m.shape, int)), [1] * (1 << key.parameters.message_bits)) - 1
    factor = round(share / (2 * modulus) / math.sqrt(noise.blind_rotation_variance(key.parameters)))
    assert factor > 10  # finely enough
    return key.encrypt_integers(m, modulus) + ModularIntegers(zeros.with_encoding(Encoding.TORUS) * factor, modulus)


@pytest.mark.parametrize(("share", "target"), [pytest.param(0.4, -4.5, marks=ALL), (0.6, -2.0)])
@pytest.mark.parametrize(
    "operation", [*(pytest.param(name, marks=ALL) for name in ("sign", "floor", "decomp", "func")), "negacyclic"]
)
def test_failures_are_as_frequent_as_claimed(operation: str, share: float, target: float) -> None:
    """Of noisy values beside an edge, where a wrong look-up is a wrong result: never above the claim, not far below.

    4,000 values each, bounds four standard deviations wide (false alarm under 1 in 10,000 each). A claim adds up over look-ups that see one
    noise and counts both sides of an edge, of which a sign or function has one: up to six times too much. The key's noise is the mean of all.
    """
    key = ClientKey._from_entropy("toy_two_limb", bytes(32))
    session = Session(key.evaluation_keys())
    bits = {"sign": 8, "floor": 8, "decomp": 5}.get(operation, 3)
    q = 1 << bits
    m = np.resize([q // 2 - 1, q // 2, 0, q - 1], 4000)
    x = with_noise(key, session, m, q, share)
    value = Input(bits, x.weight_norm)
    options = {"floor": {"bits": 1}, "decomp": {"digits": [1] * bits}, "sign": {}}
    if operation in options:
        plan = plan_of(operation, key.parameters, value, p_fail_log2=target, **options[operation])  # type: ignore[arg-type]
        claimed = 2.0**plan.p_fail_log2
    else:
        claimed = 2.0 ** large_plan.function_p_fail_log2(key.parameters, q, value, operation == "negacyclic")
    match operation:
        case "sign":
            wrong = key.decrypt(eval_sign(session, x, p_fail_log2=target)) != m >> (bits - 1)
        case "floor":
            wrong = key.decrypt_integers(eval_floor(session, x, 1, p_fail_log2=target)) != m >> 1
        case "decomp":
            found = eval_decomp(session, x, [1] * bits, p_fail_log2=target)
            pairs = zip(found, digits_of(m, [1] * bits), strict=True)
            wrong = np.any([key.decrypt(digit) != clear for digit, clear in pairs], axis=0)
        case "func":
            wrong = key.decrypt_integers(eval_func(session, x, range(q), p_fail_log2=target)) != m
        case _:
            f = np.array([0, 1, 2, 3, 0, 7, 6, 5])
            wrong = key.decrypt_integers(eval_func(session, x, f, p_fail_log2=target)) != f[m]
    measured, scatter = float(wrong.mean()), 4 * math.sqrt(claimed / len(m))
    assert 0.002 < claimed
    assert claimed / 6 - scatter <= measured <= claimed + scatter


# --- refusals --------------------------------------------------------------------------------------------------------------------


def test_what_is_no_value(two_limbs: tuple[ClientKey, Session]) -> None:
    key, session = two_limbs
    x = key.encrypt_integers([1, 2], 256)
    messages = key.encrypt([1])
    for call in (eval_sign, lambda s, v: eval_floor(s, v, 1), lambda s, v: eval_func(s, v, lambda m: m)):
        with pytest.raises(ShapeError, match="expected ModularIntegers, got Ciphertexts"):
            call(session, messages)  # type: ignore[arg-type]
        with pytest.raises(ShapeError, match="at least one"):
            call(session, x[:0])
        with pytest.raises(KeyMismatchError):
            call(session, ClientKey.generate("toy_two_limb").encrypt_integers([1], 256))
        with pytest.raises(KeyMismatchError):
            call(session, ClientKey.generate("toy").encrypt_integers([1], 256))
    with pytest.raises(ParameterError, match="expected ciphertexts of encoding torus, got message"):
        ModularIntegers(messages, 4)
    with pytest.raises(ShapeError, match="expand seeded ones"):
        ModularIntegers(key.encrypt_integers_seeded([1], 4), 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("modulus", [0, 1, -4, (1 << 32) + 1, 1 << 64, 2.0, "256", True, None])
def test_what_is_no_modulus(two_limbs: tuple[ClientKey, Session], modulus: object) -> None:
    with pytest.raises(FheError, match="modulus: expected an integer"):
        two_limbs[0].encrypt_integers([0], modulus)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[256], [-129], [1.5], [], ["a"], [1 << 70], [None]])
def test_values_out_of_range(two_limbs: tuple[ClientKey, Session], values: list[object]) -> None:
    with pytest.raises(FheError, match="integers: expected"):
        two_limbs[0].encrypt_integers(values, 256)  # type: ignore[arg-type]


def test_mixed_moduli_and_wrong_operands(two_limbs: tuple[ClientKey, Session]) -> None:
    key, session = two_limbs
    x = key.encrypt_integers([1, 2], 256)
    with pytest.raises(ParameterError, match="expected one modulus, got 256 and 16"):
        x + key.encrypt_integers([1, 2], 16)
    for wrong in (0.5, "a", None, 1 << 70):
        with pytest.raises(ShapeError):
            x + wrong
        with pytest.raises(ShapeError):
            x * wrong
    odd = key.encrypt_integers([1], 255)
    for call in (eval_sign, lambda s, v: eval_floor(s, v, 1), lambda s, v: eval_decomp(s, v, digit_bits=2)):
        with pytest.raises(ParameterError, match="a power of two"):
            call(session, odd)


def test_wrong_bits_digits_and_functions(two_limbs: tuple[ClientKey, Session]) -> None:
    key, session = two_limbs
    x = key.encrypt_integers([1, 2], 256)
    for bits in (8, 9, -1, 1.0, True, None):
        with pytest.raises(FheError, match="bits: expected"):
            eval_floor(session, x, bits)  # type: ignore[arg-type]
    for digits in ([4, 4], [2, 2, 2], [2, 2, 2, 2, 0], [], [8], [2.0] * 4, "2222", 4, [2, 2, 2, 2, 2]):
        with pytest.raises(FheError, match="digits: expected"):
            eval_decomp(session, x, digits)  # type: ignore[arg-type]
    for digit_bits in (0, 3, -1, 1.5):
        with pytest.raises(FheError, match="digit"):
            eval_decomp(session, x, digit_bits=digit_bits)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="both or neither"):
        eval_decomp(session, x)
    with pytest.raises(ParameterError, match="output: expected"):
        eval_sign(session, x, output=Encoding.TORUS)
    with pytest.raises(ParameterError, match="output: expected"):
        eval_decomp(session, x, digit_bits=2, output=Encoding.BOOLEAN)
    small = key.encrypt_integers([1, 2], 4)
    for function in ([1, 2, 3], [0.5] * 4, [[1, 2], [3]], lambda m: "a", np.zeros((4, 4), int), [1 << 70] * 4):
        with pytest.raises(ShapeError, match="function: expected"):
            eval_func(session, small, function)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="moduli up to 10 are possible"):
        eval_func(session, x, lambda m: m)
    with pytest.raises(ParameterError, match="moduli up to 10 are possible"):  # at once: f is not asked for 2^32 values
        eval_func(session, key.encrypt_integers([1], 1 << 32), lambda m: m)
    for p_fail_log2 in (0, 1.0, float("nan"), -2000, "a", True):
        with pytest.raises(FheError, match="p_fail_log2: expected"):
            eval_sign(session, x, p_fail_log2=p_fail_log2)  # type: ignore[arg-type]


def test_refusals_say_what_is_possible(two_limbs: tuple[ClientKey, Session]) -> None:
    """And what they say is."""
    key, session = two_limbs
    x = key.encrypt_integers([1, 1 << 31], 1 << 32)
    with pytest.raises(ParameterError, match=r"results of up to 14 bits are possible"):
        eval_floor(session, x, 8)
    np.testing.assert_array_equal(key.decrypt_integers(eval_floor(session, x, 18)), [0, 1 << 13])


def test_progress_counts_all_rotations_and_cancels(two_limbs: tuple[ClientKey, Session]) -> None:
    key, session = two_limbs
    x = key.encrypt_integers(np.arange(7), 1 << 12)
    calls: list[tuple[int, int]] = []
    eval_sign(session, x, progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls) and len({total for _, total in calls}) == 1
    assert calls[-1][0] == calls[-1][1]
    with pytest.raises(CancelledError):
        eval_sign(session, x, progress=lambda done, total: done < total // 2)
