"""How long a web process expects a request to wait: by what workers have, how long they have had it, and who waits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cloakwork.api.service.fleet import backlog as module
from cloakwork.api.service.fleet.backlog import Backlog, Out
from cloakwork.api.service.fleet.members import Member
from cloakwork.api.service.scoring.waiting import Line

LONG = 5.0  # from which runs are long
JOB = 1800.0


def worker(name: str, workers: int = 1) -> Member:
    return Member(name, "worker", "1", "cpu", workers, 0, False, 0.0, 0.0)


def out(name: str, node: str, seconds: float, kin: str = "", started_at: float | None = None) -> Out:
    return Out(name, node, (kin or name,), seconds, started_at)


def wait(backlog: Backlog, tenant: str = "calm", seconds: float = 0.01) -> float:
    return backlog.wait_seconds(tenant, seconds, LONG)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_beside_a_long_job_a_free_worker_answers_at_once(clock: SimpleNamespace):
    workers = [worker("a"), worker("b")]
    backlog = Backlog().after([], [out("job", "a", JOB)], workers)
    assert wait(backlog) == 0.0 and wait(backlog, seconds=10.0) == JOB
    only = Backlog().after([], [out("job", "a", JOB)], workers[:1])
    assert wait(only) == 0.0 and wait(only, seconds=10.0) == JOB, "a single one computes a short run beside it"
    assert wait(Backlog()) == float("inf")


def test_what_is_left_is_counted_from_when_the_row_was_first_seen(clock: SimpleNamespace):
    rows, workers = [out("job", "a", JOB)], [worker("a")]
    first = Backlog().after([], rows, workers)
    clock.now += 1000.0
    assert wait(first.after([], rows, workers), seconds=10.0) == wait(first, seconds=10.0) == 800.0
    assert first.seconds(LONG) == 800.0
    assert first.after([], [], workers).seen == {}


def test_a_job_that_ran_before_this_process_began_has_had_its_time(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "now", lambda: 5000.0)
    for started_at, left in ((4000.0, 800.0), (6000.0, JOB)):  # its host's clock may be ahead of this one's
        assert (
            wait(Backlog().after([], [out("job", "a", JOB, started_at=started_at)], [worker("a")]), seconds=10.0)
            == left
        )


def test_rows_of_one_run_are_one_run(clock: SimpleNamespace):
    """Those of a key that were leased together; each long one is a run of its own."""
    joined = [out(f"call{number}", "a", 0.1, "same") for number in range(8)]
    apart = [out(f"job{number}", "a", 2.0, "same") for number in range(2)]
    assert wait(Backlog().after([], joined, [worker("a", 2)])) == 0.0
    assert wait(Backlog().after([], apart, [worker("a", 2)])) == 2.0


def test_others_take_a_turn_and_own_jobs_none(clock: SimpleNamespace):
    lines = [
        Line("calm", 10, False, 2, 0.4),
        Line("calm", 5, True, 9, 90.0),
        Line("greedy", 10, False, 50, 5.0),
        Line("granted", 9, False, 1, 0.2),
    ]
    backlog = Backlog().after(lines, [], [worker("a")])
    assert wait(backlog, seconds=0.1) == pytest.approx(0.4 + 0.5 + 0.2)
    assert (backlog.waiting, backlog.waiting_of("calm")) == (62, 11)


def test_a_worker_whose_engine_is_about_to_start_counts_where_no_other_is(clock: SimpleNamespace):
    assert Backlog(members=[worker("a", 0), worker("b", 0)]).workers == 2
    assert Backlog(members=[worker("a", 0), worker("b", 1)]).workers == 1
