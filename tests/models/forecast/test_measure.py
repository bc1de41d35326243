"""Rates from probes: solving finds the rates that times were made with; a real measurement is one of numbers that forecast."""

from __future__ import annotations

import math

import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set, parameter_sets
from cloakwork.fhe_core.server import Session
from cloakwork.models.forecast import measure
from cloakwork.models.forecast.measure import (
    REPRESENTATIVES,
    Sizes,
    linear_probes,
    lookup_probes,
    measure_set,
    solve,
)
from cloakwork.models.forecast.rates import SetRates, nearest_set, on_curve, ring, work_of

SMALL = Sizes((1, 4), (1, 16), 4, 8, 4)
KNOWN = {
    "transforms": 3e-6,
    "products": 5e-6,
    "sums": 1e-9,
    "polynomials": 2e-6,
    "extracted": 3e-10,
    "gathered": 1e-9,
    "written": 2e-9,
    "multiplications": 3e-11,
    "returned": 4e-10,
}
GPU = {**KNOWN, "transforms": 0.0, "products": 0.0, "sums": 0.0, "polynomials": 0.0}


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("name", ["nn2", "lut4"])
def test_solving_finds_the_rates_of_a_machine(name: str, device: str) -> None:
    params, seconds = parameter_set(name), KNOWN if device == "cpu" else GPU
    sizes = Sizes.of(device, threads=1)
    batches = {count: 1e-3 * count**0.9 for count in sizes.lookups}
    answers = {count: 1e-4 * count for count in sizes.answers}
    machine = SetRates(name, 1e-5, 7e-5, seconds, batches, answers, {count: 1e-5 * count for count in sizes.answers})
    made = linear_probes(params, device, sizes) | lookup_probes(params, sizes)
    times = {}
    for key, probe in made.items():  # without what follows the outputs, as they are measured
        work = probe.work(device)
        times[key] = sum(machine.parts(work.linear).values()) + sum(on_curve(batches, n) for n in work.lookups)
    times |= {f"answers {count}": answers[count] for count in answers}
    times |= {f"switched {count}": answers[count] + 1e-5 * count for count in answers}
    found = solve(params, device, sizes, times)
    assert found.seconds == pytest.approx(seconds, rel=1e-6, abs=1e-16)
    assert found.run == pytest.approx(machine.run) and found.call == pytest.approx(machine.call)
    assert found.lookups == pytest.approx(batches) and found.answers == pytest.approx(answers)
    assert found.switched == pytest.approx(machine.switched)


def test_times_that_contradict_each_other_give_no_negative_rates() -> None:
    sizes = Sizes.of("cpu", 1)
    params = parameter_set("nn2")
    names = [*linear_probes(params, "cpu", sizes), *lookup_probes(params, sizes)]
    names += [f"{kind} {count}" for kind in ("answers", "switched") for count in sizes.answers]
    found = solve(params, "cpu", sizes, dict.fromkeys(names, 0.001))
    assert min(found.seconds.values()) >= 0 and found.run >= 0 and found.call >= 0
    assert min([*found.lookups.values(), *found.switched.values()]) >= 0


@pytest.mark.parametrize(
    ("device", "name"),
    [("cpu", "toy"), ("cpu", "toy_two_limb"), pytest.param("cuda", "toy", marks=pytest.mark.gpu)],
)
def test_a_measurement_is_complete_and_forecasts_every_kind_of_program(device: str, name: str) -> None:
    params = parameter_set(name)
    session = Session(ClientKey.generate(params).evaluation_keys(), device=device)
    calls: list[tuple[int, int]] = []
    rates = measure_set(session, lambda done, total: calls.append((done, total)), rounds=1, sizes=SMALL)
    assert rates.is_complete and rates.parameter_set == name
    assert [done for done, _ in calls] == list(range(1, calls[-1][1] + 1))
    numbers = [rates.run, rates.call, *rates.seconds.values(), *rates.lookups.values(), *rates.answers.values()]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)
    for program in (measure.dense(params, 20, 3), measure.layer(params, 3, 4, 5), measure.lookups(params, 9)):
        assert sum(rates.parts(work_of(program, 2, device)).values()) > 0


def test_every_set_that_models_use_by_default_scales_from_one_of_its_ring() -> None:
    known = {name: parameter_set(name) for name in REPRESENTATIVES}
    for params in parameter_sets():
        by_name = params.name.endswith("_s192") or params.rounded_products or params.accumulator == "ntru"
        by_name = by_name or params.party_count > 1
        is_default = params.kind != "gate" and not by_name
        if params.security_bits >= 128 and is_default:
            assert ring(known[nearest_set(params, known)]) == ring(params), params.name
    assert all(nearest_set(params, known) == name for name, params in known.items())
    assert nearest_set(parameter_set("lut3"), known) == "lut3"


def test_scaled_rates_grow_with_the_set() -> None:
    small, large = parameter_set("nn1_wide"), parameter_set("nn05")
    rates = SetRates("nn1_wide", 1e-5, 7e-5, KNOWN, {1: 1e-3, 8: 4e-3}, {1: 1e-4}, {1: 1e-5})
    scaled = rates.scaled(small, large)
    assert scaled.parameter_set == "nn05" and scaled.lookups[8] > rates.lookups[8]
    assert scaled.seconds == pytest.approx(rates.seconds)  # the ring is the same
    two, four = parameter_set("lut3"), parameter_set("lut4")
    assert rates.scaled(two, four).seconds["products"] > KNOWN["products"]


def test_between_measured_batches_time_grows() -> None:
    curve = {1: 5e-3, 2: 4e-3, 8: 16e-3, 32: 60e-3}  # noise: two seemed faster than one
    times = [on_curve(curve, count) for count in range(200)]
    assert times[0] == 0 and times == sorted(times)
    assert times[8] == 16e-3 and times[64] == pytest.approx(120e-3)
    assert on_curve({}, 5) == 0
