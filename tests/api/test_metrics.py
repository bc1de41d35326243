"""What /metrics says of the process and its build, and what was asked in the last minutes: by steps, forgotten in time."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import httpx
import psutil
import pytest
from fleet_servers import processes
from postgresql import needs_postgresql, postgresql
from scoring_server import Server, metric

from cloakwork.api import metrics as module
from cloakwork.api.metrics import STEP_SECONDS, STEPS, Activity, Metrics
from cloakwork.api.settings import release
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.engine import has_cuda


def builds(http: httpx.Client) -> list[dict[str, str]]:
    found = re.findall(r"^fhe_build_info\{(.*)\} 1.0$", http.get("/metrics").text, flags=re.MULTILINE)
    return [dict(re.findall(r'(\w+)="([^"]*)"', each)) for each in found]


def test_the_build(http: httpx.Client):
    cuda = str(has_cuda()).lower()
    assert builds(http) == [
        {"version": release(), "role": "all", "instruction_set": _engine.cpu_features(), "cuda": cuda}
    ]


def test_the_disk_of_the_data_folder(server: Server, http: httpx.Client):
    usage = shutil.disk_usage(server.data)
    assert metric(http, "fhe_disk_total_bytes") == usage.total
    assert 0 < metric(http, "fhe_disk_free_bytes") <= usage.total


def test_when_the_process_began(http: httpx.Client):
    assert metric(http, "process_start_time_seconds") == pytest.approx(psutil.Process().create_time(), abs=2)
    assert metric(http, "process_resident_memory_bytes") > 0


def test_nothing_waits(http: httpx.Client):
    assert metric(http, "fhe_requests_waiting") == 0


def test_a_build_that_changes_is_one_series():
    metrics = Metrics()
    metrics.runs_as("1", "all", {})
    metrics.runs_as("1", "all", {"instruction_set": "AVX2", "cuda": "false"})
    text = metrics.text(lambda _: True).decode()
    assert len(re.findall(r"^fhe_build_info\{", text, flags=re.MULTILINE)) == 1
    assert 'instruction_set="AVX2"' in text


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_web_processes_have_no_engine_and_count_what_waits_in_the_database(
    tmp_path: Path, fill: Callable[[Path], Path]
):
    needs_postgresql()
    with postgresql() as database, processes(tmp_path, fill, database) as group:
        worker = group.start("worker")
        web = group.start("web")
        with web.client() as http, worker.client() as other:
            assert [each["role"] for each in builds(http)] == ["web"] and builds(http)[0]["instruction_set"] == ""
            assert [each["role"] for each in builds(other)] == ["worker"] and builds(other)[0]["instruction_set"]
            assert metric(http, "fhe_requests_waiting") == metric(other, "fhe_requests_waiting") == 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1000.0 * STEP_SECONDS]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: moment[0]))  # not that of the servers beside
    return moment


def test_requests_by_step(clock: list[float]):
    activity = Activity()
    for status, code in ((200, None), (404, "unknown_model"), (503, "unavailable"), (0, None)):
        activity.answered(status, code)
    assert sum(activity.recent().requests) == 0, "this step is not over"
    clock[0] += 2 * STEP_SECONDS
    activity.answered(429, "busy")
    clock[0] += STEP_SECONDS
    recent = activity.recent()
    assert recent.requests[-4:] == [0, 4, 0, 1] and recent.refused[-4:] == [0, 1, 0, 1]
    assert recent.failed[-4:] == [0, 1, 0, 0]
    assert recent.codes == {"unknown_model": 1, "unavailable": 1, "busy": 1}
    assert len(recent.requests) == STEPS


def test_old_steps_are_forgotten(clock: list[float]):
    activity = Activity()
    for _ in range(3 * STEPS):
        activity.answered(404, "not_found")
        clock[0] += STEP_SECONDS
    assert activity.recent().requests == [1] * STEPS and activity.recent().codes == {"not_found": STEPS}
    clock[0] += STEPS * STEP_SECONDS
    assert sum(activity.recent().requests) == 0 and activity.recent().codes == {}


def test_runs_of_versions():
    activity = Activity()
    for samples in (1, 5):
        activity.ran("toy", "1", samples, 0.5)
    activity.ran("toy", "2", 1, 9.0)
    assert vars(activity.runs("toy", "1")) == {"count": 2, "samples": 6, "seconds": 1.0}
    assert activity.runs("other", "1").count == 0
