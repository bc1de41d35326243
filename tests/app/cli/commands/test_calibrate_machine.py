"""`cloakwork calibrate-machine`: its help, its JSON, where it keeps what it measured, and that reports then use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloakwork.models.forecast.profile import MachineProfile

KINDS = {
    "transforms",
    "products",
    "sums",
    "polynomials",
    "extracted",
    "gathered",
    "written",
    "multiplications",
    "returned",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cloakwork" / "machine"


def test_help(call) -> None:
    result = call("calibrate-machine", "--help")
    assert result.returncode == 0
    for option in ("--device", "--threads", "--set", "--json"):
        assert option in result.stdout


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_json_is_what_is_kept_and_what_reports_use(call, cache: Path, device: str) -> None:
    result = call("calibrate-machine", "--device", device, "--set", "toy", "--set", "toy_two_limb", "--json", "-")
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["seconds"] > 0
    (path,) = map(Path, record["files"])
    assert path.parent == cache
    (fields,) = record["profiles"]
    profile = MachineProfile.from_json(path.read_bytes())
    assert profile == MachineProfile.from_json(json.dumps(fields)) and set(profile.sets) == {"toy", "toy_two_limb"}
    assert all(set(rates.seconds) == KINDS for rates in profile.sets.values())
    label = "cpu-1-thread" if device == "cpu" else "cuda:0"
    shown = call("inspect", "iris-tree", "--json", "-")
    estimate = json.loads(shown.stdout)["estimated_seconds"][label]
    assert estimate["measured_here"] and estimate["complete"] and estimate["seconds_one_sample"] > 0
    assert f"forecast for {label}" in call("inspect", "iris-tree", "--details").stdout
    assert f" here ({label})" in call("inspect", "iris-tree").stdout


def test_further_sets_are_kept_beside_those_measured_before(call, cache: Path) -> None:
    for name in ("toy", "toy_two_limb"):
        assert call("calibrate-machine", "--device", "cpu", "--set", name).returncode == 0
    (path,) = cache.iterdir()
    assert set(MachineProfile.from_json(path.read_bytes()).sets) == {"toy", "toy_two_limb"}


def test_the_table_names_machine_and_sets(call, cache: Path) -> None:
    result = call(
        "calibrate-machine", "--device", "cpu", "--threads", "2", "--set", "toy", environment={"COLUMNS": "100"}
    )
    assert result.returncode == 0, result.stderr
    assert "2 threads" in result.stdout and "toy" in result.stdout and str(cache) in result.stdout.replace("\n", "")
    assert [path.name.startswith("cpu-2-threads-") for path in cache.iterdir()] == [True]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--device", "gpu"), 2, "--device: expected cpu, cuda or cuda:N"),
        (("--device", "cuda:0,1"), 2, "one device at a time"),
        (("--device", "cuda:4321"), 1, "got 'cuda:4321'"),
        (("--set", "lut33"), 2, "nearest: lut3"),
        (("--threads", "0"), 2, "--threads"),
    ],
)
def test_wrong_calls(call, cache: Path, arguments: tuple[str, ...], status: int, message: str) -> None:
    result = call("calibrate-machine", *arguments)
    assert result.returncode == status and message in result.stderr and result.stderr.count("\n") == 1
    assert not cache.exists()
