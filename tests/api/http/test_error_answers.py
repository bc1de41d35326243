"""What is written of errors: an outage is one line a minute and kind, however many requests meet it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from cloakwork.api.http import error_answers
from cloakwork.api.http.error_answers import _ErrorAnswers
from cloakwork.api.metrics import Metrics
from cloakwork.api.service.storage.disk import Disk


def request() -> Any:
    return SimpleNamespace(state=SimpleNamespace(request_id="one"))


def test_an_outage_is_one_line_a_minute_and_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(error_answers, "time", clock)
    caplog.set_level(logging.ERROR)
    methods: Any = None
    answers = _ErrorAnswers(Metrics(), Disk(tmp_path, 0), methods)
    errors = [TimeoutError("database"), OperationalError("SELECT", {}, ConnectionRefusedError())]

    def ask(times: int) -> None:
        for _ in range(times):
            for error in errors:
                assert asyncio.run(answers.broken(request(), error)).status_code == 503

    def lines() -> list[tuple[type[BaseException] | None, int]]:
        return [(each.exc_info[0] if each.exc_info else None, each.not_written) for each in caplog.records]  # type: ignore[attr-defined]

    ask(50)
    assert lines() == [(TimeoutError, 0), (OperationalError, 0)]
    clock.now += 59.0
    ask(1)
    assert len(lines()) == 2
    clock.now += 1.0
    ask(1)
    assert lines()[2:] == [(TimeoutError, 50), (OperationalError, 50)]
