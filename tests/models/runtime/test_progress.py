"""Bootstraps done, of all devices together; what the receiver answers reaches the engine."""

from __future__ import annotations

from cloakwork.models.runtime.machines.machine import BootstrapCount


def test_batches_of_several_devices_add_up_in_bootstraps() -> None:
    seen: list[tuple[int, int]] = []
    count = BootstrapCount(lambda done, total: seen.append((done, total)), 30)
    first, other = count.of(0, 10), count.of(1, 12)
    assert first is not None and other is not None
    first(50, 100)  # the engine counts in units of its own
    other(100, 100)
    first(100, 100)
    second = count.of(0, 8)
    assert second is not None and second(3, 6) is True
    assert seen == [(5, 30), (17, 30), (22, 30), (26, 30)]


def test_only_false_cancels() -> None:
    for answer, goes_on in ((None, True), (True, True), (False, False)):
        report = BootstrapCount(lambda done, total, answer=answer: answer, 4).of(0, 4)
        assert report is not None and report(1, 4) is goes_on


def test_nothing_is_reported_to_nobody() -> None:
    assert BootstrapCount(None, 4).of(0, 4) is None
