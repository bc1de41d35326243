"""Sets of rounded products: one word for every processor, errors as large as the noise model says, and machines that are refused."""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import math
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core import _engine, noise
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.parameters import parameter_text

NAME = "toy_fft"
ENTROPY = hashlib.sha256(b"tests/fhe_core/test_rounded_products.py").digest()
# SHA-256 of what two rotations under the key of that entropy give. Compilers, flags, libraries and processors must not change it.
WORDS_DIGEST = "64fa2ec540a3e52075f3e11dd83c9486360bb73784da5726ce687a9ee973d9d2"

FE_TONEAREST, FE_UPWARD = 0, 0x800  # of <fenv.h>, x86
reference = _engine.reference


class Rotation:
    """A key, and two switched ciphertexts with their tables."""

    def __init__(self) -> None:
        self.params = _engine.parameter_set(NAME)
        secret = _engine.SecretKey.generate(self.params, ENTROPY)
        self.seed, self.bodies, self.keyswitch_bodies = secret.evaluation_keys()
        self.bootstrap_key = reference.expand_bootstrap_key(self.params, self.seed, self.bodies)
        rng = np.random.default_rng(1)
        entries = self.params.table_size
        self.switched = rng.integers(0, 2 * entries, (2, self.params.lwe_dimension + 1), dtype=np.uint32)
        self.tables = rng.integers(0, self.params.modulus, (2, entries), dtype=np.uint32)
        self.index = np.arange(2, dtype=np.uint32)

    def expected(self) -> np.ndarray:
        return reference.blind_rotate(self.params, self.bootstrap_key, self.switched, self.tables, self.index)


@pytest.fixture(scope="module")
def rotation() -> Rotation:
    return Rotation()


def digest(words: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(words, dtype="<u4").tobytes()).hexdigest()


