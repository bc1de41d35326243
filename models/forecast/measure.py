"""Measures a machine: probes run on a session as any program does, and their times are solved for the rates.

The probes take turns for a few rounds, and the least time of each counts: what the machine does when nothing else disturbs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.parameters import ParameterSet, word_bytes, word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.fhe_core.words import Words
from cloakwork.models.arrays import Indices
from cloakwork.models.forecast.rates import SetRates, Work, work_of
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node
from cloakwork.models.graph.steps import Step
from cloakwork.models.program import Program
from cloakwork.models.runtime import Runtime

# Small programs that consist mainly of one kind of work, and inputs for them: what the rates of a machine are measured with.
#
# Public side only. Ciphertexts are uniform words, which the engine takes as long for as for encryptions.

_SCALE = 1 / 1024
_STORE = 64  # ciphertexts that a later product reads again and again, as a layer reads those of the one before


def dense(params: ParameterSet, columns: int, rows: int) -> Program:
    """Returns a matrix on the input."""
    return _program(params, [_input(columns), _linear(columns, np.arange(columns)[None], rows)], columns)


def chain(params: ParameterSet, count: int) -> Program:
    """Builds a chain of products of one number, one after the other."""
    nodes: list[Node] = [_input(1)]
    nodes += [_linear(wire, np.array([[wire - 1]]), 1) for wire in range(1, count + 2)]
    return _program(params, nodes, count + 1)


def layer(params: ParameterSet, positions: int, columns: int, rows: int, returned: int = 1) -> Program:
    """Makes a matrix [rows, columns] at several positions of a layer, as a convolution has it. Args: returned: how many numbers of it."""
    first = _linear(1, np.zeros((1, 1), dtype=np.int64), _STORE)
    gather = 1 + np.arange(positions * columns).reshape(positions, columns) % _STORE
    return _program(params, [_input(1), first, _linear(1 + _STORE, gather, rows)], 1 + _STORE, returned)


def unpacked(params: ParameterSet, columns: int) -> Program:
    """Returns an input of which every ciphertext is extracted, because a product reads it together with others."""
    first = _linear(columns, np.zeros((1, 1), dtype=np.int64), 1)
    return _program(params, [_input(columns), first, _linear(columns + 1, np.array([[0, columns]]), 1)], columns + 1)


def lookups(params: ParameterSet, count: int) -> Program:
    """Builds look-ups of one table in one batch."""
    first = _linear(1, np.zeros((1, 1), dtype=np.int64), 1)
    batch = Lookup(2, np.full(count, 1), (Step("Relu"),), np.zeros(count, dtype=np.int64), "probe")
    return _program(params, [_input(1), first, batch, _linear(2 + count, np.array([[2]]), 1)], 2 + count)


def probe_input(program: Program, session: Session, samples: int, seed: int = 0) -> SeededPackedCiphertexts:
    """Makes uniform words for this many samples."""
    params, rng = program.parameters, np.random.default_rng(seed)
    size, columns = params.polynomial_size, program.graph.input.size
    bodies = rng.integers(0, params.modulus, (-(-samples * columns // size), size), dtype=np.uint64)
    return SeededPackedCiphertexts(
        params, rng.bytes(32), bodies.astype(word_dtype(params)), (samples, columns),
        encoding=Encoding.TORUS, key_id=session.expanded_key.key_id, purpose=program.digest,
    )  # fmt: skip


def _input(columns: int) -> Input:
    return Input(0, (columns,), "probe")


def _linear(first_wire: int, gather: Indices, rows: int) -> Linear:
    positions, columns = gather.shape
    weights = np.arange(rows * columns).reshape(1, rows, columns) % 15 - 7  # as layers of four bits have them
    return Linear(first_wire, gather, np.zeros(positions, dtype=np.int64), weights, np.zeros((1, rows)), "probe")


def _program(params: ParameterSet, nodes: list[Node], output: int, returned: int = 1) -> Program:
    count = max(node.first_wire + node.size for node in nodes)
    ones = np.ones(count)
    graph = Graph(tuple(nodes), np.arange(output, output + returned), (), -ones, ones, _SCALE * ones, 0 * ones)
    return Program(graph, params, 0.0)


REPRESENTATIVES: Final = ("nn2", "nn1", "nn1_wide", "lut3", "lut4", "lut5")
"""One set for each ring that models use by default, two of the most common; other sets scale from the one of their ring."""

ROUNDS: Final = 3

Report = Callable[[int, int], object]

_SHORT_SECONDS, _SHORT_REPEATS = 2e-3, 5
_WORD_BITS = 20  # of answers, about as many as programs send
_CHAIN = 16
_PACKED: Final = (
    "transforms",
    "products",
    "sums",
    "polynomials",
)  # on a GPU part of the extraction, which all input goes through
_SWEEPS = 50
_SUMS_BYTES = 1 << 23  # of the probe of sums: memory that is new to the process costs more than the arithmetic


@dataclass(frozen=True)
class Sizes:
    """Sizes of the probes: large enough for the machine to be busy, small enough for its memory and for patience."""

    lookups: tuple[int, ...]
    answers: tuple[int, ...]
    positions: int  # of a layer
    columns: int
    rows: int

    @classmethod
    def of(cls, device: str, threads: int) -> Sizes:
        if device == "cpu":
            batches = {1, 2, 8, 32, threads, 8 * threads, 32 * threads}
            return cls(tuple(sorted(batches)), tuple(sorted({1, 16, 256, 16 * threads})), 16, 128, 32)
        return cls((1, 32, 128, 512, 2048, 4096, 16384), (1, 16, 1024), 64, 512, 128)


@dataclass(frozen=True)
class Probe:
    program: Program
    samples: int

    def work(self, device: str) -> Work:
        return work_of(self.program, self.samples, device)


def measure_set(
    session: Session, report: Report | None = None, *, rounds: int = ROUNDS, sizes: Sizes | None = None
) -> SetRates:
    """Measures the rates of the session's machine under its parameter set.

    Args:
        session: whose device, threads and set are measured; any evaluation keys of the set.
        report: report(done, total) of the probes.
    """
    chosen = sizes or Sizes.of(session.device, session.threads)
    probes = linear_probes(session.parameters, session.device, chosen) | lookup_probes(session.parameters, chosen)
    runs = {name: _runner(probe, session) for name, probe in probes.items()} | _answer_runs(session, chosen)
    clock, times = clock_of(session.device, session.threads), dict[str, float]()
    for turn in range(rounds):
        for number, (name, run) in enumerate(runs.items()):
            times[name] = min(least_seconds(run, clock), times.get(name, np.inf))
            if report is not None:
                report(turn * len(runs) + number + 1, rounds * len(runs))
    return solve(session.parameters, session.device, chosen, times)


def linear_probes(params: ParameterSet, device: str, sizes: Sizes) -> dict[str, Probe]:
    """Returns probes by the rate that each is for."""
    size, positions, columns, rows = params.polynomial_size, sizes.positions, sizes.columns, sizes.rows
    each = 128 * params.large_words * word_bytes(params)
    packed = {
        "transforms": Probe(dense(params, 3 * size // 2, rows), 2),  # no two products of one form
        "products": Probe(dense(params, size, rows), 4),
        "sums": Probe(dense(params, size // 8, max(1, min(rows, _SUMS_BYTES // each))), 128),
        "polynomials": Probe(dense(params, size, 1), 8),
    }
    return {
        "run": Probe(dense(params, 1, 1), 1),
        "call": Probe(chain(params, _CHAIN), 1),
        **(packed if device == "cpu" else {}),
        "extracted": Probe(unpacked(params, size // 2), 2 if device == "cpu" else 8),
        "gathered": Probe(layer(params, positions, columns, 1), 1),
        "written": Probe(layer(params, positions, 1, rows), 1),
        "multiplications": Probe(layer(params, positions, columns, rows), 1),
        "returned": Probe(layer(params, positions, 1, rows, positions * rows), 1),
    }


def lookup_probes(params: ParameterSet, sizes: Sizes) -> dict[str, Probe]:
    return {f"lookups {count}": Probe(lookups(params, count), 1) for count in sizes.lookups}


def solve(params: ParameterSet, device: str, sizes: Sizes, times: Mapping[str, float]) -> SetRates:
    """Returns rates from the seconds of every probe."""
    rates = _linear_rates(
        {name: (probe.work(device), times[name]) for name, probe in linear_probes(params, device, sizes).items()}
    )
    run, call = rates.pop("run"), rates.pop("call")
    without = SetRates(params.name, run, call, dict.fromkeys(_PACKED, 0.0) | rates, {}, {}, {})
    batches = {}
    for count, (name, probe) in zip(sizes.lookups, lookup_probes(params, sizes).items(), strict=True):
        batches[count] = max(0.0, times[name] - sum(without.parts(probe.work(device).linear).values()))
    answers = {count: times[f"answers {count}"] for count in sizes.answers}
    switched = {count: max(0.0, times[f"switched {count}"] - answers[count]) for count in sizes.answers}
    return replace(without, lookups=batches, answers=answers, switched=switched)


def _linear_rates(probed: Mapping[str, tuple[Work, float]]) -> dict[str, float]:
    """Each probe is mostly of the work that it is named after. Its rate is what the other rates leave of its time, never less than nothing, and
    that over and over until they agree (Gauss and Seidel's method)."""
    counts = {name: {"run": 1, "call": work.calls, **vars(work)} for name, (work, _) in probed.items()}
    rates = dict.fromkeys(probed, 0.0)
    for _ in range(_SWEEPS):
        for name, (_, seconds) in probed.items():
            others = sum(counts[name][other] * rate for other, rate in rates.items() if other != name)
            rates[name] = max(0.0, seconds - others) / counts[name][name]
    return rates


def _runner(probe: Probe, session: Session) -> Callable[[], object]:
    runtime, x = Runtime(probe.program, session), probe_input(probe.program, session, probe.samples)
    runtime.run(x)  # weights are uploaded and memory is taken
    return lambda: runtime.run(x)


def _answer_runs(session: Session, sizes: Sizes) -> dict[str, Callable[[], object]]:
    """Returns what happens to outputs before they leave: as new ciphertexts every time, which do not know their noise yet."""
    program = dense(session.parameters, 1, 1)
    runtime = Runtime(program, session)
    runs: dict[str, Callable[[], object]] = {}
    for count in sizes.answers:
        words = runtime.run(probe_input(program, session, count)).words
        runs[f"answers {count}"] = partial(_answer, session, words, None)
        runs[f"switched {count}"] = partial(_answer, session, words, _WORD_BITS)
    return runs


def _answer(session: Session, words: Words, bits: int | None) -> None:
    key_id = session.expanded_key.key_id
    outputs = Ciphertexts.from_words(session.parameters, words, encoding=Encoding.TORUS, key_id=key_id)
    answer = session.rerandomise(outputs)
    if bits is not None:
        SwitchedCiphertexts.switch(answer, bits)


def clock_of(device: str, threads: int) -> Callable[[], float]:
    """Returns a clock: of one thread its own time, in which other processes' turns do not count; else time on the wall."""
    return time.process_time if device == "cpu" and threads == 1 else time.perf_counter


def least_seconds(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Measures the least seconds of one run, of several where it is short."""
    seconds: list[float] = []
    while not seconds or (seconds[0] < _SHORT_SECONDS and len(seconds) < _SHORT_REPEATS):
        start = clock()
        run()
        seconds.append(clock() - start)
    return min(seconds)
