"""Costs of a sample, in a batch or alone: counted transforms and products, times the measured time of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cloakwork.fhe_core.levelled.forecast import Work
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.models.program import Program
from cloakwork.models.program.answers import answer_bytes
from cloakwork.models.report import Report
from cloakwork.models.report.costs import cpu_estimate

# Nanoseconds on one thread of an EPYC, 2026-11-26 (tests/benchmarks/batch_scoring.py --rates).
TRANSFORM_NS: Final = 0.3  # of one prime's polynomial, by N log2 N
PRODUCT_NS: Final = 0.25  # of a word, added to a sum
TABLE_NS: Final = 1.4  # likewise with a polynomial of a table
EXPANDED_NS: Final = 4.0  # of a word that follows from the seed of what was sent
ENCRYPTED_NS: Final = 13.0  # of a word of a fresh ciphertext's body
DECRYPTED_NS: Final = 8.0  # likewise of an answer
SLOT_NS: Final = 12.0  # of a value that is brought into a slot or out of it, by log2 N
LINK_MEGABITS: Final = 1000.0  # a second, between client and server
SINGLE_CLIENT_MS: Final = 0.2  # of a sample for a program of `compile_linear`: encryption and decryption
_FULL: Final = 64  # samples, from which on a program's forecast is that of full batches


@dataclass(frozen=True)
class Cost:
    """The cost of a sample.

    Attributes:
        server_ms, client_ms: of one thread.
        up_bytes, down_bytes: of seeded ciphertexts and of answers, in words of 28 bits.
    """

    server_ms: float
    client_ms: float
    up_bytes: float
    down_bytes: float

    @property
    def transfer_ms(self) -> float:
        return (self.up_bytes + self.down_bytes) * 8 / (LINK_MEGABITS * 1000)

    @property
    def total_ms(self) -> float:
        return self.server_ms + self.client_ms + self.transfer_ms


def batch_cost(
    work: Work,
    parameters: Sequence[LevelledParameters],
    levels: tuple[int, int],
    counts: tuple[int, int],
    samples: int,
    in_slots: bool,
) -> Cost:
    """Returns a ciphertext for each feature of N samples.

    Args:
        work: of one such batch and plaintext modulus.
        levels: of queries and of answers.
        counts: features and outputs.
        samples: of which the last batch is not full.
    """
    size, (level, answer_level), (features, outputs) = parameters[0].polynomial_size, levels, counts
    logs = math.log2(size)
    share = len(parameters) * math.ceil(samples / size) / samples
    server = work.transforms * size * logs * TRANSFORM_NS + work.products * PRODUCT_NS
    server += size * features * level * EXPANDED_NS
    client = size * (features * level * ENCRYPTED_NS + outputs * answer_level * DECRYPTED_NS)
    if in_slots:
        client += (features + outputs) * size * logs * SLOT_NS
    return Cost(
        share * server / 1e6,
        share * client / 1e6,
        share * 3.5 * size * features * level,
        share * 7 * size * outputs * answer_level,
    )


def query_cost(
    parameters: Sequence[LevelledParameters], levels: tuple[int, int], counts: tuple[int, int], samples: int
) -> Cost:
    """Returns one ciphertext a sample, expanded into one of each feature (`InnerProductTable`)."""
    size, (level, answer_level), (features, outputs) = parameters[0].polynomial_size, levels, counts
    blocks = math.ceil(outputs / size)
    row = parameters[0].set
    digits = -(-level // row.digit_primes)
    extended = level + row.special_primes
    switches = 2 ** math.ceil(math.log2(max(features, 1))) - 1
    transforms = switches * (level + digits * extended + 2 * extended) + 2 * blocks * level
    products = size * switches * 2 * digits * extended
    with_table = size * 2 * blocks * features * level
    table = blocks * features * level / samples  # transformed once
    server = (transforms + table) * size * math.log2(size) * TRANSFORM_NS
    server += products * PRODUCT_NS + with_table * TABLE_NS + size * level * EXPANDED_NS
    client = size * (level * ENCRYPTED_NS + blocks * answer_level * DECRYPTED_NS)
    moduli = len(parameters)
    up, down = moduli * 3.5 * size * level, moduli * 7 * size * blocks * answer_level
    return Cost(moduli * server / 1e6, moduli * client / 1e6, up, down)


def single_cost(program: Program, samples: int) -> Cost:
    """Returns the cost of a program of `compile_linear`, as its report says."""
    report = Report.of(program)
    estimate = cpu_estimate(report.seconds)
    assert estimate is not None, "figures of some CPU are stored"
    seconds = estimate[0] if samples >= _FULL else estimate[1]
    return Cost(1000 * seconds, SINGLE_CLIENT_MS, report.input_bytes, answer_bytes(program))
