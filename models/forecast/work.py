"""Work of the runtime for a number of samples, counted on the program's schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloakwork.models.graph.schedule import FEW, Extract
from cloakwork.models.program import Program
from cloakwork.models.program.answers import answer_bits
from cloakwork.models.runtime.machines.host import packed_products


@dataclass(frozen=True)
class Work:
    """Counts of one call of `Runtime.answer`. Words are of LWE ciphertexts, kN + 1 each, 4 or 8 bytes."""

    calls: int = 0  # of the engine: matrix products and batches of look-ups
    polynomials: int = 0  # of the input: k + 1 for each GLWE ciphertext
    transforms: int = 0  # of a row of weights, where the input stays packed
    products: int = 0  # of such a row with a GLWE ciphertext
    sums: int = 0  # words of such products, a ciphertext for each sample and row
    extracted: int = 0  # words taken out of GLWE ciphertexts
    gathered: int = 0  # words that matrix products read
    written: int = 0  # words that they write
    multiplications: int = 0  # of integer weights with words
    lookups: tuple[int, ...] = ()  # ciphertexts of each batch of bootstraps
    returned: int = 0  # words of outputs that leave the device
    answers: int = 0  # ciphertexts that go back to the client
    switched: int = 0  # of them, those that are sent in fewer bits

    def count(self, name: str) -> int:
        """Returns a count by the name of a field that is a number."""
        count: int = getattr(self, name)
        return count

    @property
    def linear(self) -> Work:
        """Work without look-ups, and without what follows the outputs."""
        return Work(**{**vars(self), "lookups": (), "answers": 0, "switched": 0})


def work_of(program: Program, samples: int, device: str) -> Work:
    """Counts the work for `samples` in one call (with lanes: rows of ciphertexts). Args: device: "cpu", where the input may stay packed, or a GPU."""
    graph, schedule, params = program.graph, program.schedule, program.parameters
    words = params.large_words
    packed = packed_products(schedule) if device == "cpu" else []
    groups = -(-samples * graph.input.size // params.polynomial_size)
    transforms = products = sums = gathered = written = multiplications = calls = 0
    taken = next(step for step in schedule.steps if isinstance(step, Extract))
    extracted = 0 if packed else samples * words * (_most_columns(taken) if device == "cpu" else graph.input.size)
    for step in schedule.products:
        if step in packed:
            forms, pieces, cuts = _pieces(samples, graph.input.size, params.polynomial_size)
            calls, transforms = calls + 1, transforms + step.node.size * forms
            products, sums = products + step.node.size * pieces, sums + step.node.size * cuts * words
            continue
        positions, columns = step.reads.wires.shape
        calls += len(step.blocks)
        gathered += samples * positions * columns * words
        written += samples * step.node.size * words
        multiplications += samples * step.node.size * columns * words
    batches = [len(step.reads.wires) for step in schedule.lookups]
    extracted += samples * words * sum(node.size - node.bootstraps for node in graph.lookups)
    outputs = samples * graph.output.size
    return Work(
        calls=calls + len(batches),
        polynomials=groups * params.component_count,
        transforms=transforms,
        products=products,
        sums=sums,
        extracted=extracted,
        gathered=gathered,
        written=written,
        multiplications=multiplications,
        lookups=tuple(samples * each for each in batches),
        returned=outputs * words,
        answers=outputs,
        switched=0 if answer_bits(program) is None else outputs,
    )


def _most_columns(taken: Extract) -> int:
    """Where few numbers are read, the most that are few: how many it is tells how often thresholds of trees have digits in common."""
    return len(taken.columns) if taken.is_everything else taken.node.size // FEW


def batch_samples(program: Program, device: str) -> int:
    """Returns samples of a full batch, of which forecasts are made: beyond it a sample takes as long."""
    largest = max(program.schedule.bootstraps_per_level, default=0)
    if device == "cpu":
        return 64
    return int(np.clip(_GPU_BATCH // max(largest, 1), 16, 1024))


_GPU_BATCH = 1 << 14  # look-ups of a level that fill a large GPU


def _pieces(samples: int, columns: int, size: int) -> tuple[int, int, int]:
    """For a row of weights and the packed values: transforms of it, products, and ciphertexts added up of them; `pieces_of` and `PackedRows`
    of fhe_core/src/cpu/linear_packed.cpp."""
    forms = pieces = cuts = 0
    group = first = count = -1
    for sample in range(samples):
        column = 0
        while column < columns:
            before = group, first, count
            group, coefficient = divmod(sample * columns + column, size)
            first, count = column, min(columns - column, size - coefficient)
            forms += (first, count) != before[1:]
            pieces += (group, first, count) != before
            cuts, column = cuts + 1, column + count
    return forms, pieces, cuts
