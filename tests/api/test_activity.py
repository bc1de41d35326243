"""What was asked in the last minutes: by steps, the oldest first, and forgotten in time."""

from __future__ import annotations

import time

import pytest

from cloakwork.api.activity import STEP_SECONDS, STEPS, Activity


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1000.0 * STEP_SECONDS]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
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
