"""`cloakwork bench serve`: users with keys of their own score samples on a running server; every answer is checked."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import numpy as np
import typer
from numpy.typing import NDArray

from cloakwork.app.cli.shared.console import FailureError, JsonOption, WrongCallError, progress
from cloakwork.app.cli.shared.interrupts import ended_like_ctrl_c
from cloakwork.app.cli.shared.model_files import find_model
from cloakwork.app.cli.shared.service_options import HeaderOption, UrlOption, api_key
from cloakwork.app.cli.shared.tables import emit
from cloakwork.app.client.table import Table, read_samples
from cloakwork.fhe_core.errors import FheError

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass
class Load:
    """Load of a run: requests and their outcomes."""

    model: str
    samples: Table
    expected: NDArray[Any]  # class or value of each sample, in clear
    requests: int
    deadline: float
    sent: int = 0
    latencies: list[float] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)
    wrong: int = 0
    failures: list[str] = field(default_factory=list)

    def next_sample(self) -> int | None:
        """Returns None when there are enough requests or the time is up."""
        if self.sent >= self.requests or time.monotonic() > self.deadline:
            return None
        self.sent += 1
        return (self.sent - 1) % len(self.samples)


def serve(
    samples: Annotated[
        Path, typer.Argument(help="Samples: a .csv or .npy file; users send them in turn, one in a request.")
    ],
    url: UrlOption,
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Use this model of the server.")],
    artefact: Annotated[
        str | None,
        typer.Option(
            "--artefact",
            metavar="MODEL",
            help="Check the answers with this copy of the model (default: the model of that name in the zoo).",
        ),
    ] = None,
    users: Annotated[
        int,
        typer.Option("--users", min=1, max=256, help="Send requests of N users at a time, each with a key of its own."),
    ] = 8,
    requests: Annotated[
        int, typer.Option("--requests", min=1, max=1_000_000, help="Send N requests, of all users together.")
    ] = 500,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, max=86_400, metavar="N", help="Stop after N seconds.")
    ] = 600.0,
    api_key_files: Annotated[
        list[Path] | None,
        typer.Option(
            "--api-key-file",
            help="Read an API key from this file; may be repeated: users take them in turn.",
        ),
    ] = None,
    anywhere: Annotated[bool, typer.Option("--anywhere", help="Allow a server that is not on this machine.")] = False,
    header: HeaderOption = None,
    json_path: JsonOption = None,
) -> None:
    """Put load on a server, and check every answer."""
    if urlsplit(url).hostname not in _LOOPBACK and not anywhere:
        raise WrongCallError(f"--url: {url} is not this machine; pass --anywhere if its operator agreed to the load")
    table = read_samples(samples, header)
    predicted = find_model(artefact or model).predict(table)
    if isinstance(predicted, dict):
        raise WrongCallError(f"--model: '{model}' has several outputs; bench serve compares models of one")
    expected = _answers(predicted)
    load = Load(model, table, expected, requests, 0.0)
    tokens = [api_key(path) for path in api_key_files] if api_key_files else [api_key(None)]
    with ended_like_ctrl_c(), progress(f"{users} users") as update:
        elapsed = asyncio.run(_run(load, url, tokens, users, seconds, update))
    if not load.latencies:
        raise FailureError(f"no request was answered: {load.failures[0] if load.failures else 'the time was up'}")
    emit(_record(load, users, len(tokens), elapsed), json_path, f"{model} at {url}")
    if load.wrong or load.failures:
        reason = f"; first: {load.failures[0]}" if load.failures else ""
        raise FailureError(f"{load.wrong} answers are wrong and {len(load.failures)} requests failed{reason}")


def _answers(predictions: NDArray[Any]) -> NDArray[Any]:
    """Returns labels as they are, scores of classes as the best class."""
    array = np.asarray(predictions)
    return array.argmax(axis=-1) if array.ndim > 1 and array.shape[-1] > 1 else array.reshape(len(array))


def _agrees(answer: Any, expected: NDArray[Any], i: int) -> bool:
    """Labels are equal; a real number, which has noise by design, is within a twentieth of the range of all."""
    if expected.dtype.kind != "f":
        return bool(answer == expected[i])
    return bool(abs(answer - expected[i]) <= (expected.max() - expected.min()) / 20)


async def _run(
    load: Load, url: str, tokens: list[str | None], users: int, seconds: float, update: Callable[[int, int], bool]
) -> float:
    """Everyone makes and uploads keys first; then the clock starts."""
    from cloakwork.app.client.client import AsyncClient
    from cloakwork.app.client.keyring import TemporaryKeyring

    with tempfile.TemporaryDirectory(prefix="cloakwork-load-") as folder:
        clients = []
        for i in range(users):
            home = Path(folder) / str(i)
            home.mkdir()
            clients.append(AsyncClient(url, tokens[i % len(tokens)], keyring=TemporaryKeyring(home)))
        try:
            for client in clients:
                await client.score(load.model, load.samples[:1])
            load.deadline = time.monotonic() + seconds
            start = time.monotonic()
            await asyncio.gather(*(_user(client, load, update) for client in clients))
            return time.monotonic() - start
        finally:  # also after Ctrl-C: every client deletes its keys from the server
            await asyncio.gather(*(client.close() for client in clients))


async def _user(client: Any, load: Load, update: Callable[[int, int], bool]) -> None:
    while (i := load.next_sample()) is not None:
        start = time.monotonic()
        try:
            scores = await client.score(load.model, load.samples[i : i + 1])
        except FheError as error:
            load.failures.append(str(error))
            continue
        load.latencies.append(time.monotonic() - start)
        load.computed.append(scores.compute_seconds)
        load.wrong += int(not _agrees(_answers(scores.predictions)[0], load.expected, i))
        update(len(load.latencies), load.requests)


def _record(load: Load, users: int, tenants: int, elapsed: float) -> dict[str, Any]:
    p50 = statistics.median(load.latencies)
    compute = statistics.median(load.computed)
    return {
        "model": load.model,
        "users": users,
        "tenants": tenants,
        "requests": load.sent,
        "answered": len(load.latencies),
        "wrong": load.wrong,
        "failed": len(load.failures),
        "seconds": elapsed,
        "per_second": len(load.latencies) / elapsed,
        "p50_seconds": p50,
        "p95_seconds": float(np.quantile(load.latencies, 0.95)),
        "p99_seconds": float(np.quantile(load.latencies, 0.99)),
        "compute_p50_seconds": None if np.isnan(compute) else compute,
        "p50_over_compute": None if np.isnan(compute) else p50 / compute,
    }