def test_words_are_those_of_every_machine(rotation: Rotation) -> None:
    assert digest(rotation.expected()) == WORDS_DIGEST


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_instruction_sets_give_the_words_of_the_reference(
    rotation: Rotation, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOAKWORK_CPU", isa)
    try:
        key = _engine.CpuKey(rotation.params, rotation.seed, rotation.bodies, rotation.keyswitch_bodies)
    except ParameterError as error:
        pytest.skip(str(error))
    words = _engine.CpuSession(key, 1).blind_rotate(rotation.switched, rotation.tables, rotation.index)
    assert np.array_equal(words, rotation.expected())


def packed(values: list[int], width: int) -> int:
    """The sum of value_i * 2^(8 width i), values signed and shorter than a place."""
    half = 1 << (8 * width - 1)
    places = b"".join((value + half).to_bytes(width, "little") for value in values)
    return int.from_bytes(places, "little") - int.from_bytes(half.to_bytes(width, "little") * len(values), "little")


def negacyclic_product(a: list[int], b: list[int], width: int = 12) -> list[int]:
    """a * b modulo X^N + 1 as exact integers: whole polynomials as integers, `width` bytes a coefficient (Kronecker)."""
    n, half = len(a), 1 << (8 * width - 1)
    offset = int.from_bytes(half.to_bytes(width, "little") * 2 * n, "little")
    product = (packed(a, width) * packed(b, width) + offset).to_bytes(2 * n * width, "little")
    coefficients = [int.from_bytes(product[width * i : width * (i + 1)], "little") - half for i in range(2 * n)]
    return [low - high for low, high in zip(coefficients[:n], coefficients[n:], strict=True)]


def digits(params: Any, words: np.ndarray, base_log: int) -> list[int]:
    drop = 27 - base_log
    centred = [int(w) - params.modulus if int(w) > params.modulus // 2 else int(w) for w in words]
    return [(x + (1 << (drop - 1))) >> drop for x in centred]


def exact_update(params: Any, step_key: np.ndarray, exponents: np.ndarray, accumulator: np.ndarray) -> np.ndarray:
    """The same sum modulo QP in integers, [k + 1][N]."""
    n, q = params.polynomial_size, params.key_modulus
    rows = [
        digits(params, accumulator[0], params.mask_gadget[0]),
        digits(params, accumulator[1], params.body_gadget[0]),
    ]
    total = np.zeros((2, n), dtype=object)
    for key in range(len(step_key)):
        for out in range(2):
            pairs = [negacyclic_product(rows[r], [int(w) for w in step_key[key, r, out]]) for r in range(2)]
            product = np.array(pairs[0], dtype=object) + np.array(pairs[1], dtype=object)
            shift = int(exponents[key]) % (2 * n)
            moved = np.roll(product, shift % n)
            moved[: shift % n] *= -1
            total[out] += (moved if shift < n else -moved) - product
    return total % q


def test_errors_of_a_step_are_those_of_the_model_from_both_sides(rotation: Rotation) -> None:
    """One coefficient's error: `transform_variance` but for the factor that brings it into a phase; 0.84 of the model when this was written."""
    params, rng = rotation.params, np.random.default_rng(2)
    errors = []
    for step in range(params.step_count):
        accumulator = rng.integers(0, params.modulus, (2, params.polynomial_size), dtype=np.uint32)
        exponents = rng.integers(1, 2 * params.polynomial_size, params.keys_per_step, dtype=np.uint32)
        step_key = rotation.bootstrap_key[step]
        turns = reference.rounded_update(params, step_key, exponents, accumulator)
        # Both modulo one turn, to 2^-60: the double's bits are exact in the integers.
        exact = exact_update(params, step_key, exponents, accumulator) * 2**60 // params.key_modulus
        found = np.array([int(math.ldexp(x % 1.0, 60)) for x in turns.ravel()], dtype=object).reshape(exact.shape)
        difference = (found - exact + 2**59) % 2**60 - 2**59
        errors.append(difference.astype(float) * 2.0**-60)
    measured = float(np.mean(np.square(errors)))
    masks = params.large_dimension / 2  # E[S^2] of a binary secret
    ratio = measured / (noise.transform_variance(params) / (masks + 1))
    assert 0.7 < ratio < 1.05, f"{ratio:.3f} times the model's variance"
    assert abs(float(np.mean(errors))) < 5 * math.sqrt(measured / np.size(errors))


def test_rounded_products_are_in_the_digest_of_the_set() -> None:
    params = _engine.parameter_set(NAME)
    assert params.rounded_products and params.raised
    assert "rounded_products=True\n" in parameter_text(params)
    exact = [_engine.parameter_set(name) for name in _engine.parameter_set_names() if "fft" not in name]
    assert not any(other.rounded_products for other in exact)
    assert not any("rounded_products" in parameter_text(other) for other in exact)


def test_a_processor_without_fused_multiply_adds_is_refused(
    rotation: Rotation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOAKWORK_CPU", "baseline")
    with pytest.raises(ParameterError, match="fused multiply-adds, which the 'baseline' kernels lack"):
        _engine.CpuKey(rotation.params, rotation.seed, rotation.bodies, rotation.keyswitch_bodies)


@contextmanager
def rounding_upward() -> Iterator[None]:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    assert library.fesetround(FE_UPWARD) == 0
    try:
        yield
    finally:
        assert library.fesetround(FE_TONEAREST) == 0


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the number of a rounding mode is x86's")
def test_another_rounding_mode_is_refused(rotation: Rotation) -> None:
    key = _engine.CpuKey(rotation.params, rotation.seed, rotation.bodies, rotation.keyswitch_bodies)
    session = _engine.CpuSession(key, 1)
    with rounding_upward(), pytest.raises(ParameterError, match="this thread has another rounding mode"):
        session.blind_rotate(rotation.switched, rotation.tables, rotation.index)
    with rounding_upward(), pytest.raises(ParameterError, match="this thread has another rounding mode"):
        _engine.CpuKey(rotation.params, rotation.seed, rotation.bodies, rotation.keyswitch_bodies)
    assert np.array_equal(session.blind_rotate(rotation.switched, rotation.tables, rotation.index), rotation.expected())
