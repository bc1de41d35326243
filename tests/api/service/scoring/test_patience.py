"""Requests that can only wait for their answer: which are taken, and what the others are told."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from cloakwork.api.errors import BusyError, TooLongError, UnavailableError
from cloakwork.api.service.scoring.scoring import Scoring
from cloakwork.api.service.scoring.waiting import Estimates
from cloakwork.api.settings import load_settings


def scoring(run: float, wait: float) -> tuple[Scoring, Any]:
    """One that expects this run and this wait, and a request."""
    dispatcher: Any = SimpleNamespace(wait_seconds=lambda _tenant, _seconds: wait)
    unused: Any = None
    found = Scoring(
        load_settings(tensor_seconds=50), dispatcher, unused, unused, unused, unused, unused, Estimates(), unused
    )
    found.estimates.seconds = lambda *_: run  # type: ignore[method-assign]
    request = SimpleNamespace(model=SimpleNamespace(name="toy"), samples=1, tenant=SimpleNamespace(name="alice"))
    return found, request


@pytest.mark.parametrize(("run", "wait"), [(0.1, 0.0), (50.0, 0.0), (6.0, 44.0)])
def test_what_is_answered_in_time_is_taken(run: float, wait: float):
    found, request = scoring(run, wait)
    found.require_soon(request)


def test_a_long_run_is_never_in_time():
    found, request = scoring(50.5, 0.0)
    with pytest.raises(TooLongError, match="/v2/models/toy/jobs"):
        found.require_soon(request)


def test_a_long_queue_is_over_some_day():
    found, request = scoring(10.0, 41.0)
    with pytest.raises(BusyError) as caught:
        found.require_soon(request)
    assert caught.value.retry_after == 41.0


def test_without_a_worker_nothing_runs():
    found, request = scoring(1.0, math.inf)
    with pytest.raises(UnavailableError):
        found.require_soon(request)
