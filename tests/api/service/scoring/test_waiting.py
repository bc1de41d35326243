"""How long a request waits: by what is left of runs, by free workers, by its tenant's turn."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_engines import FakeEngines

from cloakwork.api.engine.messages import Progressed
from cloakwork.api.service.scoring import engines as engines_module
from cloakwork.api.service.scoring.waiting import Line, Seconds, WorkerPlace, ahead_of, wait_seconds
from cloakwork.api.service.scoring.work import DEFAULT_PRIORITY, SYNCHRONOUS_PRIORITY

LONG = 1800.0


def test_a_worker_that_is_free_takes_a_request_at_once_whatever_the_others_compute():
    assert wait_seconds(2, [WorkerPlace(LONG, True)], Seconds(), False) == 0.0
    assert wait_seconds(3, [WorkerPlace(LONG, True), WorkerPlace(2.0), WorkerPlace(1.0)], Seconds(), False) == 1.0


def test_what_is_ahead_goes_to_those_that_are_free_first():
    places = [WorkerPlace(1.0), WorkerPlace(4.0)]
    assert [wait_seconds(2, places, Seconds(ahead), False) for ahead in (0.0, 2.0, 3.0, 5.0)] == [1.0, 3.0, 4.0, 5.0]
    assert wait_seconds(2, [WorkerPlace(3.0), WorkerPlace(2.0), WorkerPlace(5.0)], Seconds(), False) == 3.0, (
        "one waits for a worker there"
    )


def test_long_runs_leave_a_worker_to_short_ones_and_wait_for_each_other():
    jobs = Seconds(short=0.0, long=20 * LONG)
    assert wait_seconds(2, [WorkerPlace(LONG, True)], jobs, False) == 0.0
    assert wait_seconds(2, [WorkerPlace(LONG, True)], Seconds(), True) == LONG
    assert wait_seconds(3, [WorkerPlace(LONG, True)], Seconds(), True) == 0.0
    assert wait_seconds(1, [], jobs, False) == 20 * LONG


def test_a_single_worker_computes_short_requests_beside_a_long_run_with_half_of_its_processor():
    assert wait_seconds(1, [WorkerPlace(LONG, True)], Seconds(long=LONG), False) == 0.0
    assert wait_seconds(1, [WorkerPlace(LONG, True), WorkerPlace(1.0)], Seconds(short=2.0), False) == 6.0
    assert wait_seconds(2, [WorkerPlace(LONG, True), WorkerPlace(LONG, True)], Seconds(short=2.0), False) == 2.0
    assert wait_seconds(1, [WorkerPlace(LONG, True)], Seconds(), True) == LONG


def test_a_run_beyond_its_estimate_needs_a_little_more():
    assert WorkerPlace.of_run(10.0, 4.0, False).seconds == 6.0
    assert WorkerPlace.of_run(10.0, 9.9, False).seconds == pytest.approx(0.99)
    assert WorkerPlace.of_run(10.0, 100.0, False).seconds == 10.0


def test_of_others_one_turn_goes_before_it():
    waiting = [
        Line("mine", SYNCHRONOUS_PRIORITY, False, 1, 1.0),
        Line("mine", DEFAULT_PRIORITY, False, 9, 90.0),  # a job, which waits for it
        Line("other", DEFAULT_PRIORITY, False, 3, 3.0),
        Line("other", DEFAULT_PRIORITY, True, 1, LONG),
        Line("third", SYNCHRONOUS_PRIORITY, False, 1, 0.1),
        Line("granted", DEFAULT_PRIORITY + 1, False, 1, 2.0),
    ]
    assert ahead_of("mine", 0.5, waiting) == Seconds(short=2.0 + 1.0 + 1.5 + 0.1, long=0.0)


def test_time_and_progress_shorten_what_is_left(monkeypatch: pytest.MonkeyPatch):
    clock = SimpleNamespace(now=1.0)
    monkeypatch.setattr(engines_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    engines = FakeEngines(workers=1)
    dispatcher = engines.dispatcher
    job = engines.submit("greedy", DEFAULT_PRIORITY, seconds=4.0)
    assert dispatcher.wait_seconds("calm", 0.01) == 4.0
    clock.now = 3.0
    assert dispatcher.wait_seconds("calm", 0.01) == dispatcher.backlog_seconds() == 2.0
    dispatcher._heard(engines.only.engine, Progressed(job, 1, 10))
    assert dispatcher.wait_seconds("calm", 0.01) == 18.0
    engines.end(job)
    assert dispatcher.wait_seconds("calm", 0.01) == 0.0


def test_its_own_jobs_wait_for_a_tenants_request():
    engines = FakeEngines(workers=1)
    engines.submit("a", DEFAULT_PRIORITY, seconds=1.0)
    before = engines.dispatcher.wait_seconds("a", 0.01)
    for _ in range(5):
        engines.submit("a", DEFAULT_PRIORITY, seconds=2.0)
    assert engines.dispatcher.wait_seconds("a", 0.01) == pytest.approx(before, abs=1.0)


def test_nothing_is_sent_ahead_behind_long_runs():
    """Where another engine would be free before."""
    engines = FakeEngines(workers=1, devices=("cuda:0", "cuda:1"))
    long = engines.submit("a", DEFAULT_PRIORITY, seconds=LONG, long=True)
    (busy,) = engines.where(long)
    short = [engines.submit(f"t{i}", key=f"key{i}", model=f"model{i}") for i in range(3)]
    assert [engines.where(each) for each in short] == [[1 - busy], [1 - busy], []]
    assert engines.dispatcher.places == 1 + 2
    engines.end(short[0])
    assert engines.where(short[2]) == [1 - busy]


def test_beside_a_long_run_on_the_only_worker_there_is_one_place_for_short_ones():
    engines = FakeEngines(workers=1, spread=1)
    long = engines.submit("greedy", DEFAULT_PRIORITY, seconds=LONG, long=True)
    more = engines.submit("greedy", DEFAULT_PRIORITY, seconds=LONG, long=True)
    short = [engines.submit(f"t{i}", key=f"key{i}", model=f"model{i}") for i in range(3)]
    assert engines.only.sent == [long, short[0]] and engines.dispatcher.places == 2
    engines.end(short[0])
    assert engines.only.sent == [long, *short[:2]] and engines.only.beside == [False, True, True]
    engines.end(long)
    assert engines.only.sent == [long, *short[:2], more] and not engines.only.beside[-1], "ahead, behind the short one"
    engines.end(short[1])
    assert engines.only.sent[-1] == short[2] and engines.only.beside[-1]


def test_several_engines_of_one_worker_send_short_ones_to_one_that_has_no_long_run():
    engines = FakeEngines(workers=1, devices=("cpu", "cpu"))
    (busy,) = engines.where(engines.submit("a", DEFAULT_PRIORITY, seconds=LONG, long=True))
    assert engines.where(engines.submit("b", key="b")) == [1 - busy] and not engines.dispatcher.beside_long
