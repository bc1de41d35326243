"""`cloakwork bench ntt`: large transforms, checked against the values of the polynomials and against the way back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer

from cloakwork.app.cli.bench.measure import Setting, enough
from cloakwork.app.cli.shared.console import JsonOption, ProgressCallback, progress
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.levelled.large_ntt import LargeNtt, Residues

CALLS = 20  # of a measurement on a device, one after the other
USUAL_REPEATS = 9
POINTS = 3  # of every polynomial whose values are computed another way


def ntt(
    log_size: Annotated[
        int, typer.Option("--log-size", min=12, max=17, help="Transform polynomials of 2^N coefficients.")
    ] = 17,
    primes: Annotated[int, typer.Option("--primes", min=1, help="Use N primes, of 28 bits while there are any.")] = 45,
    device: DeviceOption = "cpu",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Transform N polynomials, each modulo every prime.")] = 1,
    threads: ThreadsOption = 1,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats", min=1, help="Take the median of N measurements (default: 9; each of 20 calls on a GPU)."
        ),
    ] = None,
    json_path: JsonOption = None,
) -> None:
    """Measure large number-theoretic transforms modulo many primes."""
    setting = Setting(checked_device(device), batch, threads, repeats)
    ring = LargeNtt(log_size, primes, device, threads)
    with progress(f"transforms of 2^{log_size} points") as update:
        record = bench_ntt(ring, setting, update)
    emit(record, json_path, f"Transforms of 2^{log_size} points modulo {primes} primes")


def bench_ntt(ring: LargeNtt, setting: Setting, update: ProgressCallback) -> dict[str, Any]:
    words = drawn(ring, setting.batch)
    timed = _on_cpu if setting.device == "cpu" else _on_device
    repeats = setting.repeats or USUAL_REPEATS
    forward, values = timed(ring, words, False, repeats, lambda done: update(done, 2 * repeats))
    backward, back = timed(ring, values, True, repeats, lambda done: update(repeats + done, 2 * repeats))
    wrong = int(np.count_nonzero(back != words)) + wrong_values(ring, words, values)
    return {
        "log_size": ring.log_size,
        "primes": len(ring.primes),
        "device": setting.device,
        "batch": setting.batch,
        "threads": setting.threads,
        "median_seconds": statistics.median(forward),
        "least_seconds": min(forward),
        "most_seconds": max(forward),
        "inverse_seconds": statistics.median(backward),
        "wrong": wrong,
        "outputs": words.size + POINTS * words.shape[0] * words.shape[1],
        "table_bytes": ring.table_bytes,
        "repeats": repeats,
        "cpu_features": _engine.cpu_features(),
    }


def drawn(ring: LargeNtt, batch: int) -> Residues:
    """Returns random residues [batch, primes, N], the largest and the smallest among them."""
    rng = np.random.default_rng()
    bounds = np.array(ring.primes, np.uint32)[:, None]
    words = rng.integers(0, bounds, (batch, len(bounds), 1 << ring.log_size), dtype=np.uint32)
    words[..., 0], words[..., -1] = bounds[:, 0] - 1, 0
    return words


def wrong_values(ring: LargeNtt, words: Residues, values: Residues) -> int:
    """Counts wrong values of POINTS positions of every polynomial: sum_i a_i x^i with x = psi^(2 brv(position) + 1), by powers of x."""
    rng = np.random.default_rng()
    size, wrong = 1 << ring.log_size, 0
    for number, (q, psi) in enumerate(zip(ring.primes, ring.roots, strict=True)):
        for position in rng.integers(0, size, POINTS):
            reversed_position = int(format(position, f"0{ring.log_size}b")[::-1], 2)
            powers = np.ones(size, np.uint64)
            step, done = pow(psi, 2 * reversed_position + 1, q), 1
            while done < size:  # the powers so far, times the one that follows them
                powers[done : 2 * done] = powers[:done] * np.uint64(pow(step, done, q)) % np.uint64(q)
                done *= 2
            expected = (words[:, number] * powers % np.uint64(q)).sum(axis=1) % np.uint64(q)
            wrong += int(np.count_nonzero(expected != values[:, number, position]))
    return wrong


def _on_cpu(
    ring: LargeNtt, words: Residues, inverse: bool, repeats: int, report: Callable[[int], object]
) -> tuple[list[float], Residues]:
    transform = ring.inverse if inverse else ring.forward
    result: Residues = transform(words)  # warm
    seconds: list[float] = []
    while not enough(seconds, repeats):
        start = time.perf_counter()
        transform(words, out=result)
        seconds.append(time.perf_counter() - start)
        report(len(seconds))
    return seconds, result


def _on_device(
    ring: LargeNtt, words: Residues, inverse: bool, repeats: int, report: Callable[[int], object]
) -> tuple[list[float], Residues]:
    """Returns words on the device before and after; what the device's clock says."""
    on_device = ring.to_device(words)
    transform = ring.inverse if inverse else ring.forward
    result = transform(on_device).to_host()
    ring.seconds_on_device(on_device, inverse=inverse, calls=CALLS, repeats=1)  # warm
    seconds = ring.seconds_on_device(on_device, inverse=inverse, calls=CALLS, repeats=repeats)
    report(repeats)
    return seconds, result
