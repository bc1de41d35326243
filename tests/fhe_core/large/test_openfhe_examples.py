"""What OpenFHE's five binfhe example programs show, with our calls: docs/howto/large-precision.md has the table. Written anew, results checked.

OpenFHE's parameter sets have plaintext moduli of their own; ours are chosen per value. On toys and on `large16`.
"""

from __future__ import annotations

import numpy as np
import pytest

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.large.precision import eval_bin_gate, eval_decomp, eval_floor, eval_func, eval_sign
from cloakwork.fhe_core.server import Session

LARGE16 = pytest.param("large16", marks=pytest.mark.tier("all"))


def context(name: str) -> tuple[ClientKey, Session]:
    """GenerateBinFHEContext, KeyGen, BTKeyGen."""
    key = ClientKey.generate(name)
    return key, Session(key.evaluation_keys())


def test_boolean() -> None:
    """(1 AND 1) OR (NOT 1 AND 1), then every gate of its table."""
    key, session = context("toy_gate")
    one, other = key.encrypt_bits(True), key.encrypt_bits(True)
    both = eval_bin_gate(session, "AND", one, other)
    neither = eval_bin_gate(session, "AND", eval_bin_gate(session, "NOT", other), one)
    assert bool(key.decrypt(eval_bin_gate(session, "OR", both, neither)))
    a, b, c = np.indices((2, 2, 2)).reshape(3, 8).astype(bool)
    x, y, z = (key.encrypt_bits(bits) for bits in (a, b, c))
    two = {
        "AND": a & b,
        "OR": a | b,
        "NAND": ~(a & b),
        "NOR": ~(a | b),
        "XOR": a ^ b,
        "XNOR": ~(a ^ b),
        "ANDNY": ~a & b,
        "ANDYN": a & ~b,
        "ORNY": ~a | b,
        "ORYN": a | ~b,
    }
    for gate, clear in two.items():
        np.testing.assert_array_equal(key.decrypt(eval_bin_gate(session, gate, x, y)), clear, gate)
    three = {"MAJORITY": a.astype(int) + b + c >= 2, "MUX": np.where(a, b, c), "AND3": a & b & c, "OR3": a | b | c}
    for gate, clear in three.items():
        np.testing.assert_array_equal(key.decrypt(eval_bin_gate(session, gate, x, y, z)), clear, gate)


@pytest.mark.parametrize("name", ["toy_large", LARGE16])
def test_eval_function(name: str) -> None:
    """The cube modulo 8 of every number modulo 8: no property that a single rotation could use."""
    key, session = context(name)
    plaintext_modulus = 8

    def cube(m: int) -> int:
        return m**3 % plaintext_modulus

    for m in range(plaintext_modulus):
        result = eval_func(session, key.encrypt_integers(m, plaintext_modulus), cube)
        assert int(key.decrypt_integers(result)) == cube(m)


@pytest.mark.parametrize("name", ["toy_large", LARGE16])
def test_eval_floor(name: str) -> None:
    """The lowest bits of numbers around the middle are rounded off."""
    key, session = context(name)
    bits, rounded = 12, 5
    m = (1 << (bits - 1)) + np.arange(-3, 4)
    floors = eval_floor(session, key.encrypt_integers(m, 1 << bits), rounded)
    np.testing.assert_array_equal(key.decrypt_integers(floors), m >> rounded)


@pytest.mark.parametrize("name", ["toy_large", LARGE16])
def test_eval_sign(name: str) -> None:
    """Eight numbers around half of the modulus: five are above."""
    key, session = context(name)
    bits = 17
    m = (1 << (bits - 1)) + np.arange(-3, 5)
    signs = eval_sign(session, key.encrypt_integers(m, 1 << bits), output=Encoding.BOOLEAN)
    assert key.decrypt(signs).tolist() == [False] * 3 + [True] * 5


@pytest.mark.parametrize(
    ("name", "digit_bits"),
    [("toy_two_limb", 2), ("toy_large", 4), pytest.param("large16", 4, marks=pytest.mark.tier("all"))],
)
def test_eval_decomposition(name: str, digit_bits: int) -> None:
    """Numbers around half of the modulus in digits, lowest first; they make the number again."""
    key, session = context(name)
    bits = 16
    m = (1 << (bits - 1)) + np.arange(-1, 1)
    digits = eval_decomp(session, key.encrypt_integers(m, 1 << bits), digit_bits=digit_bits)
    assert len(digits) == bits // digit_bits
    clear = [key.decrypt(digit) for digit in digits]
    assert max(int(digit.max()) for digit in clear) < 1 << digit_bits
    np.testing.assert_array_equal(sum(digit << (digit_bits * i) for i, digit in enumerate(clear)), m)
