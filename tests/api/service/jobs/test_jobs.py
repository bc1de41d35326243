"""Jobs: accepted, watched, cancelled, forgotten; idempotency, priorities, deadlines."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import httpx
from in_process import LocalServer
from scoring_server import User

BUSY = 12  # more than an engine takes at a time


def submit(user: User, body: bytes, **options: Any) -> dict[str, Any]:
    answer = user.http.post(f"/v2/models/{user.model}/jobs", content=body, **options)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v2/jobs/{job['id']}"
    return job


def wait(http: httpx.Client, job: dict[str, Any], seconds: float = 60) -> dict[str, Any]:
    """By its events, as a client should."""
    with http.stream("GET", f"/v2/jobs/{job['id']}/events", timeout=seconds) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        for _ in events.iter_lines():
            pass
    found: dict[str, Any] = http.get(f"/v2/jobs/{job['id']}").json()
    return found


def test_a_job_gives_what_an_answer_at_once_gives(user: User, http: httpx.Client):
    user.upload()
    _, body = user.encrypt(samples=3)
    job = wait(http, submit(user, body))
    assert (job["state"], job["samples"], job["error"]) == ("done", 3, None)
    result = http.get(f"/v2/jobs/{job['id']}/result")
    assert user.same_answer(result.content, user.infer(body).content)
    assert result.headers["etag"].strip('"') == hashlib.sha256(result.content).hexdigest() == job["result_sha256"]
    assert len(result.content) == job["result_bytes"]


def test_a_client_that_prefers_a_job_gets_one(user: User, http: httpx.Client):
    user.upload()
    answer = user.infer(user.encrypt()[1], headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    assert wait(http, answer.json())["state"] == "done"


def test_events_tell_the_life_of_a_job(user: User, http: httpx.Client):
    user.upload()
    job = submit(user, user.encrypt(samples=200)[1])
    with http.stream("GET", f"/v2/jobs/{job['id']}/events") as stream:
        text = "".join(stream.iter_text())
    events = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.split("\n\n") if block]
    names = [event["event"] for event in events]
    assert names[-1] == "done" and set(names) <= {"queued", "started", "progress", "done"}
    assert names == sorted(names, key=["queued", "started", "progress", "done"].index)
    assert json.loads(events[-1]["data"])["state"] == "done"
    for event in events:
        if event["event"] == "progress":
            progress = json.loads(event["data"])
            assert 0 <= progress["done"] <= progress["total"] == 200 * user.facts["bootstraps"]


def test_an_idempotency_key_makes_one_job(user: User, http: httpx.Client):
    user.upload()
    _, body = user.encrypt()
    headers = {"Idempotency-Key": f"once-{time.time_ns()}"}
    first, second = submit(user, body, headers=headers), submit(user, body, headers=headers)
    assert first["id"] == second["id"]
    _, other = user.encrypt(seed=5)
    refused = http.post("/v2/models/toy/jobs", content=other, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert wait(http, first)["state"] == "done"
    assert submit(user, body, headers=headers)["state"] == "done"


def test_a_finished_job_is_forgotten_with_its_result(user: User, http: httpx.Client):
    user.upload()
    job = wait(http, submit(user, user.encrypt()[1]))
    assert job["id"] in [each["id"] for each in http.get("/v2/jobs").json()["jobs"]]
    assert http.delete(f"/v2/jobs/{job['id']}").status_code == 204
    for path in (f"/v2/jobs/{job['id']}", f"/v2/jobs/{job['id']}/result", f"/v2/jobs/{job['id']}/events"):
        assert http.get(path).status_code == 404
    assert http.delete(f"/v2/jobs/{job['id']}").status_code == 404


def test_a_waiting_or_running_job_is_cancelled(server: LocalServer, user: User, http: httpx.Client):
    user.upload()
    _, body = user.encrypt(samples=20)
    with server.engine_held():
        jobs = [submit(user, body) for _ in range(BUSY)]
        last = jobs[-1]
        assert http.get(f"/v2/jobs/{last['id']}/result").status_code == 409
        for job in jobs:
            assert http.delete(f"/v2/jobs/{job['id']}").status_code == 204
    for job in jobs:
        state = wait(http, job)["state"]
        assert state == "cancelled" or (state == "done" and job is not last)
    gone = http.get(f"/v2/jobs/{last['id']}/result")
    assert (gone.status_code, gone.json()["code"]) == (410, "gone")


def test_a_deadline_ends_a_job(server: LocalServer, user: User, http: httpx.Client):
    user.upload()
    _, body = user.encrypt()
    with server.engine_held():
        busy = [submit(user, body) for _ in range(BUSY)]
        job = wait(http, submit(user, body, params={"deadline_seconds": 0.05, "priority": 0}))
    assert (job["state"], job["error"]["code"]) == ("failed", "deadline_exceeded")
    assert {wait(http, each)["state"] for each in busy} == {"done"}


def test_a_job_whose_key_was_deleted_fails_with_a_reason(server: LocalServer, user: User, http: httpx.Client):
    key = user.upload()
    with server.engine_held():
        busy = [submit(user, user.encrypt()[1]) for _ in range(BUSY)]
        job = submit(user, user.encrypt()[1], params={"priority": 0})
        assert http.delete(f"/v2/keys/{key}").status_code == 204
    state = wait(http, job)
    assert state["state"] == "done" or state["error"]["code"] == "gone"
    for each in busy:
        assert wait(http, each)["state"] in ("done", "failed")


def test_a_larger_priority_goes_first(server: LocalServer, user: User, http: httpx.Client):
    user.upload()
    _, body = user.encrypt(samples=100)
    with server.engine_held():
        low = [submit(user, body, params={"priority": 1}) for _ in range(BUSY)]
        high = submit(user, body, params={"priority": 9})
    finished = {job["id"]: wait(http, job)["finished_at"] for job in [high, *low]}
    assert finished[high["id"]] < max(finished[job["id"]] for job in low)
