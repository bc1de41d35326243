"""Evaluation keys that no key generation makes: what a hostile client can have a server compute with its own tables.

All secrets are zero, so that the body of every ciphertext is its phase and masks mean nothing. Rows of the bootstrap key have bodies of
zero but for those of the first step's body rows, polynomials B_0, B_1, B_2 of the client's choice. A blind rotation then ends with the body

    R + sum over j of (X^e_j - 1) B_j digits(R),   R = X^-t_b table,

whose coefficient 0 is any linear function of the table's entries: (e_0, e_1, e_0 + e_1) follow from masks that the client knows.
docs/decisions/crafted-keys.md says what that is worth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys

FIRST_PRIME = 132710401  # q0 of docs/reference/specification.md; Q = q0 q1 of sets of two limbs
SEED, KEY_ID = bytes(range(32)), bytes(16)

Integers = NDArray[np.int64]


def crafted_keys(params: ParameterSet, bodies: NDArray[np.uint64] | None = None) -> EvaluationKeys:
    """Under secrets of zero. Args: bodies: [keys of a step, N], of the first step of a set with one digit a component; None: zeros."""
    key = np.zeros((params.lwe_dimension // 2, 3, 2, params.polynomial_size), np.uint64)
    if bodies is not None:
        key[0, :, 1] = bodies
    keyswitch = np.zeros((params.large_dimension, params.keyswitch_gadget[1]), np.uint32)
    public = np.zeros((1, params.polynomial_size), np.uint64)
    return EvaluationKeys(params, SEED, key, keyswitch, SEED[::-1], public, KEY_ID)


def crafted_input(params: ParameterSet, phases: NDArray[Any], program: bytes) -> SeededPackedCiphertexts:
    """Torus words [samples, numbers] as bodies, under masks that follow from the seed."""
    count = -(-phases.size // params.polynomial_size)
    bodies = np.zeros(count * params.polynomial_size, np.uint64)
    bodies[: phases.size] = phases.reshape(-1)
    packed = SeededPackedCiphertexts(
        params, SEED, bodies.reshape(count, -1), phases.shape, encoding=Encoding.TORUS, key_id=KEY_ID
    )
    return packed.with_purpose(program)


def rotations(session: Session, inputs: Ciphertexts, weights: NDArray[np.int64]) -> Integers:
    """[samples, look-ups, 4]: the exponents e_j of the first step and t_b, when indices are these sums [look-ups, numbers] of the inputs.

    t_b without what the server adds to an index, which moves a table by whole slots.
    """
    switched = session.modulus_switch(session.keyswitch(session.linear(weights, inputs))).astype(np.int64)
    first, second, body = switched[..., 0], switched[..., 1], switched[..., -1]
    size = session.parameters.polynomial_size
    return np.stack([first, second, first + second, (body + size) % (2 * size) - size], axis=-1)


def slot_rows(slots: int, size: int, rotation: Integers) -> Integers:
    """[slots, 3 N]: what the coefficients of each slot of the table count for in coefficient 0, together, as a linear function of B_0, B_1, B_2.

    Args: rotation: [4], of a look-up.
    """
    rows = np.zeros((slots, 3, size), np.int64)
    wide, shift = size // slots, int(rotation[3])
    for slot in range(slots):
        places = slot * wide - wide // 2 - shift + np.arange(wide)
        indicator = np.zeros(size, np.int64)
        indicator[places % size] = np.where(places // size % 2 == 0, 1, -1)  # X^N = -1
        for j, exponent in enumerate(rotation[:3].tolist()):
            factor = _turned(indicator, exponent) - indicator
            rows[slot, j] = np.concatenate([factor[:1], -factor[:0:-1]])
    return rows.reshape(slots, -1)


def solution(rows: Integers, values: NDArray[np.object_], modulus: int) -> NDArray[np.uint64]:
    """x with rows x = values modulo Q = q0 q1; there are fewer rows than unknowns."""
    second = modulus // FIRST_PRIME
    first_part = _solution_modulo(rows, (values % FIRST_PRIME).astype(np.int64), FIRST_PRIME)
    second_part = _solution_modulo(rows, (values % second).astype(np.int64), second)
    lift = FIRST_PRIME * pow(FIRST_PRIME, -1, second)
    whole = [(a + lift * (b - a)) % modulus for a, b in zip(first_part.tolist(), second_part.tolist(), strict=True)]
    return np.array(whole, np.uint64)


def _turned(polynomial: Integers, exponent: int) -> Integers:
    """X^exponent times a polynomial modulo X^N + 1."""
    size = len(polynomial)
    shift, sign = exponent % size, 1 if exponent // size % 2 == 0 else -1
    turned = np.roll(polynomial, shift)
    turned[:shift] *= -1
    return sign * turned


def _solution_modulo(rows: Integers, values: Integers, prime: int) -> Integers:
    """Gauss-Jordan; free unknowns are zero. Products of two residues are below 2^54."""
    system = np.concatenate([rows % prime, values[:, None]], axis=1)
    pivots = []
    for row in range(len(system)):
        pivot = int(np.argmax(system[row, :-1] != 0))
        assert system[row, pivot], "dependent demands"
        system[row] = system[row] * pow(int(system[row, pivot]), -1, prime) % prime
        factors = system[:, pivot].copy()
        factors[row] = 0
        busy = np.flatnonzero(factors)
        system[busy] = (system[busy] - factors[busy, None] * system[row]) % prime
        pivots.append(pivot)
    found = np.zeros(rows.shape[1], np.int64)
    found[pivots] = system[:, -1]
    return found
