"""Clients of a fleet: each has keys of its own, knows the right answers before it asks, and asks another web process when one is gone."""

from __future__ import annotations

import hashlib
import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from scoring_server import User

import cloakwork.models.zoo
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.models.audit.audit_key import Transcript, load_audit_key
from cloakwork.models.program import Program
from cloakwork.models.runtime import Runtime

ZOO = Path(cloakwork.models.zoo.__file__).parent
_AGAIN = (429, 502, 503, 504)
_PATIENCE_SECONDS = 300.0


def zoo_rows(model: str) -> np.ndarray:
    with np.load(ZOO / f"{model}.samples.npz") as samples:
        return np.asarray(samples["x"])


@dataclass
class Outcome:
    """What one client saw."""

    answered: int = 0
    latencies: list[float] = field(default_factory=list)  # of requests answered by the first web process asked, seconds
    jobs: dict[str, tuple[int, float]] = field(default_factory=dict)  # which body, and when it was accepted
    retries: int = 0
    problems: list[str] = field(default_factory=list)


class Customer:
    """`urls` of all web processes. Requests go to one after the other."""

    def __init__(self, urls: list[str], token: str, model: str, seed: int) -> None:
        self._random = random.Random(seed)
        self._clients = [
            httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False)
            for url in urls
        ]
        self._turn = itertools.cycle(range(len(urls)))
        self.model = model
        self.user = User.of(self._clients[0], model)
        self.bodies: list[bytes] = []
        self.answers: list[bytes] = []
        self.outcome = Outcome()
        self._asked = itertools.count()

    def prepare(self, program: Program, audit_key: Path, bodies: int, samples: int) -> None:
        """Uploads the keys, a part to each web process in turn; encrypts; and computes what the owner of the service would."""
        self._upload()
        key, session = load_audit_key(audit_key), Session(EvaluationKeys.from_bytes(self.user.keys), threads=2)
        rows, key_digest = zoo_rows(self.model), hashlib.sha256(self.user.keys).digest()
        for _ in range(bodies):
            x = rows[[self._random.randrange(len(rows)) for _ in range(samples)]]
            body = self.user.specification.encrypt(self.user.key, x).to_bytes()
            seed = partial(key.seed, Transcript(program.digest, key_digest, hashlib.sha256(body).digest()))
            answer = Runtime(program, session).answer(SeededPackedCiphertexts.from_bytes(body), seed=seed)
            self.bodies.append(body)
            self.answers.append(answer.to_bytes())

    def _upload(self) -> None:
        http = self._clients[0]
        opened = http.post("/v2/keys", json=self.user.announcement())
        opened.raise_for_status()
        identity, size, part = opened.json()["id"], len(self.user.keys), 8 << 20
        for start in range(0, size, part):
            headers = {"Upload-Offset": str(start)}
            chunk = self.user.keys[start : start + part]
            sent = self._clients[next(self._turn)].patch(f"/v2/keys/{identity}", content=chunk, headers=headers)
            sent.raise_for_status()

    def ask(self, requests: int, job_share: float) -> None:
        for _ in range(requests):
            which = self._random.randrange(len(self.bodies))
            try:
                self._one(which, self._random.random() < job_share)
            except (AssertionError, httpx.HTTPError) as error:
                self.outcome.problems.append(f"{type(error).__name__}: {error}")

    def _one(self, which: int, as_job: bool) -> None:
        route = f"/v2/models/{self.model}/{'jobs' if as_job else 'infer'}"
        headers = {"Idempotency-Key": f"{self.user.key.key_id.hex()}-{next(self._asked)}"} if as_job else {}
        began, first = time.monotonic(), True
        while True:
            answer = self._try("POST", route, content=self.bodies[which], headers=headers)
            if answer is not None and answer.status_code not in _AGAIN:
                break
            first = False
            self.outcome.retries += 1
            assert time.monotonic() - began < _PATIENCE_SECONDS, "nobody answered"
            time.sleep(0.1)
        if answer.status_code == 202:
            self.outcome.jobs[answer.json()["id"]] = which, began
            return
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
        assert answer.content == self.answers[which], "a wrong answer"
        self.outcome.answered += 1
        if first:
            self.outcome.latencies.append(time.monotonic() - began)

    def _try(self, method: str, route: str, **options: Any) -> httpx.Response | None:
        """None when that web process is not there."""
        try:
            return self._clients[next(self._turn)].request(method, route, **options)
        except httpx.TransportError:
            return None

    def job_records(self) -> list[dict[str, Any]]:
        """Of all jobs that were accepted, as the service tells them."""
        return [
            self._clients[0].get(f"/v2/jobs/{identity}").raise_for_status().json() for identity in self.outcome.jobs
        ]

    def newest_jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            self._clients[0].get("/v2/jobs", params={"limit": 1000}).raise_for_status().json()["jobs"]
        )
        return found

    def collect(self) -> None:
        """Every job that was accepted has to be there, done and right."""
        for identity, (which, _) in self.outcome.jobs.items():
            state = self._until(f"/v2/jobs/{identity}", lambda job: job["state"] not in ("queued", "running"))
            if state is None or state.status_code != 200 or state.json()["state"] != "done":
                self.outcome.problems.append(f"job {identity} is lost or was not done: {state and state.text}")
                continue
            result = self._until(f"/v2/jobs/{identity}/result")
            if result is None or result.content != self.answers[which]:
                self.outcome.problems.append(f"job {identity} has a wrong result")

    def _until(self, route: str, enough: Callable[[Any], bool] | None = None) -> httpx.Response | None:
        """The last answer, which is whole or an error that waiting does not mend."""
        end = time.monotonic() + _PATIENCE_SECONDS
        answer = None
        while time.monotonic() < end:
            answer = self._try("GET", route)
            final = answer is not None and answer.status_code not in _AGAIN
            if answer is not None and final and (answer.status_code != 200 or enough is None or enough(answer.json())):
                return answer
            time.sleep(0.1)
        return answer


def together(work: list[threading.Thread]) -> None:
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
