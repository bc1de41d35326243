"""`cloakwork bench keyswitch`: key switching of levelled arithmetic, decrypted and compared with the product it stands for."""

from __future__ import annotations

import statistics
import time
from typing import Annotated, Any

import numpy as np
import typer

from cloakwork.app.cli.bench.measure import enough
from cloakwork.app.cli.shared.console import JsonOption, ProgressCallback, progress
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.levelled.backends import backend_of, on_host
from cloakwork.fhe_core.levelled.large_ntt import transform_primes

PLAINTEXT_MODULUS = 786433
_CALLS_ON_DEVICE = 10


def keyswitch(
    log_size: Annotated[
        int, typer.Option("--log-size", min=12, max=17, help="Use polynomials of 2^N coefficients.")
    ] = 16,
    primes: Annotated[
        int, typer.Option("--primes", min=1, help="Give the ciphertext N primes, of 28 bits while there are any.")
    ] = 40,
    special: Annotated[int, typer.Option("--special", min=1, help="Give the keys N special primes.")] = 10,
    digit: Annotated[
        int | None, typer.Option("--digit", min=1, help="Put N primes into a digit (default: as many as are special).")
    ] = None,
    device: DeviceOption = "cpu",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Put N polynomials into one call.")] = 1,
    threads: ThreadsOption = 1,
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", min=1, help="Take the median of N calls (default: as many as fit into two seconds)."),
    ] = None,
    json_path: JsonOption = None,
) -> None:
    """Measure key switching of levelled arithmetic.

    A polynomial is multiplied by a secret one, as a ciphertext.
    """
    where = checked_device(device)
    largest = transform_primes(log_size, primes + special)
    engine = _engine.Levelled(
        log_size, largest[special:] + largest[:special], special, digit or special, PLAINTEXT_MODULUS
    )
    with progress(f"key switching modulo {primes} primes") as update:
        record = bench_keyswitch(engine, primes, where, batch, threads, repeats, update)
    head = {"log_size": log_size, "primes": primes, "special_primes": special, "digit_primes": digit or special}
    emit(head | record, json_path, f"Key switching, 2^{log_size} points modulo {primes} primes")


def bench_keyswitch(
    engine: _engine.Levelled,
    primes: int,
    device: str,
    batch: int,
    threads: int,
    repeats: int | None,
    update: ProgressCallback,
) -> dict[str, Any]:
    size = engine.key_bodies_shape[2]
    backend = backend_of(engine, device, threads)
    secret = _engine.LevelledKey.generate(engine)
    expanded = engine.expand_key(*secret.switch_key(3), threads)
    key = backend.keys({3: expanded})[3]
    messages = np.random.default_rng().integers(0, PLAINTEXT_MODULUS, (batch, size), dtype=np.uint32)
    moved = backend.automorphism(backend.here(engine.expand(*secret.encrypt(messages, primes))), 3)
    masks = backend.part(moved, 1)
    calls = 1 if device == "cpu" else _CALLS_ON_DEVICE  # that follow each other, until the last is done

    def switched() -> Any:
        for _ in range(calls):
            keyswitched = backend.keyswitch(masks, key)
        backend.synchronize(keyswitched)
        return keyswitched

    keyswitched = switched()  # warm
    seconds: list[float] = []
    while not enough(seconds, repeats):
        start = time.perf_counter()
        keyswitched = switched()
        seconds.append((time.perf_counter() - start) / calls)
        update(len(seconds), repeats or len(seconds))
    bodies = backend.add(backend.part(moved, 0), backend.part(keyswitched, 0), False)
    result = backend.from_parts([bodies, backend.part(keyswitched, 1)])
    decrypted = secret.messages(secret.phase(on_host(result)))
    powers = np.arange(size) * 3 % (2 * size)
    expected = np.empty_like(messages)
    expected[:, powers % size] = np.where(powers < size, messages, (PLAINTEXT_MODULUS - messages) % PLAINTEXT_MODULUS)
    return {
        "device": device,
        "batch": batch,
        "threads": threads,
        "median_seconds": statistics.median(seconds),
        "median_seconds_of_one": statistics.median(seconds) / batch,
        "least_seconds": min(seconds),
        "most_seconds": max(seconds),
        "wrong": int(np.count_nonzero(decrypted != expected)),
        "outputs": messages.size,
        "key_bytes": expanded.nbytes,
        "upload_bytes": expanded.nbytes // 2,
        "repeats": len(seconds),
        "cpu_features": _engine.cpu_features(),
    }
