"""`cloakwork bench func|floor|sign|decomp`: large precision on integers of `--bits` bits; every result is decrypted and compared."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
import typer

from cloakwork.app.cli.bench.measure import Array, Operation, Setting, measure, on_device, peak_memory_bytes
from cloakwork.app.cli.shared.console import JsonOption, ProgressCallback, progress
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.parameter_sets import find_set
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.arrays.lanes import lane_axis
from cloakwork.fhe_core.ciphertexts import Ciphertexts, concatenate
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.large.arguments import check_modulus
from cloakwork.fhe_core.large.plan import Input, function_p_fail_log2
from cloakwork.fhe_core.large.precision import P_FAIL_LOG2, eval_decomp, eval_floor, eval_func, eval_sign, plan_of
from cloakwork.fhe_core.modular_integers import ModularIntegers, encryption_norm
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.server import Session

LARGE_SET: Final = "large16"

SetOption = Annotated[
    str, typer.Option("--set", metavar="SET", help="Use this parameter set; 'cloakwork params' lists them.")
]
BitsOption = Annotated[int, typer.Option("--bits", min=1, max=32, help="Use integers of N bits.")]
BatchOption = Annotated[int, typer.Option("--batch", min=1, help="Put N integers into one call.")]
RepeatsOption = Annotated[
    int | None,
    typer.Option("--repeats", min=1, help="Take the median of N calls (default: as many as fit into two seconds)."),
]
PFailOption = Annotated[
    float,
    typer.Option(
        "--p-fail-log2", min=-1000, max=-1, help="Plan for this log2 of the probability that one integer fails."
    ),
]


@dataclass(frozen=True)
class Work:
    """One kind of call on encrypted integers of `bits` bits, its result in clear, and its cost."""

    bits: int
    run: Callable[[Session, ModularIntegers], Ciphertexts]
    wrong: Callable[[ClientKey, Ciphertexts, Array], int]
    rotations: int
    p_fail_log2: float


def func(
    bits: BitsOption = 3,
    set_name: SetOption = LARGE_SET,
    device: DeviceOption = "cpu",
    batch: BatchOption = 64,
    threads: ThreadsOption = 1,
    repeats: RepeatsOption = None,
    p_fail_log2: PFailOption = P_FAIL_LOG2,
    json_path: JsonOption = None,
) -> None:
    """Measure a random function of integers without a padding bit."""
    parameters = find_set(set_name)
    work = func_work(parameters, bits, p_fail_log2)
    report("func", parameters, work, Setting(checked_device(device), batch, threads, repeats), json_path)


def floor(
    bits: BitsOption = 16,
    remove: Annotated[int, typer.Option("--remove", min=1, max=31, help="Remove the N lowest bits.")] = 4,
    set_name: SetOption = LARGE_SET,
    device: DeviceOption = "cpu",
    batch: BatchOption = 64,
    threads: ThreadsOption = 1,
    repeats: RepeatsOption = None,
    p_fail_log2: PFailOption = P_FAIL_LOG2,
    json_path: JsonOption = None,
) -> None:
    """Measure how the lowest bits of integers are removed."""
    parameters = find_set(set_name)
    work = floor_work(parameters, bits, remove, p_fail_log2)
    report("floor", parameters, work, Setting(checked_device(device), batch, threads, repeats), json_path)


def sign(
    bits: BitsOption = 16,
    set_name: SetOption = LARGE_SET,
    device: DeviceOption = "cpu",
    batch: BatchOption = 64,
    threads: ThreadsOption = 1,
    repeats: RepeatsOption = None,
    p_fail_log2: PFailOption = P_FAIL_LOG2,
    json_path: JsonOption = None,
) -> None:
    """Measure the sign of integers."""
    parameters = find_set(set_name)
    work = sign_work(parameters, bits, p_fail_log2)
    report("sign", parameters, work, Setting(checked_device(device), batch, threads, repeats), json_path)


def decomp(
    bits: BitsOption = 16,
    digit_bits: Annotated[
        int | None, typer.Option("--digit-bits", min=1, help="Use digits of N bits (default: a message of the set).")
    ] = None,
    set_name: SetOption = LARGE_SET,
    device: DeviceOption = "cpu",
    batch: BatchOption = 64,
    threads: ThreadsOption = 1,
    repeats: RepeatsOption = None,
    p_fail_log2: PFailOption = P_FAIL_LOG2,
    json_path: JsonOption = None,
) -> None:
    """Measure how integers are split into digits."""
    parameters = find_set(set_name)
    work = decomp_work(parameters, bits, digit_bits or max(parameters.message_bits, 1), p_fail_log2)
    report("decomp", parameters, work, Setting(checked_device(device), batch, threads, repeats), json_path)


# --- what is measured -------------------------------------------------------------------------------------------------------------


def fresh(parameters: ParameterSet, bits: int) -> Input:
    return Input(bits, encryption_norm(parameters, 1 << bits))


def func_work(parameters: ParameterSet, bits: int, p_fail_log2: float) -> Work:
    modulus = 1 << bits
    value = fresh(parameters, bits)
    check_modulus(parameters, modulus, value, p_fail_log2)
    table = np.random.default_rng().integers(0, modulus, modulus)
    table[0] = 1  # with the other half's entry no negacyclic function, which would take one rotation
    table[modulus // 2] = 0

    def run(session: Session, x: ModularIntegers) -> Ciphertexts:
        return eval_func(session, x, table, p_fail_log2=p_fail_log2).ciphertexts

    def wrong(key: ClientKey, outputs: Ciphertexts, m: Array) -> int:
        return int(np.count_nonzero(key.decrypt_integers(ModularIntegers(outputs, modulus)) != table[m]))

    return Work(bits, run, wrong, 2, function_p_fail_log2(parameters, modulus, value, False))


def floor_work(parameters: ParameterSet, bits: int, remove: int, p_fail_log2: float) -> Work:
    plan = plan_of("floor", parameters, fresh(parameters, bits), bits=remove, p_fail_log2=p_fail_log2)

    def run(session: Session, x: ModularIntegers) -> Ciphertexts:
        return eval_floor(session, x, remove, p_fail_log2=p_fail_log2).ciphertexts

    def wrong(key: ClientKey, outputs: Ciphertexts, m: Array) -> int:
        decrypted = key.decrypt_integers(ModularIntegers(outputs, 1 << (bits - remove)))
        return int(np.count_nonzero(decrypted != m >> remove))

    return Work(bits, run, wrong, len(plan.rotations), plan.p_fail_log2)


def sign_work(parameters: ParameterSet, bits: int, p_fail_log2: float) -> Work:
    plan = plan_of("sign", parameters, fresh(parameters, bits), p_fail_log2=p_fail_log2)

    def run(session: Session, x: ModularIntegers) -> Ciphertexts:
        return eval_sign(session, x, p_fail_log2=p_fail_log2)

    def wrong(key: ClientKey, outputs: Ciphertexts, m: Array) -> int:
        return int(np.count_nonzero(key.decrypt(outputs) != m >> (bits - 1)))

    return Work(bits, run, wrong, len(plan.rotations), plan.p_fail_log2)


def decomp_work(parameters: ParameterSet, bits: int, digit_bits: int, p_fail_log2: float) -> Work:
    lengths = [min(digit_bits, bits - start) for start in range(0, bits, digit_bits)]
    plan = plan_of("decomp", parameters, fresh(parameters, bits), digits=lengths, p_fail_log2=p_fail_log2)

    def run(session: Session, x: ModularIntegers) -> Ciphertexts:
        return concatenate([digit[None] for digit in eval_decomp(session, x, lengths, p_fail_log2=p_fail_log2)])

    def wrong(key: ClientKey, outputs: Ciphertexts, m: Array) -> int:
        digits = key.decrypt(outputs)
        total = sum(digit << (digit_bits * i) for i, digit in enumerate(digits))
        return int(np.count_nonzero(total != m))

    return Work(bits, run, wrong, len(plan.rotations), plan.p_fail_log2)


def report(kind: str, parameters: ParameterSet, work: Work, setting: Setting, json_path: str | None) -> None:
    with progress(f"{kind} of {parameters.name}") as update:
        record = bench_large(parameters, work, setting, update)
    emit(record, json_path, f"{kind} of {work.bits} bits on {parameters.name}")


def operation_of(work: Work, key: ClientKey, session: Session, batch: int, rng: np.random.Generator) -> Operation:
    modulus = 1 << work.bits

    def draw() -> tuple[tuple[Ciphertexts, ...], Array]:
        m = rng.integers(0, modulus, (batch, *lane_axis(key.parameters)))
        return (key.encrypt_integers(m, modulus).ciphertexts,), m

    return Operation(
        draw,
        lambda inputs: work.run(session, ModularIntegers(inputs, modulus)),
        lambda outputs, m: work.wrong(key, outputs, m),
    )


def bench_large(parameters: ParameterSet, work: Work, setting: Setting, update: ProgressCallback) -> dict[str, Any]:
    key = ClientKey.generate(parameters)
    session = Session(key.evaluation_keys(), device=setting.device, threads=setting.threads)
    operation = operation_of(work, key, session, setting.batch, np.random.default_rng())
    seconds, wrong = measure(on_device(operation, session), setting.repeats, update)
    median = statistics.median(seconds)
    return {
        "set": parameters.name,
        "bits": work.bits,
        "device": setting.device,
        "batch": setting.batch,
        "threads": setting.threads,
        "median_seconds": median,
        "values_per_ciphertext": parameters.lane_count,
        "per_second": setting.batch * parameters.lane_count / median,
        "rotations": work.rotations,
        "wrong": wrong,
        "p_fail_log2": work.p_fail_log2,
        "security_bits": parameters.security_bits,
        "structured_secret": parameters.structured_secret,
        "least_seconds": min(seconds),
        "most_seconds": max(seconds),
        "repeats": len(seconds),
        "outputs": setting.batch * parameters.lane_count * (len(seconds) + 1),
        "cpu_features": _engine.cpu_features(),
        "peak_memory_bytes": peak_memory_bytes(),
    }
