"""Measurements as JSON and in the cache: kept by machine, refused when they are damaged or made up."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import mlp

import cloakwork as cw
from cloakwork.fhe_core.errors import DeviceError, SerializationError
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.forecast.profile import (
    MOST_BYTES,
    Machine,
    MachineProfile,
    cpu_name,
    machine_folder,
    measured_profiles,
    save_profile,
    stored_profiles,
)
from cloakwork.models.report.costs import cpu_estimate, estimated_seconds

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    return cw.compile(mlp(RNG, [8, 12, 3]), RNG.uniform(-1, 1, (200, 8)), accuracy=0)


def profile(threads: int = 1) -> MachineProfile:
    """The stored figures as if they had been measured here."""
    return replace(stored_profiles()["cpu-1-thread"], machine=Machine.here("cpu", threads))


def damaged(change: Callable[[dict[str, Any]], object]) -> bytes:
    fields = copy.deepcopy(profile().to_fields())
    change(fields)
    return json.dumps(fields).encode()


def test_a_profile_survives_its_file() -> None:
    assert MachineProfile.from_json(profile().to_json()) == profile()
    for stored in stored_profiles().values():
        assert MachineProfile.from_json(stored.to_json()) == stored


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"{",
    "not text": b"\xff\xfe",
    "a list": b"[]",
    "nested": b"[" * 100_000,
    "large": b" " * (MOST_BYTES + 1),
    "format": damaged(lambda f: f.update(format=2)),
    "no sets": damaged(lambda f: f.update(sets={})),
    "sets of a list": damaged(lambda f: f.update(sets=[])),
    "many sets": damaged(lambda f: f.update(sets={str(i): f["sets"]["nn2"] for i in range(300)})),
    "missing": damaged(lambda f: f["sets"]["nn2"].pop("call")),
    "negative": damaged(lambda f: f["sets"]["nn2"].update(run=-1.0)),
    "text for a number": damaged(lambda f: f["sets"]["nn2"].update(run="1")),
    "true for a number": damaged(lambda f: f["sets"]["nn2"].update(run=True)),
    "not a number": damaged(lambda f: f["sets"]["nn2"].update(run=float("nan"))),
    "infinite": damaged(lambda f: f["sets"]["nn2"].update(run=float("inf"))),
    "eternal": damaged(lambda f: f["sets"]["nn2"].update(run=1e300)),
    "unknown work": damaged(lambda f: f["sets"]["nn2"]["seconds"].update(mining=1.0)),
    "no look-ups": damaged(lambda f: f["sets"]["nn2"].update(lookups=[])),
    "look-ups without time": damaged(lambda f: f["sets"]["nn2"].update(lookups=[[1, 0.0]])),
    "batch 0": damaged(lambda f: f["sets"]["nn2"].update(lookups=[[0, 1.0]])),
    "three of a pair": damaged(lambda f: f["sets"]["nn2"].update(lookups=[[1, 1.0, 1.0]])),
    "long curve": damaged(lambda f: f["sets"]["nn2"].update(lookups=[[i + 1, 1.0] for i in range(100)])),
    "date": damaged(lambda f: f.update(measured="yesterday")),
    "device": damaged(lambda f: f["machine"].update(device="tpu")),
    "threads": damaged(lambda f: f["machine"].update(threads=0)),
    "escape": damaged(lambda f: f["machine"].update(name="\x1b[2J")),
    "long name": damaged(lambda f: f["machine"].update(name="x" * 1000)),
    "other sets": damaged(lambda f: f.update(sets={"lut99": f["sets"]["nn2"]})),
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_what_is_no_measurement_is_refused_and_ignored_with_a_line(case: str, compiled: CompiledModel) -> None:
    with pytest.raises(SerializationError, match="calibrate-machine"):
        MachineProfile.from_json(HOSTILE[case])
    machine_folder().mkdir(parents=True)
    (machine_folder() / "cpu-1-thread-0.json").write_bytes(HOSTILE[case])
    found, problems = measured_profiles()
    assert found == [] and len(problems) == 1 and problems[0].startswith("cpu-1-thread-0.json: ")
    text = compiled.details
    assert "measurement ignored: cpu-1-thread-0.json" in text and "stored figures of" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_sets_of_other_releases_are_left_out() -> None:
    fields = profile().to_fields()
    fields["sets"]["nn2"]["parameter_digest"] = "0" * 64
    assert "nn2" not in MachineProfile.from_json(json.dumps(fields)).sets
    assert "nn1" in MachineProfile.from_json(json.dumps(fields)).sets


def test_a_measurement_is_this_machines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    here = profile()
    assert save_profile(here).parent == machine_folder()
    assert measured_profiles() == ([here], [])
    for change in ({"name": "another CPU"}, {"cpu": "another CPU"}, {"cloakwork": "0.0.1"}, {"omp_num_threads": "77"}):
        save_profile(replace(here, machine=replace(here.machine, **change)))
    assert measured_profiles() == ([here], [])
    assert len(list(machine_folder().iterdir())) == 5
    save_profile(replace(here, machine=replace(here.machine, device="cuda:77", name="a GPU that is not there")))
    assert measured_profiles() == ([here], [])
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    assert [each.machine.omp_num_threads for each in measured_profiles()[0]] == ["77"]


def test_a_machine_is_named() -> None:
    machine = Machine.here("cpu", 3)
    assert machine.label == "cpu-3-threads" and machine.name == machine.cpu == cpu_name()
    assert Machine.from_fields(machine.to_fields()) == machine
    assert machine.file_name != Machine.here("cpu", 2).file_name
    with pytest.raises(DeviceError, match="cuda:99"):
        Machine.here("cuda:99")


@pytest.mark.gpu
def test_a_gpu_is_named() -> None:
    machine = Machine.here("cuda")
    assert machine.device == machine.label == "cuda:0" and machine.name and machine.threads >= 1
    assert machine == Machine.here("cuda:0")


def test_reports_take_the_measurement_where_there_is_one(compiled: CompiledModel) -> None:
    stored = compiled.report()["estimated_seconds"]
    assert set(stored) == {"cpu-1-thread", "h200"} and not any(each["measured_here"] for each in stored.values())
    assert "'cloakwork calibrate-machine' measures it" in compiled.details
    measured = profile(threads=2)
    save_profile(measured)
    here = compiled.report()["estimated_seconds"]
    assert set(here) == {"cpu-2-threads", "h200"}
    assert here["cpu-2-threads"]["measured_here"] and not here["h200"]["measured_here"]
    assert here["cpu-2-threads"]["measured_at"] == measured.measured
    text = compiled.details
    assert "measured here on" in text and "measures it" not in text
    assert here["cpu-2-threads"]["seconds_per_sample"] == pytest.approx(
        sum(here["cpu-2-threads"]["parts_per_sample"].values())
    )
    json.dumps(compiled.report(), allow_nan=False)


def test_a_folder_that_cannot_be_read_is_no_measurement(cache: Path) -> None:
    cache.mkdir()
    (cache / "cloakwork").write_text("a file")
    assert measured_profiles() == ([], [])


def test_seconds_on_threads() -> None:
    one = {"seconds_per_sample": 8.0, "seconds_one_sample": 9.0, "threads": 1}
    four = {"seconds_per_sample": 2.0, "seconds_one_sample": 3.0, "threads": 4}
    both = {"cpu-1-thread": one, "cpu-4-threads": four, "h200": {"seconds_per_sample": 0.1}}
    assert cpu_estimate(both, 1) == (8.0, 9.0) and cpu_estimate(both, 4) == (2.0, 3.0)
    assert cpu_estimate(both, 8) == (1.0, 3.0) and cpu_estimate(both, 2) == (4.0, 9.0)
    assert cpu_estimate({"h200": {}}) is None and cpu_estimate({}) is None
    assert cpu_estimate({"cpu-4-threads": four}, 1) == (2.0, 3.0)


def test_given_profiles_replace_the_cache(compiled: CompiledModel) -> None:
    save_profile(profile(threads=5))
    found = estimated_seconds(compiled.program, [profile()])
    assert set(found) == {"cpu-1-thread", "h200"} and found["cpu-1-thread"]["measured_here"]
