"""Phases that an answer may have: multiples of the program's unit and its noise, or any, shown no finer than its noise.

The unit is the server's word. What the client checks of it: that the noise that every answer of the set has leaves room for it, and that answers lie
near its multiples. An answer of a program without a unit is rounded to a grid below the least noise that it can have: finer digits are noise, and
tell nothing but that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.errors import KeyMismatchError
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.session.answer_masks import check_masks
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.models.arrays import Reals

if TYPE_CHECKING:
    from cloakwork.fhe_core.client import ClientKey

DEVIATIONS: Final = 8  # of the least noise, in half a unit
FARTHEST: Final = 7 / 8  # of half a unit: an answer that is farther from every multiple is none of this program


def least_deviation(params: ParameterSet, word_bits: int | None = None) -> float:
    """Returns the least deviation of the noise of an answer, as a fraction of the torus: that of re-randomisation, and where words come in few
    bits that of rounding them."""
    variance = noise.rerandomisation_variance(params)
    return math.sqrt(variance if word_bits is None else variance + noise.word_rounding_variance(params, word_bits))


def least_unit(params: ParameterSet) -> float:
    """Returns the least unit: of half of it the noise of re-randomisation is an eighth. Programs whose only noise is that, linear ones, have no
    finer unit either."""
    return 2 * DEVIATIONS * least_deviation(params)


def grid_step(params: ParameterSet, word_bits: int | None = None) -> float:
    """Returns a power of two, between a quarter and a half of the least deviation: rounding to it adds at most 2 % to the variance."""
    return 2.0 ** (math.floor(math.log2(least_deviation(params, word_bits))) - 1)


@dataclass(frozen=True)
class AnswerGrid:
    parameters: ParameterSet
    unit: float  # 0: outputs are real numbers

    def phases(self, key: ClientKey, answer: Ciphertexts | SwitchedCiphertexts) -> Reals:
        """Decrypts an answer to phases, fractions of the torus of its shape.

        Raises:
            KeyMismatchError: no fractions of the torus, or farther from all multiples of the unit than noise brings them.
            SerializationError: masks that no evaluation gives.
        """
        if answer.encoding is not Encoding.TORUS:
            raise KeyMismatchError(f"answer: expected fractions of the torus, got encoding {answer.encoding.label}")
        words = answer.expand() if isinstance(answer, SwitchedCiphertexts) else answer
        check_masks(words)
        phases = np.asarray(key.decrypt(words), dtype=np.float64)
        if self.unit > 0:
            self._check(phases)
            return phases
        step = grid_step(self.parameters, words.rounded_bits)
        return np.asarray(np.rint(phases / step) * step)

    def _check(self, phases: Reals) -> None:
        multiples = phases / self.unit
        far = np.abs(multiples - np.rint(multiples)) > FARTHEST / 2
        if far.any():
            raise KeyMismatchError(
                f"answer: {int(far.sum())} of {far.size} numbers are none that the program gives, beside noise of {FARTHEST:.0%} of half a unit; "
                "it is not of this program, or was damaged"
            )
