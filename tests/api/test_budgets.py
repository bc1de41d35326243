"""Defaults that shrink where there is little memory, settings that stay, and bodies in memory: limits for all and for one tenant."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from cloakwork.api.budgets import IDLE_BYTES, RUNNING_BYTES, WHOLE_BYTES, BodyBudget, Budgets
from cloakwork.api.errors import BusyError
from cloakwork.api.settings import load_settings

GIB = 1 << 30


def test_with_enough_memory_the_defaults_are_those_of_the_settings():
    settings = load_settings()
    found = Budgets.of(settings, WHOLE_BYTES, limited=False)
    assert (found.memory_key_bytes, found.cpu_key_bytes, found.body_memory_bytes) == (
        settings.memory_key_bytes,
        settings.device_key_bytes,
        settings.body_memory_bytes,
    )
    assert found.data_bytes == 0, "the machine's memory is nobody's limit"


@pytest.mark.parametrize("memory", [GIB // 4, GIB, 2 * GIB, 5 * GIB])
def test_with_less_what_is_kept_fits_with_what_runs(memory: int, caplog: pytest.LogCaptureFixture):
    found = Budgets.of(load_settings(), memory, limited=True)
    assert found.cpu_key_bytes is not None and found.data_bytes == max(8 << 20, memory - IDLE_BYTES)
    kept = found.memory_key_bytes + found.cpu_key_bytes + found.body_memory_bytes + found.program_bytes
    assert kept <= max(4 * (8 << 20), 0.7 * (memory - RUNNING_BYTES))
    assert found.device_key_bytes == 4 * GIB, "of a card's memory, which no cgroup counts"
    with caplog.at_level(logging.WARNING):
        found.tell()
    assert (not caplog.records) == (memory > RUNNING_BYTES)


def test_what_was_set_stays_and_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    found = Budgets.of(load_settings(device_key_bytes=3 * GIB), GIB, limited=True)
    assert (found.device_key_bytes, found.cpu_key_bytes) == (3 * GIB, None) and found.memory_key_bytes < GIB // 8
    with caplog.at_level(logging.WARNING):
        found.tell()
    (line,) = caplog.records
    assert "lower device_key_bytes" in line.message and line.__dict__["memory_bytes"] == GIB


def test_bodies_in_memory_are_limited():
    budget = BodyBudget(10, 10)
    with budget.hold("a", 20), pytest.raises(BusyError), budget.hold("a", 1):  # its model limits the first one
        pass
    with budget.hold("a", 5), budget.hold("a", 5):
        pass
    shared = BodyBudget(10, 4)
    with shared.hold("a", 4), pytest.raises(BusyError, match="your requests"), shared.hold("a", 1):
        pass
    with shared.hold("a", 4), shared.hold("b", 4), pytest.raises(BusyError, match="too many requests"):
        shared.hold("c", 4).__enter__()
