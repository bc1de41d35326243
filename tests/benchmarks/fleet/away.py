"""What clients see while the object storage or the database is away: slow, refused, hanging, answering 503, cut off in the middle.

CLOAKWORK_ALLOW_TOY=1 PYTHONPATH=tests/api:tests/models:tests/suite python tests/benchmarks/fleet/away.py --seconds 60 --json result.json

Two services on one PostgreSQL and one S3 (moto's), each behind a proxy that has faults. In each fault every operation is asked once at its beginning
and once ten seconds later; health and inference with a key that is resident are asked all the while. Afterwards: is anything lost that was accepted?
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import httpx
import postgresql
import psutil
from faulty_proxy import PASS, FaultyProxy, faulty_proxy
from scoring_server import Server, User, becomes, eventually, toy_model, with_model
from two_services import object_store

from cloakwork.models.program.artefact import program_to_bytes

_SAMPLES = 3
_AGAIN_SECONDS = 10.0  # into the fault
_RETURN_SECONDS = 120.0
STOPPED, DOWN = (
    "stopped",
    "down",
)  # of PostgreSQL itself: SIGSTOP of every process, an end as by its administrator and a start

Outcome = dict[str, Any]


@dataclass
class Place:
    """What the services use, and the services."""

    folder: Path
    store: FaultyProxy
    database: FaultyProxy
    postgresql: postgresql.Server
    settings: dict[str, str]
    variables: dict[str, str]
    servers: list[Server] = field(default_factory=list)

    def server(self, name: str) -> Server:
        return Server(self.folder / name, environment=self.settings, variables=self.variables)

    @contextmanager
    def fault(self, what: str, how: str) -> Iterator[None]:
        proxy = self.store if what == "storage" else self.database
        changes: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            STOPPED: (partial(self._signal, signal.SIGSTOP), partial(self._signal, signal.SIGCONT)),
            DOWN: (partial(self.postgresql.stop, "fast"), self.postgresql.start),
        }
        usual = partial(setattr, proxy, "mode", how), partial(setattr, proxy, "mode", PASS)
        begin, end = changes.get(how, usual)
        begin()
        try:
            yield
        finally:
            end()

    def _signal(self, which: signal.Signals) -> None:
        file = self.postgresql.folder / "data" / "postmaster.pid"
        root = psutil.Process(int(file.read_text(encoding="ascii").split()[0]))
        for process in [root, *root.children(recursive=True)]:
            process.send_signal(which)


@contextmanager
def place(folder: Path, **settings: str) -> Iterator[Place]:
    with (
        postgresql.server() as database,
        object_store() as (url, variables),
        faulty_proxy(int(urlsplit(variables["AWS_ENDPOINT_URL"]).port or 0)) as store,
        faulty_proxy(database.folder / ".s.PGSQL.5432") as proxy,
    ):
        common = {
            "DATABASE_URL": f"postgresql://cloakwork@127.0.0.1:{proxy.port}/postgres",
            "STORAGE_URL": url,
            "THREADS": "1",
            "TAKEOVER_SECONDS": "4",
            "RETENTION_CHECK_SECONDS": "1",
            "METRICS_PUBLIC": "true",
            **settings,
        }
        variables = {**variables, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.port}"}

        made = Place(folder, store, proxy, database, common, variables)
        try:
            for name in ("one", "two"):
                server = made.server(name)
                if name == "one":
                    with_model(server.data, toy_model())
                server.start()
                made.servers.append(server)
            yield made
        finally:
            for server in made.servers:
                if server.process is not None and server.process.poll() is None:
                    server.kill()


def asked(ask: Callable[[], httpx.Response]) -> Outcome:
    began = time.monotonic()
    try:
        answer = ask()
    except httpx.TransportError as error:
        return {"status": type(error).__name__, "seconds": round(time.monotonic() - began, 2)}
    found: Outcome = {"status": answer.status_code, "seconds": round(time.monotonic() - began, 2)}
    if not answer.is_success:
        found |= {"retry_after": answer.headers.get("Retry-After"), "said": answer.text[:160]}
    return found


class Watch:
    """Health, and inference with a resident key, asked again and again; memory, threads and descriptors of a process."""

    def __init__(self, server: Server, infer: Callable[[], httpx.Response]) -> None:
        assert server.process is not None
        self._process = psutil.Process(server.process.pid)
        self._server, self._infer = server, infer
        self._over = threading.Event()
        self.live: list[float] = []
        self.statuses: dict[str, int] = {}
        self.slowest = 0.0
        self.most: dict[str, float] = {}
        self._threads = [threading.Thread(target=each) for each in (self._ask_live, self._ask_infer, self._look)]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask_live(self) -> None:
        with self._server.client() as http:
            while not self._over.wait(0.1):
                began = time.monotonic()
                http.get("/v2/health/live").raise_for_status()
                self.live.append(time.monotonic() - began)

    def _ask_infer(self) -> None:
        while not self._over.wait(0.3):
            found = asked(self._infer)
            self.statuses[str(found["status"])] = self.statuses.get(str(found["status"]), 0) + 1
            self.slowest = max(self.slowest, found["seconds"])

    def _look(self) -> None:
        while not self._over.wait(0.2):
            for name, value in usage(self._process).items():
                self.most[name] = max(value, self.most.get(name, 0))


def usage(process: psutil.Process) -> dict[str, float]:
    return {
        "MB": process.memory_info().rss >> 20,
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
    }


class Customers:
    """What is there before a fault, and has to be there after it."""

    def __init__(self, made: Place, wait: float) -> None:
        one, two = made.servers
        self.one, self.two = one.client(), two.client()
        self.one.timeout = self.two.timeout = wait
        self.resident = User.of(self.one)
        self.resident.upload()
        self.body = self.resident.encrypt(_SAMPLES)[1]
        self.expected = self.resident.infer(self.body).raise_for_status().content
        for _ in range(10):  # both have it
            self.resident.infer(self.body).raise_for_status()
            self.two.post("/v2/models/toy/infer", content=self.body).raise_for_status()

    def infer(self, **headers: str) -> httpx.Response:
        return self.resident.infer(self.body, headers=headers)

    def job(self, http: httpx.Client) -> httpx.Response:
        return http.post("/v2/models/toy/jobs", content=self.body)

    def is_right(self, http: httpx.Client, job: str) -> bool:
        answer = http.get(f"/v2/jobs/{job}/result")
        return answer.status_code == 200 and self.resident.same_answer(answer.content, self.expected)


def new_key(http: httpx.Client, parts: int) -> tuple[User, str]:
    """An upload of which so many halves are there."""
    user = User.of(http)
    identity: str = http.post("/v2/keys", json=user.announcement()).raise_for_status().json()["id"]
    middle = len(user.keys) // 2
    for start, end in ((0, middle), (middle, len(user.keys)))[:parts]:
        user.send(identity, start, end).raise_for_status()
    return user, identity


def _state_of(http: httpx.Client, job: str) -> str:
    state: str = http.get(f"/v2/jobs/{job}").json()["state"]
    return state


def measure(made: Place, what: str, how: str, seconds: float, number: int) -> Outcome:
    wait = seconds + 60
    customers = Customers(made, wait)
    one, two = customers.one, customers.two
    done = [customers.job(one).raise_for_status().json()["id"] for _ in range(6)]
    for job in done:
        assert becomes(partial(_state_of, one, job), "done")
    uploads = [new_key(one, 1) for _ in range(4)]
    cold = [new_key(one, 2) for _ in range(2)]
    spare = [new_key(one, 2) for _ in range(2)]
    announced = User.of(one)
    model = program_to_bytes(toy_model(seed=number + 10).program)
    middle = len(announced.keys) // 2

    def cold_infer(user: User) -> httpx.Response:
        return two.post("/v2/models/toy/infer", content=user.encrypt(1)[1])

    def operations(turn: int) -> dict[str, Callable[[], httpx.Response]]:
        upload, identity = uploads[turn]
        ended, ending = uploads[2 + turn]
        return {
            "ready": lambda: one.get("/v2/health/ready"),
            "metrics": lambda: one.get("/metrics"),
            "list keys": lambda: one.get("/v2/keys"),
            "list models": lambda: one.get("/v2/models"),
            "usage": lambda: one.get("/v2/usage"),
            "admin jobs": lambda: one.get("/v2/admin/jobs"),
            "announce key": lambda: one.post(
                "/v2/keys", json=announced.announcement(sha256=f"{number:032x}{turn:032x}")
            ),
            "announce a key that is there": lambda: one.post("/v2/keys", json=customers.resident.announcement()),
            "send a part": lambda: upload.send(identity, middle, middle + 4096),
            "send the last part": lambda: ended.send(ending, middle),
            "infer": customers.infer,
            "infer, key elsewhere": lambda: cold_infer(cold[turn][0]),
            "job": lambda: customers.job(one),
            "state of a job": lambda: one.get(f"/v2/jobs/{done[0]}"),
            "result": lambda: one.get(f"/v2/jobs/{done[1 + turn]}/result"),
            "result, elsewhere": lambda: two.get(f"/v2/jobs/{done[1 + turn]}/result"),
            "delete a job": lambda: one.delete(f"/v2/jobs/{done[3 + turn]}"),
            "delete a key": lambda: one.delete(f"/v2/keys/{spare[turn][1]}"),
            "send a model": lambda: one.put(f"/v2/repository/models/m{number}-{turn}/versions/1", content=model),
        }

    assert made.servers[0].process is not None
    before = usage(psutil.Process(made.servers[0].process.pid))
    with ThreadPoolExecutor(60) as pool:
        engines = [each for server in made.servers for each in server.engines()]
        for engine in engines:
            engine.suspend()
        under_way = [customers.job(each).raise_for_status().json()["id"] for each in (one, one, two)]
        time.sleep(0.5)
        with made.fault(what, how), Watch(made.servers[0], customers.infer) as watch:
            began = time.monotonic()
            for engine in engines:
                engine.resume()
            pending = []
            starting = made.server(f"new-{number}")
            start = pool.submit(started, starting, wait)
            for turn in (0, 1):
                pending.append({name: pool.submit(asked, ask) for name, ask in operations(turn).items()})
                time.sleep(min(_AGAIN_SECONDS, seconds / 2))
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        over = time.monotonic()
        outcomes = [{name: each.result() for name, each in turn.items()} for turn in pending]
        last = max(each["seconds"] for turn in outcomes for each in turn.values())
        new = start.result()
    # --- afterwards ---
    assert eventually(
        lambda: all(asked(partial(http.get, "/v2/health/ready"))["status"] == 200 for http in (one, two)),
        _RETURN_SECONDS,
    )
    ready = time.monotonic() - over
    accepted = list(under_way)
    lost: list[str] = []

    def check(name: str, holds: Callable[[], bool]) -> None:
        if not eventually(holds, _RETURN_SECONDS, 0.2):
            lost.append(name)

    check("jobs under way", lambda: all(one.get(f"/v2/jobs/{job}").json()["state"] == "done" for job in accepted))
    listed = {job["id"]: job for job in one.get("/v2/jobs").json()["jobs"]}
    check("every job is done", lambda: {job["state"] for job in one.get("/v2/jobs").json()["jobs"]} <= {"done"})
    back = time.monotonic() - over
    failed = [job for job in one.get("/v2/jobs").json()["jobs"] if job["state"] != "done"]
    check(
        "results are right",
        lambda: all(customers.is_right(http, job) for http in (one, two) for job in (accepted[0], done[0])),
    )
    keys = {key["id"]: key for key in one.get("/v2/keys").json()["keys"]}
    lost += [f"key {user}" for user, identity in [*cold, *uploads] if identity not in keys]
    check("cold keys", lambda: all(cold_infer(user).status_code == 200 for user, _ in cold))
    for user, identity in uploads:
        check("upload goes on", partial(goes_on, user, identity))
    assert made.servers[0].process is not None
    return {
        "what": what,
        "how": how,
        "operations": outcomes,
        "start": new,
        "live_slowest": round(max(watch.live), 2),
        "live_asked": len(watch.live),
        "infer_meanwhile": watch.statuses,
        "infer_slowest": watch.slowest,
        "slowest": last,
        "ready_after": round(ready, 1),
        "jobs_after": round(back, 1),
        "lost": lost,
        "failed": failed,
        "listed": len(listed),
        "before": before,
        "most": watch.most,
        "after": usage(psutil.Process(made.servers[0].process.pid)),
        "log_lines": sum(len(each.log_lines()) for each in made.servers),
        "log_bytes": sum(each.log.stat().st_size for each in made.servers),
    }


def goes_on(user: User, identity: str) -> bool:
    answer = user.http.get(f"/v2/keys/{identity}")
    if answer.status_code != 200:
        return False
    facts = answer.json()
    if facts["state"] == "ready":
        return True
    return user.send(identity, facts["offset"]).status_code == 200


def started(server: Server, wait: float) -> Outcome:
    """Whether a service that starts now says something, ends, or waits."""
    began = time.monotonic()
    try:
        with patch("scoring_server.START_SECONDS", wait):
            server.start()
        said = "ready"
    except AssertionError:
        assert server.process is not None
        said = f"status {server.process.poll()}: " + server.log.read_text(encoding="utf-8")[-300:]
    took = round(time.monotonic() - began, 1)
    if server.process is not None and server.process.poll() is None:
        server.kill()
    return {"said": said, "seconds": took}


def main() -> None:
    parser = argparse.ArgumentParser(description="a storage and a database that are away")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="*", help="such as storage/503")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    faults = [("storage", how) for how in ("slow", "500", "503", "hangs", "refused", "cut")]
    faults += [("database", how) for how in ("refused", "hangs", STOPPED, DOWN, "slow")]
    records: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name, place(Path(name)) as made:
        for number, (what, how) in enumerate(faults):
            if options.only and f"{what}/{how}" not in options.only:
                continue
            made.store.delay, made.database.delay = 3.0, 0.3
            records.append(measure(made, what, how, options.seconds, number))
            show(records[-1])
            if options.json:
                options.json.write_text(json.dumps(records, indent=1))
        if options.json:
            for server in made.servers:
                options.json.with_suffix(f".{server.data.name}.log").write_bytes(server.log.read_bytes())


def show(record: Outcome) -> None:
    print(f"== {record['what']} {record['how']}")
    for name in record["operations"][0]:
        seen = [turn[name] for turn in record["operations"]]
        said = (
            f"{each['status']} {each['seconds']} s {each.get('retry_after', '')} {each.get('said', '')[:60]}"
            for each in seen
        )
        print(f"   {name:30}", " | ".join(said))
    print(json.dumps({name: value for name, value in record.items() if name != "operations"}), flush=True)


if __name__ == "__main__":
    main()
