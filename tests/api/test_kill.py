"""kill -9 of the engine and of the web process under load: no accepted job and no key is lost, and every answer is right."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from scoring_server import Server, User, becomes, eventually, running

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]

ROUNDS = int(os.environ.get("CLOAKWORK_TEST_KILLS", "6"))
SEED = int(os.environ.get("CLOAKWORK_TEST_SEED", "1"))
SAMPLES = 40


class Load:
    """One user that submits jobs and asks for answers until told to stop."""

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self._number = number
        with server.client() as http:
            user = User.of(http)
            self.key = user.upload()
        self._bodies = [user.encrypt(samples=SAMPLES, seed=seed)[1] for seed in range(4)]
        self._user = user
        self.expected: dict[bytes, bytes] = {}
        self.accepted: dict[str, bytes] = {}
        self.answered = 0
        self.problems: list[str] = []
        self.stop = threading.Event()

    def learn(self) -> None:
        """Evaluation is exact: the answers before the kills are the answers after them, under other masks."""
        with self._server.client() as http:
            for body in self._bodies:
                self.expected[body] = http.post("/v2/models/toy/infer", content=body).raise_for_status().content

    def run(self) -> None:
        with self._server.client() as http:
            count = 0
            while not self.stop.is_set():
                count += 1
                body = self._bodies[count % len(self._bodies)]
                try:
                    self._ask(http, body) if count % 2 else self._submit(http, body, f"{self._number}-{count}")
                except httpx.TransportError:
                    self.stop.wait(0.05)  # the web process is down; a job that was not accepted is not counted

    def _ask(self, http: httpx.Client, body: bytes) -> None:
        answer = http.post("/v2/models/toy/infer", content=body)
        if answer.status_code == 200:
            self.answered += 1
            if not self._user.same_answer(answer.content, self.expected[body]):
                self.problems.append("a wrong answer")
        elif answer.status_code == 202:  # the queue is long: it has become a job
            self.accepted[answer.json()["id"]] = body
        elif answer.status_code not in (429, 503):
            self.problems.append(f"{answer.status_code} {answer.text}")

    def _submit(self, http: httpx.Client, body: bytes, name: str) -> None:
        answer = http.post("/v2/models/toy/jobs", content=body, headers={"Idempotency-Key": name})
        if answer.status_code == 202:
            self.accepted[answer.json()["id"]] = body
        elif answer.status_code not in (429, 503):
            self.problems.append(f"{answer.status_code} {answer.text}")

    def check(self) -> None:
        with self._server.client() as http:
            assert [key["state"] for key in http.get("/v2/keys").json()["keys"] if key["id"] == self.key] == ["ready"]
            for identity, body in self.accepted.items():
                state = finished(http, identity)
                assert state["state"] == "done", state
                assert self._user.same_answer(http.get(f"/v2/jobs/{identity}/result").content, self.expected[body])


def progress(loads: list[Load]) -> int:
    """Accepted jobs and answers so far."""
    return sum(len(load.accepted) + load.answered for load in loads)


def finished(http: httpx.Client, identity: str) -> dict[str, Any]:
    def job() -> dict[str, Any]:
        return dict(http.get(f"/v2/jobs/{identity}").json())

    assert eventually(lambda: job()["state"] in ("done", "failed", "cancelled"), 300)
    return job()


def test_no_accepted_job_is_lost(tmp_path: Path, fill: Callable[[Path], Path]):
    """Each kill comes after as many more accepted jobs and answers as its seed says, whatever the machine's speed."""
    chance = random.Random(SEED)
    with running(fill(tmp_path / "data"), environment={"MAX_ATTEMPTS": "50"}) as server:
        loads = [Load(server, number) for number in range(3)]
        for load in loads:
            load.learn()
        threads = [threading.Thread(target=load.run) for load in loads]
        for thread in threads:
            thread.start()
        for number in range(ROUNDS):
            more = progress(loads) + chance.randint(1, 12)
            assert eventually(lambda more=more: progress(loads) >= more, every=0.002)
            if number % 2:
                server.kill()
                server.start()
            else:
                with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                    server.kill_engine()
        for load in loads:
            load.stop.set()
        for thread in threads:
            thread.join(120)
        for load in loads:
            load.check()
            assert load.problems == []
        assert all(load.accepted for load in loads) and progress(loads) > ROUNDS


def test_a_request_that_kills_every_engine_fails_and_the_service_goes_on(tmp_path: Path, fill: Callable[[Path], Path]):
    limits = {"MAX_ATTEMPTS": "1", "THREADS": "1"}
    with running(fill(tmp_path / "data"), environment=limits) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        with server.engine_held():
            job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).raise_for_status().json()
            assert becomes(lambda: http.get(f"/v2/jobs/{job['id']}").json()["state"], "running")
            server.kill_engine()
        state = finished(http, job["id"])
        assert (state["state"], state["error"]["code"]) == ("failed", "engine_lost")
        assert http.get(f"/v2/jobs/{job['id']}/result").status_code == 410
        assert user.infer(user.encrypt()[1]).status_code == 200
