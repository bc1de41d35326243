"""Measurements of `cloakwork bench`: real operations on fresh ciphertexts, every output decrypted and compared with the clear function."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.app.cli.shared.console import ProgressCallback
from cloakwork.app.cli.shared.parameter_sets import key_sizes
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.arrays.encoding import Encoding, torus_constant
from cloakwork.fhe_core.arrays.lanes import lane_axis
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.engine import host_array
from cloakwork.fhe_core.gates import INPUT_COUNTS
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.lookup_tables import LookupTables

# An output of an approximate set is wrong when it is further than this many standard deviations (of the set's own noise) from the true
# value: probability 8e-11 each, if the noise model holds.
SIGMAS_OF_WRONG = 6.5

LEAST_REPEATS, MOST_REPEATS, ENOUGH_SECONDS = 5, 500, 2.0
LINEAR_WEIGHT_LIMIT = 8  # weights are drawn from [-8, 8)

Array = NDArray[Any]


@dataclass(frozen=True)
class Setting:
    """Settings of a measurement. `batch`: ciphertexts. `repeats` None: as many as fit into about two seconds, at least five."""

    device: str
    batch: int
    threads: int
    repeats: int | None


class Arrays(StrEnum):
    """Arrays of `bench linear` before and after a call; a CPU takes them where they are."""

    DEVICE = "device"
    HOST = "host"
    PAGE_LOCKED = "page-locked"


@dataclass(frozen=True)
class Operation:
    """One measured operation: `draw` makes inputs with the expected result, `run` is timed, `count_wrong` decrypts."""

    draw: Callable[[], tuple[tuple[Ciphertexts, ...], Array]]
    run: Callable[..., Ciphertexts]
    count_wrong: Callable[[Ciphertexts, Array], int]


def measure(operation: Operation, repeats: int | None, progress: ProgressCallback) -> tuple[list[float], int]:
    """Returns seconds of each repeat, and the wrong outputs of all repeats and of the warm-up before them."""
    seconds: list[float] = []
    wrong = 0
    warm = False
    while not enough(seconds, repeats):
        inputs, expected = operation.draw()
        start = time.perf_counter()
        outputs = operation.run(*inputs)
        elapsed = time.perf_counter() - start
        wrong += operation.count_wrong(outputs, expected)
        if warm:
            seconds.append(elapsed)
            progress(len(seconds), repeats or MOST_REPEATS)
        warm = True
    return seconds, wrong


def on_device(operation: Operation, session: Session) -> Operation:
    """Puts ciphertexts on the device: on GPUs ciphertexts lie there before and after, and a call ends when its work is done."""
    if session.device == "cpu":
        return operation

    def draw() -> tuple[tuple[Ciphertexts, ...], Array]:
        inputs, expected = operation.draw()
        return tuple(x.to_device(session.device) for x in inputs), expected

    def run(*inputs: Ciphertexts) -> Ciphertexts:
        outputs = operation.run(*inputs)
        session.synchronize()
        return outputs

    return Operation(draw, run, lambda outputs, expected: operation.count_wrong(outputs.to_host(), expected))


def enough(seconds: list[float], repeats: int | None) -> bool:
    if repeats is not None:
        return len(seconds) >= repeats
    return len(seconds) >= MOST_REPEATS or (len(seconds) >= LEAST_REPEATS and sum(seconds) >= ENOUGH_SECONDS)


def bench_bootstrap(
    parameters: ParameterSet, gate: str | None, setting: Setting, progress: ProgressCallback
) -> dict[str, Any]:
    """Measures `bench gate` if `gate` is named, else `bench pbs`."""
    key = ClientKey.generate(parameters)
    session = Session(key.evaluation_keys(), device=setting.device, threads=setting.threads)
    rng = np.random.default_rng()
    operation = (
        gate_operation(key, session, gate, setting.batch, rng)
        if gate
        else lookup_operation(key, session, setting.batch, rng)
    )
    operation = on_device(operation, session)
    seconds, wrong = measure(operation, setting.repeats, progress)
    keyswitch_seconds, blind_rotate_seconds = stage_seconds(session, operation.draw()[0][0], setting.repeats)
    median = statistics.median(seconds)
    record: dict[str, Any] = {
        "set": parameters.name,
        "device": setting.device,
        "batch": setting.batch,
        "threads": setting.threads,
        "values_per_ciphertext": parameters.lane_count,
    }
    if gate:
        record["gate"] = gate
    return record | {
        "median_seconds": median,
        "per_second": setting.batch * parameters.lane_count / median,
        "keyswitch_seconds": keyswitch_seconds,
        "blind_rotate_seconds": blind_rotate_seconds,
        "wrong": wrong,
        "p_fail_log2": parameters.p_fail_log2,
        "security_bits": parameters.security_bits,
        "structured_secret": parameters.structured_secret,
        "least_seconds": min(seconds),
        "most_seconds": max(seconds),
        "repeats": len(seconds),
        "outputs": setting.batch * parameters.lane_count * (len(seconds) + 1),
        "cpu_features": _engine.cpu_features(),
        "peak_memory_bytes": peak_memory_bytes(),
    }


def gate_operation(key: ClientKey, session: Session, gate: str, batch: int, rng: np.random.Generator) -> Operation:
    def draw() -> tuple[tuple[Ciphertexts, ...], Array]:
        bits = rng.integers(0, 2, (INPUT_COUNTS[gate], batch, *lane_axis(key.parameters))).astype(np.bool_)
        return tuple(key.encrypt(row, encoding=Encoding.BOOLEAN) for row in bits), clear_gate(gate, bits)

    def run(*inputs: Ciphertexts) -> Ciphertexts:
        return session.gate(gate, *inputs)

    return Operation(draw, run, lambda outputs, expected: int(np.count_nonzero(key.decrypt(outputs) != expected)))


def clear_gate(gate: str, bits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns the gate on clear bits, one array for each input."""
    count = bits.sum(axis=0)
    inputs = len(bits)
    truth: dict[str, Array] = {
        "AND": count == inputs,
        "NAND": count != inputs,
        "OR": count > 0,
        "NOR": count == 0,
        "XOR": count == 1,
        "XNOR": count != 1,
        "ANDNY": ~bits[0] & bits[-1],
        "ANDYN": bits[0] & ~bits[-1],
        "ORNY": ~bits[0] | bits[-1],
        "ORYN": bits[0] | ~bits[-1],
        "NOT": count == 0,
        "AND3": count == inputs,
        "OR3": count > 0,
        "MAJORITY": count >= 2,
        "MUX": np.where(bits[0], bits[min(1, inputs - 1)], bits[-1]),
    }
    return truth[gate]


