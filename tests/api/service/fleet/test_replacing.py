"""An upgrade as docs/howto/operations.md has it: processes are replaced one after the other, workers first, and nobody loses an answer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from fleet_servers import processes
from scoring_server import Server, User, becomes, job_result

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]


@pytest.mark.tier("release")
def test_nobody_notices(tmp_path: Path, fill: Callable[[Path], Path], database: str):
    key, over = tmp_path / "audit.key", threading.Event()
    key.write_bytes(bytes(32))
    with processes(tmp_path, fill, database, SYNCHRONOUS_SECONDS="60", AUDIT_KEY=str(key)) as group:
        workers = [group.start("worker") for _ in range(2)]
        webs = [group.start("web") for _ in range(2)]
        with webs[0].client() as http:
            user = User.of(http)
            user.upload()
            _, body = user.encrypt(samples=50)
            expected = user.infer(body).raise_for_status().content
            jobs = [http.post("/v2/models/toy/jobs", content=body).json()["id"] for _ in range(10)]
        answers: Counter[object] = Counter()
        asking = threading.Thread(target=ask_until, args=(over, webs, body, expected, answers, jobs))
        asking.start()
        try:
            for server in (*workers, *webs):
                before = answers.total()
                server.stop()
                server.start()
                assert becomes(lambda before=before: answers.total() > before, True)
        finally:
            over.set()
            asking.join(60)
        assert set(answers) == {"right"}, answers
        for server in (*workers, *webs):
            (ended,) = [line for line in server.log_lines() if line["message"] == "ended"]
            assert ended["drained"], ended
        with webs[0].client() as http:
            for job in jobs:
                assert job_result(http, job) == expected


def ask_until(
    over: threading.Event, webs: list[Server], body: bytes, expected: bytes, answers: Counter[object], jobs: list[str]
) -> None:
    """Sends one request after the other to the first web process that is ready, as a proxy does that asks for health. What is accepted as a job
    while the other jobs wait is one of `jobs`."""
    while not over.is_set():
        for web in webs:
            try:
                with web.client() as http:
                    if not http.get("/v2/health/ready").is_success:
                        continue
                    answer = http.post("/v2/models/toy/infer", content=body)
            except httpx.ConnectError:
                continue
            except httpx.TransportError as error:
                answers[type(error).__name__] += 1
            else:
                jobs += [answer.json()["id"]] if answer.status_code == 202 else []
                answers["right" if answer.status_code == 202 or answer.content == expected else answer.status_code] += 1
            break
