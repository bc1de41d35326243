"""The fewest bits in which a program's answers may be sent: rounding of words must not show beside their noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.errors import KeyMismatchError
from cloakwork.fhe_core.parameters import ParameterSet, word_bytes
from cloakwork.fhe_core.session.answer_masks import check_masks
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.fhe_core.wire import layout as wire_layout
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Graph, Linear, wire_numbers, wires
from cloakwork.models.graph.merge_equal import is_output
from cloakwork.models.program.program import Program

if TYPE_CHECKING:
    from cloakwork.fhe_core.client import ClientKey


# Phases that an answer may have: multiples of the program's unit and its noise, or any, shown no finer than its noise.
#
# The unit is the server's word. What the client checks of it: that the noise that every answer of the set has leaves room for it, and that
# answers lie
# near its multiples. An answer of a program without a unit is rounded to a grid below the least noise that it can have: finer digits are noise, and
# tell nothing but that.

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


@dataclass(frozen=True)
class Norms:
    """The largest L2 norms of a linear node's integer rows, by where their noise comes from; `within_rotations` is the largest sum of |v w| over
    pairs of weights v, w on different outputs of one rotation, which are correlated a little. Weights on the zero wire count as on the input in nodes
    that read it: which comparisons of a tree are constants is nobody's business."""

    origin: str
    on_input: float
    on_lookups: float
    is_output: bool
    within_rotations: float = 0.0


def weight_norms(graph: Graph) -> list[Norms]:
    """Returns the norms of each linear node. Wires are taken as independent: the graph has no equal look-ups (merge_equal)."""
    result = []
    rotation = _rotations(graph)
    for node in graph.linears:
        on_input, on_lookups = (float(squares.max()) for squares in squared_norms(graph, node, zero_counts=True))
        within = 0.0 if rotation is None else _within_rotations(node, rotation)
        result.append(Norms(node.origin, math.sqrt(on_input), math.sqrt(on_lookups), is_output(graph, node), within))
    return result


def squared_norms(graph: Graph, node: Linear, zero_counts: bool = False) -> tuple[Reals, Reals]:
    """Returns [P, R] each: of the integer rows, on the input and on results of look-ups. Args: zero_counts: with the input, where the node reads
    that."""
    from_input = np.append(graph.owners()[:-1] == 0, False)
    from_input[-1] = zero_counts and bool(from_input[node.gather].any())
    on_input, on_lookups = np.zeros((2, len(node.gather), node.weights.shape[1]))
    for block in np.unique(node.block):
        chosen = node.block == block
        gather = node.gather[chosen]
        fresh = from_input[gather]
        squares = np.square(node.weights[block].astype(np.float64)).T
        on_input[chosen] = fresh @ squares
        on_lookups[chosen] = (~fresh & (gather >= 0)) @ squares
    return on_input, on_lookups


def _rotations(graph: Graph) -> Indices | None:
    """Returns [wires + 1]: the first output of the rotation that a wire comes from, -1 for others; None when no rotation has several outputs."""
    shifted = [node for node in graph.lookups if node.shifts is not None and len(node.shifts) > 1]
    if not shifted:
        return None
    rotation = np.full(graph.wire_count + 1, -1, dtype=np.int64)
    for node in shifted:
        outputs = node.size // len(node.gather)
        rotation[wires(node)] = np.repeat(wire_numbers(node)[::outputs], outputs)
    return rotation


def _within_rotations(node: Linear, rotation: Indices) -> float:
    largest = 0.0
    for gather, block in zip(node.gather, node.block, strict=True):
        inside = np.flatnonzero(rotation[gather] >= 0)
        if len(inside) < 2:
            continue
        strength = np.abs(node.weights[block][:, inside].astype(np.float64))
        _, group = np.unique(rotation[gather[inside]], return_inverse=True)
        sums = np.zeros((int(group.max()) + 1, len(strength)))
        np.add.at(sums, group.reshape(-1), strength.T)
        largest = max(largest, float((np.square(sums).sum(axis=0) - np.square(strength).sum(axis=1)).max()))
    return largest


def phase_noise(params: ParameterSet, norms: Norms) -> float:
    """Returns standard deviation, as a fraction of the torus, that the look-ups (or the client) see after this linear node."""
    variance = noise.linear_variance(noise.fresh_variance(params), norms.on_input)
    variance += noise.linear_variance(noise.blind_rotation_variance(params), norms.on_lookups)
    correlated = norms.within_rotations * noise.rotation_correlation_bound(params) if norms.within_rotations else 0.0
    variance += correlated * noise.blind_rotation_variance(params)
    if norms.is_output:
        variance += noise.rerandomisation_variance(params)
    else:
        variance += noise.keyswitch_variance(params) + noise.modulus_switch_variance(params)
    return math.sqrt(variance)


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
