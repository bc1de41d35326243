"""What a client can do with a linear model's answer that was not re-randomised: find every integer weight in one mask."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.ciphertexts import Ciphertexts

FIRST_PRIME = 132710401  # q0 of docs/reference/specification.md: a field, unlike integers modulo Q


def integer_weights(inputs: Ciphertexts, answer: Ciphertexts) -> NDArray[np.int64] | None:
    """w with mask(answer) = sum_i w_i mask(input_i) modulo q0, from kN equations; None when there is no such w.

    Args:
        inputs: one sample, extracted with the client's own evaluation keys, [C].
        answer: one output for it, a single ciphertext.
    """
    columns = [*inputs.words[:, :-1], answer.words[:-1]]
    system = np.stack([column.astype(np.uint64) % np.uint64(FIRST_PRIME) for column in columns], axis=1).astype(
        np.int64
    )
    unknowns = len(inputs)
    for column in range(unknowns):
        pivot = column + int(np.argmax(system[column:, column] != 0))
        system[[column, pivot]] = system[[pivot, column]]
        system[column] = system[column] * pow(int(system[column, column]), -1, FIRST_PRIME) % FIRST_PRIME
        factors = system[:, column].copy()
        factors[column] = 0
        system = (system - factors[:, None] * system[column]) % FIRST_PRIME
    if system[unknowns:, unknowns].any():
        return None
    found = system[:unknowns, unknowns]
    return np.where(found > FIRST_PRIME // 2, found - FIRST_PRIME, found)
