"""Requests of one key that wait together are one run: which ones, in whose turn, and what becomes of each."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from fake_engines import FakeEngines

from cloakwork.api.service.scoring.waiting import Estimates
from cloakwork.api.service.scoring.work import DEFAULT_PRIORITY, MOST_TOGETHER


def busy(workers: int = 1, spread: int = 1, **settings: Any) -> FakeEngines:
    """With a run of somebody else on every worker and one more in the place ahead."""
    engine = FakeEngines(workers, spread, **settings)
    for number in range(workers + 1):
        engine.submit(f"other{number}-")
    assert len(engine.only.runs) == workers + 1
    return engine


def free(engine: FakeEngines) -> list[list[str]]:
    """The runs that begin when those of somebody else end."""
    before = len(engine.only.runs)
    for identity in engine.only.sent:
        engine.end(identity)
    return engine.only.runs[before:]


def test_what_waits_of_one_key_is_one_run():
    engine = busy()
    mine = [engine.submit(body=bytes([i])) for i in range(5)]
    assert free(engine) == [mine] and engine.only.bodies[-1] == bytes(range(5))
    assert engine.dispatcher.running == 1 and len(engine.dispatcher.in_flight()) == 5
    for identity in mine[:4]:
        engine.end(identity)
    assert engine.dispatcher.running == 1, "the run goes on until its last part has ended"
    engine.end(mine[4], "failed")
    assert engine.dispatcher.running == 0
    assert [engine.heard[each] for each in mine] == [["done"]] * 4 + [["failed"]]


def test_nothing_waits_for_company():
    engine = FakeEngines()
    first, second = engine.submit(), engine.submit()
    assert engine.only.runs == [[first], [second]]


@pytest.mark.parametrize(
    "unlike", [{"key": "another"}, {"model": "another"}, {"alone": True}, {"seconds": 1.0}, {"samples": 1000}]
)
def test_what_cannot_be_joined_comes_after_and_keeps_its_place(unlike: dict[str, Any]):
    engine = busy()
    first, odd, last = engine.submit(), engine.submit(**unlike), engine.submit()
    assert free(engine)[0] == [first]
    engine.end(first)
    assert engine.only.runs[-1] == [odd] or (
        engine.only.runs[-1] == [odd, last] and unlike.keys() <= {"seconds", "samples"}
    )


def test_other_priorities_and_tenants_are_not_joined():
    engine = busy()
    job, mine, other = engine.submit(priority=DEFAULT_PRIORITY), engine.submit(), engine.submit("b")
    assert sorted(free(engine)) == sorted([[mine], [other]])
    engine.end(mine)
    assert engine.only.runs[-1] == [job]


def test_a_run_is_short_and_of_so_many_works():
    engine = busy()
    for _ in range(3 * MOST_TOGETHER):
        engine.submit(seconds=0.001)
    assert [len(run) for run in free(engine)] == [MOST_TOGETHER]
    engine = busy()
    for _ in range(10):
        engine.submit(seconds=0.3)
    assert [len(run) for run in free(engine)] == [3], "0.9 seconds"


def test_threads_that_compute_side_by_side_share_what_waits():
    """One run of eight on one thread, while the other has nothing to do, would take longer."""
    engine = busy(workers=2, spread=2)
    for _ in range(7):
        engine.submit()
    assert [len(run) for run in free(engine)] == [4, 2]  # half of seven, half of the three that are left


def test_everybody_is_charged_for_their_own():
    """Of two tenants, one sends its requests together: its turn does not come more often, nor last longer, for it."""
    engine = busy()
    for _ in range(40):
        engine.submit("many", seconds=0.2)
        engine.submit("one", seconds=0.2, key=f"key{len(engine.heard)}")
    free(engine)
    for _ in range(20):
        for identity in list(engine.only.sent):
            engine.end(identity, busy_seconds=0.2)
    begun = [identity.rstrip("0123456789") for run in engine.only.runs[2:] for identity in run][:40]
    assert abs(begun.count("many") - begun.count("one")) <= 10  # a run of five and one ahead


def test_one_part_is_cancelled_and_the_others_go_on():
    engine = busy()
    mine = [engine.submit() for _ in range(3)]
    free(engine)
    assert not engine.dispatcher.cancel(mine[1]) and engine.only.cancelled == [mine[1]]
    engine.end(mine[1], "failed")
    assert {work.id for work in engine.dispatcher.in_flight()} == {mine[0], mine[2]}


def test_works_of_a_lost_run_are_tried_one_after_another():
    """The second of four kills every engine that has it: the others lose one attempt, and it fails alone."""
    engine = busy(max_attempts=3)
    mine = [engine.submit() for _ in range(4)]
    free(engine)
    deaths = 0
    for _ in range(20):
        pending = [
            run for run in engine.only.runs[-1:] if any(work.id in run for work in engine.dispatcher.in_flight())
        ]
        if not pending:
            break
        assert deaths == 0 or len(pending[0]) == 1, "nothing is joined again"
        if mine[1] in pending[0]:
            deaths += 1
            engine.only.die()
            engine.only.start()
        else:
            engine.end(pending[0][0])
    assert deaths == 3 and engine.heard[mine[1]] == ["lost", "lost", "failed"]
    assert [engine.heard[each] for each in mine if each != mine[1]] == [["lost", "done"]] * 3


def test_two_of_a_lost_run_are_never_out_together():
    engine = busy(workers=4, max_attempts=9)
    mine = [engine.submit() for _ in range(4)]
    free(engine)
    engine.only.die()
    engine.only.start()
    assert {work.id for work in engine.dispatcher.in_flight()} == {mine[0]}
    engine.submit("b")
    assert len(engine.dispatcher.in_flight()) == 2, "others are not held up"


def test_each_job_is_claimed_for_itself():
    async def run() -> None:
        engine = busy()

        async def wanted() -> bool:
            await asyncio.sleep(0)
            return True

        async def cancelled() -> bool:
            return False

        async def broken() -> bool:
            raise OSError("the database is away")

        jobs = [engine.submit(priority=3, claim=each) for each in (wanted, cancelled, broken, wanted)]
        assert free(engine) == [], "until the claims are through"
        while not engine.dispatcher.running or engine.only.sent[-1] != jobs[-1]:
            await asyncio.sleep(0)
        assert engine.only.runs[-1] == [jobs[0], jobs[3]]
        assert {work.id for work in engine.dispatcher.in_flight()} == {jobs[0], jobs[3]}

    asyncio.run(asyncio.wait_for(run(), 10))


def test_estimates_are_those_of_one_run_by_samples():
    """A run of four requests of 0.4 seconds teaches as much as one request of the same samples and seconds."""
    model: Any = SimpleNamespace(parameter_set="set", work=2, foreseen_seconds=1.0)
    together, one = Estimates(), Estimates()
    for estimates in (together, one):
        estimates.learn(model, 1, 0.5)
    for samples in (1, 1, 2, 4):
        together.learn(model, samples, 0.05 * samples, together=4)
    one.learn(model, 8, 0.4)
    assert together.seconds(model, 10) == pytest.approx(one.seconds(model, 10))
    assert one.seconds(model, 1) == pytest.approx(0.8 * 0.5 + 0.2 * 0.05)
