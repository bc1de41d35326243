"""Which waiting work is taken: tenants in turn by what their runs take, levels first, suspects alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cloakwork.api.service.fleet.turns import Head, LongRuns, Pick, Time, Turns, choose
from cloakwork.api.service.scoring.work import MOST_TOGETHER


def head(name: str, tenant: str, **changes: object) -> Head:
    usual = Head(name, False, tenant, f"key-{name}", "program", 1.0, 0, 10, 0.0)
    return replace(usual, **changes)  # type: ignore[arg-type]


def test_the_tenant_that_is_behind_goes_first_and_turns_alternate():
    heads = [head(f"{tenant}{number}", tenant, created_at=float(number)) for tenant in "ab" for number in range(3)]
    picks = choose(heads, {(0, "a"): 10.0, (0, "b"): 10.5}, 4, 2, True)
    assert [pick.head.id for pick in picks] == ["a0", "b0", "a1", "b1"]


def test_over_many_rounds_tenants_get_equal_seconds():
    turns = Turns()
    seconds: Counter[str] = Counter()
    cost = {"a": 0.1, "b": 1.0}
    for number in range(220):
        heads = [head(f"{tenant}{number}", tenant, seconds=each) for tenant, each in cost.items()]
        (pick,) = choose(heads, turns.clocks, 1, 2, True)
        turns.charge(pick, pick.head.seconds)
        seconds[pick.head.tenant] += pick.head.seconds
    assert abs(seconds["a"] - seconds["b"]) <= 1.0 + 1e-9


def test_who_comes_back_begins_at_the_time_of_the_others_and_keeps_that_while_it_waits():
    turns = Turns({(0, "b"): 99.0}, {0: Time(clock=100.0, served=50.0)})
    heads = [head("a", "a", turn_time=100.0), head("b", "b", turn_time=100.0)]
    picks = choose(heads, turns.clocks, 2, 2, True)
    assert {pick.head.tenant: pick.start for pick in picks} == {"a": 100.0, "b": 100.0}
    turns.charge(picks[0], 10.0)
    assert turns.times[0] == Time(clock=150.0, served=5.0, sharers=2)
    assert choose(heads[1:], turns.clocks, 1, 2, True)[0].start == 100.0


def test_after_a_crash_of_the_database_the_time_begins_again_for_all():
    turns = Turns()
    assert turns.begin_at(head("old", "a", turn_time=5000.0)) == 0.0


def test_levels_go_first_and_requests_before_jobs():
    heads = [
        head("request", "a"),
        head("job", "a", is_job=True, priority=5, created_at=-1.0),
        head("urgent", "b", is_job=True, priority=9),
    ]
    assert [pick.head.id for pick in choose(heads, {(9, "b"): 1e6}, 3, 2, True)] == ["urgent", "request", "job"]


def test_kin_is_taken_together_and_bounded():
    heads = [head(f"{number}", "a", evaluation_key="one", seconds=0.01) for number in range(3)]
    (pick,) = choose(heads, {}, 3, 2, True)
    assert pick.count == MOST_TOGETHER
    assert choose([head("slow", "a", seconds=30.0)], {}, 1, 2, True)[0].count == 1


def test_a_last_attempt_is_alone():
    suspect, other = head("suspect", "a", attempts=2), head("other", "b")
    assert [pick.head.id for pick in choose([suspect, other], {}, 2, 2, True)] == ["suspect"]
    assert [pick.head.id for pick in choose([suspect, other], {}, 2, 2, False)] == ["other"]


def test_long_runs_leave_a_worker_to_short_ones_and_take_no_place_ahead():
    long = [head(f"long{number}", "greedy", seconds=1800.0, created_at=float(number)) for number in range(3)]
    short = head("short", "calm", seconds=0.01)
    one = LongRuns(5.0, 1)
    assert names(choose([*long, short], {(0, "calm"): 1.0}, 4, 2, True, one)) == ["long0", "short"]
    assert names(choose([*long, short], {(0, "calm"): 1.0}, 2, 2, True, one)) == ["long0"], "nothing goes behind it"
    assert names(choose([*long, short], {}, 4, 2, True, LongRuns(5.0, 0))) == ["short"]
    behind = head("behind", "greedy", seconds=0.01, priority=0)
    assert names(choose([*long, behind], {}, 4, 2, True, LongRuns(5.0, 0))) == [], "who waits behind one stays there"


def names(picks: list[Pick]) -> list[str]:
    return [pick.head.id for pick in picks]
