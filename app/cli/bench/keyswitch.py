"""`cloakwork bench keyswitch`: key switching of levelled arithmetic, decrypted and compared with the product it stands for."""

from __future__ import annotations

import statistics
import time
from typing import Annotated, Any

import numpy as np
import typer

from cloakwork.app.cli.bench.measure import enough
from cloakwork.app.cli.shared.console import JsonOption, ProgressCallback, emit, progress
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import UnsupportedError
from cloakwork.fhe_core.large_ntt import transform_primes

PLAINTEXT_MODULUS = 786433


def keyswitch(
    log_size: Annotated[
        int, typer.Option("--log-size", min=12, max=17, help="Polynomials modulo X^N + 1, N = 2^this.")
    ] = 16,
    primes: Annotated[
        int, typer.Option("--primes", min=1, help="Of the ciphertext, 28 bits each where there are.")
    ] = 40,
    special: Annotated[int, typer.Option("--special", min=1, help="Special primes, which keys have beside them.")] = 10,
    digit: Annotated[
        int | None, typer.Option("--digit", min=1, help="Primes of a digit; by default as many as are special.")
    ] = None,
    device: DeviceOption = "cpu",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Polynomials in one call.")] = 1,
    threads: ThreadsOption = 1,
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", min=1, help="Calls to take the median of; by default what fits into two seconds."),
    ] = None,
    json_path: JsonOption = None,
) -> None:
    """Key switching of levelled arithmetic: a polynomial times a secret one, as a ciphertext."""
    if checked_device(device) != "cpu":
        raise UnsupportedError(f"device: expected cpu, got '{device}': levelled arithmetic has no CUDA back end yet")
    largest = transform_primes(log_size, primes + special)
    engine = _engine.Levelled(
        log_size, largest[special:] + largest[:special], special, digit or special, PLAINTEXT_MODULUS
    )
    with progress(f"key switching modulo {primes} primes") as update:
        record = bench_keyswitch(engine, primes, batch, threads, repeats, update)
    head = {"log_size": log_size, "primes": primes, "special_primes": special, "digit_primes": digit or special}
    emit(head | record, json_path, f"Key switching, 2^{log_size} points modulo {primes} primes")


def bench_keyswitch(
    engine: _engine.Levelled, primes: int, batch: int, threads: int, repeats: int | None, update: ProgressCallback
) -> dict[str, Any]:
    size = engine.key_bodies_shape[2]
    secret = _engine.LevelledKey.generate(engine)
    key = engine.expand_key(*secret.switch_key(3), threads)
    messages = np.random.default_rng().integers(0, PLAINTEXT_MODULUS, (batch, size), dtype=np.uint32)
    words = engine.expand(*secret.encrypt(messages, primes))
    moved = engine.automorphism(words.reshape(-1, primes, size), 3, threads).reshape(words.shape)
    masks = np.ascontiguousarray(moved[:, 1])
    switched = engine.keyswitch(masks, key, threads)  # warm
    seconds: list[float] = []
    while not enough(seconds, repeats):
        start = time.perf_counter()
        switched = engine.keyswitch(masks, key, threads)
        seconds.append(time.perf_counter() - start)
        update(len(seconds), repeats or len(seconds))
    bodies = engine.add(np.ascontiguousarray(moved[:, 0]), np.ascontiguousarray(switched[:, 0]), False, threads)
    found = secret.messages(secret.phase(np.stack([bodies, switched[:, 1]], axis=1)))
    powers = np.arange(size) * 3 % (2 * size)
    expected = np.empty_like(messages)
    expected[:, powers % size] = np.where(powers < size, messages, (PLAINTEXT_MODULUS - messages) % PLAINTEXT_MODULUS)
    return {
        "device": "cpu",
        "batch": batch,
        "threads": threads,
        "median_seconds": statistics.median(seconds),
        "least_seconds": min(seconds),
        "most_seconds": max(seconds),
        "wrong": int(np.count_nonzero(found != expected)),
        "outputs": messages.size,
        "key_bytes": key.nbytes,
        "upload_bytes": key.nbytes // 2,
        "repeats": len(seconds),
        "cpu_features": _engine.cpu_features(),
    }
