"""Beside long jobs of another tenant short requests are answered at once: in one process and in a fleet, of one worker or two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
from fleet_servers import processes
from postgresql import needs_postgresql, postgresql
from scoring_server import Server, User, becomes, new_tenant, running

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

LIMITS = {"SYNCHRONOUS_SECONDS": "0.1"}
JOBS = 6
SAMPLES = 4096


@contextmanager
def one_process(folder: Path, fill: Callable[[Path], Path], threads: int) -> Iterator[tuple[Server, str | None]]:
    data = fill(folder / "data")
    new_tenant(data, "first")
    with running(data, insecure=False, environment={**LIMITS, "THREADS": str(threads)}) as server:
        yield server, None


@contextmanager
def fleet(folder: Path, fill: Callable[[Path], Path], workers: int) -> Iterator[tuple[Server, str | None]]:
    needs_postgresql()
    with postgresql() as database:
        new_tenant(folder, "first", database=database)
        with processes(folder, fill, database, insecure=False, **LIMITS) as group:
            for _ in range(workers):
                group.start("worker")
            yield group.start("web"), database


SERVICES = {
    "two threads": partial(one_process, threads=2),
    "one thread": partial(one_process, threads=1),
    "two workers": partial(fleet, workers=2),
    "one worker": partial(fleet, workers=1),
}


@pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))
def test_a_short_request_is_answered_beside_long_jobs(
    tmp_path: Path, fill: Callable[[Path], Path], service: Callable[..., Iterator[tuple[Server, str | None]]]
):
    with service(tmp_path, fill) as (server, database):  # type: ignore[attr-defined]

        def client(name: str) -> httpx.Client:
            token = new_tenant(server.data, name, database=database)
            return server.client(headers={"Authorization": f"Bearer {token}"})

        with client("greedy") as theirs, client("calm") as mine:
            greedy, calm = User.of(theirs), User.of(mine)
            for user in (greedy, calm):
                user.upload()
            assert (
                greedy.infer(greedy.encrypt(samples=50)[1]).status_code == 200
            )  # from here on it is known how long runs take
            body = greedy.encrypt(samples=SAMPLES)[1]
            jobs = [
                theirs.post("/v2/models/toy/jobs", content=body).raise_for_status().json()["id"] for _ in range(JOBS)
            ]

            def states() -> list[str]:
                return [theirs.get(f"/v2/jobs/{job}").json()["state"] for job in jobs]

            assert becomes(lambda: "running" in states(), True)
            short = calm.encrypt()[1]
            answers = [calm.infer(short).status_code for _ in range(20)]
            left = [state for state in states() if state != "done"]
            for job in jobs:
                theirs.delete(f"/v2/jobs/{job}")
            assert left and answers == [200] * 20