def lookup_operation(key: ClientKey, session: Session, batch: int, rng: np.random.Generator) -> Operation:
    """Returns the look-up of the set's kind: a random table (exact), ReLU (approximate), the sign (gate)."""
    parameters = key.parameters
    match parameters.kind:
        case "exact":
            return exact_operation(key, session, batch, rng)
        case "approximate":
            return approximate_operation(key, session, batch, rng)
    sign = LookupTables.of_sign(parameters, torus_constant(parameters, 1, 8), Encoding.BOOLEAN)

    def draw() -> tuple[tuple[Ciphertexts, ...], Array]:
        bits = rng.integers(0, 2, (batch, *lane_axis(parameters))).astype(np.bool_)
        return (key.encrypt(bits, encoding=Encoding.BOOLEAN),), bits

    def run(inputs: Ciphertexts) -> Ciphertexts:
        return session.bootstrap_negacyclic(inputs, sign)

    return Operation(draw, run, lambda outputs, expected: int(np.count_nonzero(key.decrypt(outputs) != expected)))


def exact_operation(key: ClientKey, session: Session, batch: int, rng: np.random.Generator) -> Operation:
    size = 1 << key.parameters.message_bits
    function = rng.integers(0, size, size)
    table = LookupTables.of_messages(key.parameters, function)

    def draw() -> tuple[tuple[Ciphertexts, ...], Array]:
        messages = rng.integers(0, size, (batch, *lane_axis(key.parameters)))
        return (key.encrypt(messages),), function[messages]

    def run(inputs: Ciphertexts) -> Ciphertexts:
        return session.bootstrap(inputs, table)

    return Operation(draw, run, lambda outputs, expected: int(np.count_nonzero(key.decrypt(outputs) != expected)))


def approximate_operation(key: ClientKey, session: Session, batch: int, rng: np.random.Generator) -> Operation:
    """Returns ReLU, whose slope is at most 1: its output errs by no more than the noise of its input and its own."""
    bound = SIGMAS_OF_WRONG * key.parameters.noise
    table = LookupTables.of_activations(key.parameters, relu)

    def draw() -> tuple[tuple[Ciphertexts, ...], Array]:
        # Noise must not carry a value over the end of the range.
        values = rng.uniform(-0.25 + bound, 0.25 - bound, (batch, *lane_axis(key.parameters)))
        return (key.encrypt(values, encoding=Encoding.TORUS),), relu(values)

    def run(inputs: Ciphertexts) -> Ciphertexts:
        return session.activation(inputs, table)

    return Operation(
        draw, run, lambda outputs, expected: int(np.count_nonzero(np.abs(key.decrypt(outputs) - expected) > bound))
    )


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def stage_seconds(session: Session, inputs: Ciphertexts, repeats: int | None) -> tuple[float, float]:
    """Returns medians of the keyswitch and of the blind rotation of one batch, each called by itself."""
    parameters = session.parameters
    tables = LookupTables.of_sign(parameters, torus_constant(parameters, 1, 8), Encoding.TORUS)
    keyswitch: list[float] = []
    blind_rotate: list[float] = []
    while not enough(blind_rotate, repeats):
        start = time.perf_counter()
        small = session.keyswitch(inputs)
        session.synchronize()
        keyswitch.append(time.perf_counter() - start)
        switched = session.modulus_switch(small)
        start = time.perf_counter()
        session.blind_rotate(switched, tables)
        session.synchronize()
        blind_rotate.append(time.perf_counter() - start)
    return statistics.median(keyswitch), statistics.median(blind_rotate)


