"""Seconds of one of each kind of work on one machine under one parameter set, and the forecast that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.public_key import LANES
from cloakwork.models.criteria.choose_set import bootstrap_cost
from cloakwork.models.graph.schedule import FEW, Extract
from cloakwork.models.program import Program
from cloakwork.models.program.answers import answer_bits
from cloakwork.models.runtime.machines.host import packed_products

# Work of the runtime for a number of samples, counted on the program's schedule.


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


WorkPart = Literal["fixed", "look-ups", "linear layers", "transfers and answers"]

LINEAR: Final = ("transforms", "products", "sums", "gathered", "written", "multiplications")
MOVED: Final = ("polynomials", "extracted", "returned")


@dataclass(frozen=True)
class SetRates:
    """Rates of a parameter set. Curves are {ciphertexts of a call: seconds}, at least one point."""

    parameter_set: str
    run: float  # what every call of the runtime takes, whatever is in it
    call: float  # of the engine
    seconds: Mapping[str, float]  # of one of LINEAR and MOVED; a name that is missing was not measured
    lookups: Mapping[int, float]
    answers: Mapping[int, float]  # re-randomised
    switched: Mapping[int, float]  # and sent in fewer bits, beyond that

    @property
    def is_complete(self) -> bool:
        """Whether linear layers and transfers are in it, and not look-ups alone."""
        return all(name in self.seconds for name in (*LINEAR, *MOVED)) and bool(self.answers)

    def parts(self, work: Work) -> dict[WorkPart, float]:
        """Returns seconds of the parts of a call."""

        def total(names: tuple[str, ...]) -> float:
            return sum(self.seconds.get(name, 0.0) * work.count(name) for name in names)

        lanes = work.answers if work.answers < 2 else -(-work.answers // LANES) * LANES
        answers = on_curve(self.answers, lanes) + on_curve(self.switched, work.switched)
        return {
            "fixed": self.run + self.call * work.calls,
            "look-ups": sum(on_curve(self.lookups, count) for count in work.lookups),
            "linear layers": total(LINEAR),
            "transfers and answers": total(MOVED) + answers,
        }

    def scaled(self, source: ParameterSet, target: ParameterSet) -> SetRates:
        """Scales rates for another set: look-ups by their counted operations, the rest by the size of ciphertexts."""
        ratio = bootstrap_cost(target) / bootstrap_cost(source)
        products = _transform_cost(target) / _transform_cost(source)
        words = target.limb_count / source.limb_count
        answers = target.component_count / source.component_count * products
        seconds = {
            name: value * (products if name in ("transforms", "products", "polynomials") else words)
            for name, value in self.seconds.items()
        }
        return replace(
            self,
            parameter_set=target.name,
            seconds=seconds,
            lookups={count: value * ratio for count, value in self.lookups.items()},
            answers={count: value * answers for count, value in self.answers.items()},
            switched={count: value * answers for count, value in self.switched.items()},
        )


def on_curve(curve: Mapping[int, float], count: int) -> float:
    """Interpolates between two measured batches on the line through them; beyond the largest, several of it; never less than a smaller batch takes.
    Of an empty curve no time."""
    if count == 0 or not curve:
        return 0.0
    batches = sorted(curve)
    times = np.maximum.accumulate([curve[batch] for batch in batches])
    if count >= batches[-1]:
        return float(times[-1]) * count / batches[-1]
    return float(np.interp(count, batches, times))


def nearest_set(params: ParameterSet, measured: Mapping[str, ParameterSet]) -> str:
    """Returns the measured set that scales best: of the same ring, of as many limbs, of the same noise (sampling it takes time), of similar cost;
    in this order."""
    cost = bootstrap_cost(params)

    def distance(name: str) -> tuple[bool, bool, bool, bool, float]:
        other = measured[name]
        return (
            name != params.name,
            ring(other) != ring(params),
            other.limb_count != params.limb_count,
            other.glwe_sigma != params.glwe_sigma,
            abs(math.log(bootstrap_cost(other) / cost)),
        )

    return min(measured, key=distance)


def ring(params: ParameterSet) -> tuple[int, int, int]:
    """Returns the ring of the bootstrap key."""
    return params.polynomial_size, params.glwe_dimension, params.key_limb_count


def _transform_cost(params: ParameterSet) -> float:
    """Returns the transform cost of a GLWE ciphertext's product with one polynomial."""
    size = params.polynomial_size
    return params.component_count * params.limb_count * size * math.log2(size)
