"""The fewest bits in which a program's answers may be sent: rounding of words must not show beside their noise."""

from __future__ import annotations

from typing import Final

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet, word_bytes
from cloakwork.fhe_core.wire import layout as wire_layout
from cloakwork.models.program.phase_noise import phase_noise, weight_norms
from cloakwork.models.program.program import Program

ROUNDING_SHARE: Final = 1 / 256  # of an output's variance at most: 0.2 % of the standard deviation


def answer_bits(program: Program) -> int | None:
    """Returns log2 of the modulus that answers are switched to; None where full words are as small (linear models, whose answers have hardly any
    noise).

    The least b whose rounding has at most ROUNDING_SHARE of the variance of the noisiest output.
    """
    outputs = [norms for norms in weight_norms(program.graph) if norms.is_output]
    return bits_beside(program.parameters, max(phase_noise(program.parameters, norms) ** 2 for norms in outputs))


def bits_beside(params: ParameterSet, variance: float) -> int | None:
    """Returns the same for a noisiest output of this variance."""
    allowed = ROUNDING_SHARE * variance
    for bits in range(1, min(wire_layout.MAX_WORD_BITS, 8 * word_bytes(params) - 1) + 1):
        if noise.word_rounding_variance(params, bits) <= allowed:
            return bits
    return None


def answer_bytes(program: Program) -> int:
    """Counts the bytes of one sample, without the fixed part of its object."""
    return bytes_of(program.parameters, program.graph.output.size, answer_bits(program))


def bytes_of(params: ParameterSet, outputs: int, bits: int | None) -> int:
    """Counts the bytes of this many outputs. Args: bits: of a word; None: full ones."""
    words = outputs * params.large_words
    return words * word_bytes(params) if bits is None else (words * bits + 7) // 8