def bench_linear(
    parameters: ParameterSet, shape: tuple[int, int], arrays: Arrays, setting: Setting, progress: ProgressCallback
) -> dict[str, Any]:
    """Returns an integer matrix times a batch of ciphertext vectors. Decrypted phases must equal the clear product modulo Q exactly."""
    key = ClientKey.generate(parameters)
    session = Session(key.evaluation_keys(), device=setting.device, threads=setting.threads)
    rng = np.random.default_rng()
    rows, columns = shape
    weights = rng.integers(-LINEAR_WEIGHT_LIMIT, LINEAR_WEIGHT_LIMIT, shape)
    bits = rng.integers(0, 2, (setting.batch, columns, *lane_axis(parameters))).astype(np.bool_)
    inputs = key.encrypt(bits, encoding=Encoding.BOOLEAN)
    if arrays is Arrays.PAGE_LOCKED:
        locked = host_array(inputs.words.shape, inputs.words.dtype)
        locked[...] = inputs.words
        inputs = Ciphertexts.from_words(parameters, locked, encoding=inputs.encoding, key_id=inputs.key_id)
    expected = clear_product(weights, key.phases(inputs), parameters.modulus)
    prepared = session.weights(weights)
    operation = Operation(
        draw=lambda: ((inputs,), expected),
        run=lambda batch: session.linear(prepared, batch),
        count_wrong=lambda outputs, phases: int(np.count_nonzero(key.phases(outputs) != phases)),
    )
    if arrays is Arrays.DEVICE:
        operation = on_device(operation, session)
    seconds, wrong = measure(operation, setting.repeats, progress)
    median = statistics.median(seconds)
    macs = rows * columns * setting.batch * parameters.large_words
    return {
        "set": parameters.name,
        "device": setting.device,
        "rows": rows,
        "cols": columns,
        "arrays": arrays.value,
        "batch": setting.batch,
        "threads": setting.threads,
        "median_seconds": median,
        "macs_per_second": macs / median,
        "wrong": wrong,
        "repeats": len(seconds),
        "cpu_features": _engine.cpu_features(),
        "peak_memory_bytes": peak_memory_bytes(),
    }


def clear_product(weights: Array, phases: NDArray[np.uint64], modulus: int) -> NDArray[np.uint64]:
    """Returns [R, C] times [S, C] or [S, C, r] modulo Q < 2^54, exactly, in two halves of 27 bits (each product sum stays below 2^53)."""
    columns = phases.reshape(*phases.shape[:2], -1)  # a matrix [C, r] of each sample
    matrix = weights.astype(np.float64)
    low = matrix @ (columns & np.uint64((1 << 27) - 1)).astype(np.float64)
    high = (matrix @ (columns >> np.uint64(27)).astype(np.float64)).astype(np.int64) % modulus
    for _ in range(3):
        high = (high << 9) % modulus  # below 2^63
    product: NDArray[np.uint64] = ((high + low.astype(np.int64)) % modulus).astype(np.uint64)
    return product.reshape(len(phases), len(weights), *phases.shape[2:])


def bench_keygen(parameters: ParameterSet, repeats: int | None, progress: ProgressCallback) -> dict[str, Any]:
    """Returns a secret key and its evaluation keys, on one thread; sizes in memory (expanded) and of files (seeded, and one ciphertext)."""
    seconds: list[float] = []
    while not enough(seconds, repeats):
        start = time.perf_counter()
        key = ClientKey.generate(parameters)
        evaluation_keys = key.evaluation_keys()
        seconds.append(time.perf_counter() - start)
        progress(len(seconds), repeats or MOST_REPEATS)
    start = time.perf_counter()
    evaluation_keys.expand("cpu")
    expand_seconds = time.perf_counter() - start
    bit = np.zeros((1, *lane_axis(parameters)), dtype=np.bool_)
    return {
        "set": parameters.name,
        "median_seconds": statistics.median(seconds),
        **key_sizes(parameters),
        "ciphertext_bytes": len(key.encrypt(bit, encoding=Encoding.BOOLEAN).to_bytes()),
        "seeded_ciphertext_bytes": len(key.encrypt(bit, encoding=Encoding.BOOLEAN, seeded=True).to_bytes()),
        "expand_seconds": expand_seconds,
        "repeats": len(seconds),
        "peak_memory_bytes": peak_memory_bytes(),
    }


def peak_memory_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
