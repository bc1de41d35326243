"""`cloakwork bench methods`: its rows and keys, what is counted, what fails in its place, and that nothing else takes a paper's set."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from cloakwork.api.service.keys.checks import known_set
from cloakwork.app.cli.bench.methods import catalogue, ceiling, room, run
from cloakwork.app.cli.bench.methods.plot import rate_text
from cloakwork.app.cli.bench.methods.published import PAPER_CASES
from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import OutOfDeviceMemory, ParameterError, UnsupportedError
from cloakwork.fhe_core.noise import share_of_steps_taken
from cloakwork.fhe_core.parameters import measuring_papers, paper_set, paper_sets, parameter_digest, parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.criteria.choose_set import named_sets

KEYS = {
    "method", "set", "shape", "security_bits", "p_fail_log2", "key_bytes", "per_second", "seconds_one", "wrong", "published",
}  # fmt: skip
ONE_THREAD = run.Effort("cpu", 1, 4, 1, 1)


def silent(stage: str, done: int, total: int) -> bool:
    return True


def test_rows_have_the_keys_of_the_design_and_no_wrong_output(call, tmp_path, monkeypatch):
    monkeypatch.delenv("CLOAKWORK_ALLOW_TOY", raising=False)
    result = call(
        "bench",
        "methods",
        "--quick",
        "--only",
        "gate_64 ",
        "--only",
        "gd-i tfhe",
        "--json",
        "-",
        "--plot",
        "bars.svg",
    )
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert [row["set"] for row in record["rows"]] == ["gate_64", "papers/velofhe_gd1"]
    for row in record["rows"]:
        assert row.keys() >= KEYS and row["error"] is None
        assert (row["wrong"], row["share_of_ceiling"], row["device"], row["outputs"]) == (0, None, "cpu", 10)
        assert row["per_second"] > 0 and row["seconds_one"] > 0 and row["key_bytes"] > row["upload_bytes"]
    ours, theirs = record["rows"]
    assert ours["published"] is None and ours["security_bits"] >= 128
    published = theirs["published"]
    assert (published["source"], published["per_second"], published["device"]) == ("SYL+25", 11378, "RTX 4090")
    assert published["ratio"] == pytest.approx(theirs["per_second"] / 11378)
    assert theirs["security_bits"] < 128 and theirs["set"] in record["insecure_sets"]
    drawn = ElementTree.fromstring((tmp_path / "bars.svg").read_text())
    bars = [each for each in drawn.iter() if each.get("class") == "bar"]
    assert len(bars) == 1  # the insecure row has none


@pytest.mark.tier("all")
def test_the_table_for_people_has_a_line_for_each_row(call):
    result = call("bench", "methods", "--quick", "--batch", "2", "--only", "mr-i tfhe")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.strip().splitlines()
    assert len(lines) == 3 and "papers/velofhe_mr1" in lines[2] and "0 of 6" in lines[2]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--only", "no such row"], 2),
        (["--device", "tpu"], 2),
        (["--batch", "0"], 2),
        (["--only", "gate_64 ", "--plot", "no/such/folder/x.svg"], 2),
        # The one row fails.
        pytest.param(["--only", "gate_64 ", "--threads", "100000", "--quick"], 1, marks=pytest.mark.tier("all")),
    ],
)
def test_wrong_calls(call, error_line, arguments, status):
    result = call("bench", "methods", *arguments)
    assert result.returncode == status
    error_line(result.stderr)


def test_a_row_that_fails_is_reported_in_its_place(monkeypatch):
    case = next(case for case in catalogue.all_cases() if case.parameters.name == "gate_64")
    holder = run.KeyHolder(ONE_THREAD)
    with monkeypatch.context() as patch:

        def no_memory(*_: object, **__: object) -> None:
            raise OutOfDeviceMemory("40 GiB of 2\nGiB")

        patch.setattr(run, "Session", no_memory)
        row = run.measured(case, ONE_THREAD, holder, silent)
    assert row["error"] == "40 GiB of 2 GiB"
    assert (row["per_second"], row["wrong"], row["security_bits"]) == (None, None, 132)
    assert run.measured(case, ONE_THREAD, holder, silent)["error"] is None  # and the next goes on


def test_a_row_whose_keys_do_not_fit_is_left_out_before_they_are_made(monkeypatch):
    case = next(case for case in catalogue.all_cases() if case.parameters.name == "papers/velofhe_gd2_ap")
    assert case.published.per_second == 2414
    monkeypatch.setattr(room, "available_memory", lambda: 8 * 2**30)
    row = run.measured(case, ONE_THREAD, run.KeyHolder(ONE_THREAD), silent)
    assert row["error"].startswith("papers/velofhe_gd2_ap: its keys take 13.") and "8.0 GiB are free" in row["error"]
    assert row["per_second"] is None and row["published"]["ratio"] is None


def test_memory_is_what_linux_says(tmp_path):
    facts = tmp_path / "meminfo"
    facts.write_text("MemTotal: 9 kB\nMemAvailable:       2 kB\n")
    assert room.available_memory(facts) == 2048
    facts.write_text("MemTotal: 9 kB\n")
    assert room.available_memory(facts) is room.available_memory(tmp_path / "none") is None
    room.require_room(parameter_set("gate_64"), "cpu")


def test_large_precision_that_a_set_cannot_do_is_reported():
    case = catalogue.Case("large precision", parameter_set("gate_64"), "func", 8)
    row = run.measured(case, ONE_THREAD, run.KeyHolder(ONE_THREAD), silent)
    assert "eval_func" in row["error"] and row["per_second"] is None


def test_wrong_outputs_are_counted():
    """A session of another key: half of all gates come out wrong."""
    parameters = paper_set("papers/velofhe_gd1")
    with measuring_papers():
        key, stranger = ClientKey.generate(parameters), ClientKey.generate(parameters)
    stranger._key_id = key.key_id
    effort = run.Effort("cpu", 1, 64, 1, 1)
    holder = run.KeyHolder(effort)
    holder._held = key, Session(stranger.evaluation_keys())
    case = next(case for case in catalogue.all_cases() if case.parameters.name == parameters.name)
    row = run.measured(case, effort, holder, silent)
    assert row["outputs"] == 130 and row["wrong"] > 30


@pytest.mark.parametrize("operation", ["sign", "decomp"])
def test_large_precision_rows(operation):
    case = catalogue.Case("large precision", parameter_set("toy_two_limb"), operation, 8)
    row = run.measured(case, ONE_THREAD, run.KeyHolder(ONE_THREAD), silent)
    assert (row["error"], row["wrong"], row["batch"], row["bits"]) == (None, 0, 1, 8)
    assert row["rotations"] > 1 and row["p_fail_log2"] <= -128 and row["outputs"] == 2


def test_the_catalogue_follows_the_tables():
    names = {case.parameters.name for case in catalogue.all_cases()}
    assert {
        "gate_64",
        "lut3",
        "lut4",
        "lut4_block",
        "lut4_raised",
        "lut4_fft",
        "gate_64_cm2",
        "lut6_64",
        "large16",
    } <= names
    assert {params.name for params in paper_sets()} <= names
    assert not [name for name in names if name.startswith("toy")]
    quick = catalogue.chosen_cases([], True)
    assert 0 < len(quick) < 12 and len({case.name for case in catalogue.all_cases()}) == len(catalogue.all_cases())
    assert {case.published.row for case in quick if case.published} == {"GD-I TFHE", "FINAL, N=1024"}
    fhew = {case.parameters.name for case in catalogue.all_cases() if case.published and "FHEW" in case.published.row}
    assert fhew == {f"papers/velofhe_{row}_ap" for row in ("gd1", "gd2", "mr1", "mr2")}
    assert {"gate_ntru", "lut4_ntru"} <= names
    precisions = {(case.operation, case.bits) for case in catalogue.all_cases() if "xiao" in case.parameters.name}
    assert {(kind, bits) for kind in ("sign", "decomp") for bits in (4, 8, 12, 16, 17, 18, 20, 21)} <= precisions


def test_every_plan_of_a_papers_row_fails_at_most_as_often_as_there():
    for case in catalogue.all_cases():
        if case.bits:
            assert run.large_work(case).p_fail_log2 <= case.p_fail_log2


def test_published_numbers_name_their_source():
    page = Path(__file__).resolve().parents[4] / "docs" / "reference" / "bibliography.md"
    keys = page.read_text()
    for case in PAPER_CASES:
        assert f"| [{case.published.source}] |" in keys


@pytest.mark.parametrize(
    ("name", "clocks"),
    [
        ("gate_64", 2520), ("nn2", 3348), ("lut2_64", 3072), ("lut3_64", 4632), ("lut4", 9344), ("lut3", 7680), ("large16", 14336),
        ("fine4", 43648), ("fine5", 91648), ("gate_ap", 1534.5), ("lut4_fft", None), ("lut6_64", None),
    ],
)  # fmt: skip
def test_the_count_of_operations_is_that_of_docs_cuda(name, clocks):
    assert ceiling.clocks_of_step(parameter_set(name)) == clocks


def test_the_count_of_selected_keys_leaves_out_digits_of_zero():
    """Two digits of 6 bits of 12, and of 11: one in 64 is 0, or one in 64 and one in 32."""
    whole = 6 * 11 * 2048 * 4 + 8 * 4096 * 2 + 2 * 4096 * 3 + 2 * 2048 * 8  # butterflies, products, reductions, sums
    assert ceiling.clocks_of_step(paper_set("papers/velofhe_gd2_ap")) == pytest.approx(whole * (1 - 1 / 64) / 64)
    narrow = paper_set("papers/velofhe_mr1_ap")
    assert share_of_steps_taken(narrow) == pytest.approx(1 - (1 / 64 + 1 / 32) / 2)


def test_the_ceiling_of_a_card():
    card = {"name": "NVIDIA H200", "multiprocessors": 132}
    assert ceiling.ceiling_per_second(parameter_set("gate_64"), card) == pytest.approx(324000, rel=0.001)
    assert ceiling.ceiling_per_second(parameter_set("lut4"), card) == pytest.approx(67100, rel=0.001)
    assert ceiling.ceiling_per_second(parameter_set("gate_64_cm2"), card) == pytest.approx(
        436000, rel=0.01
    )  # two values each
    assert ceiling.ceiling_per_second(parameter_set("gate_64"), {"name": "another", "multiprocessors": 132}) is None
    assert ceiling.ceiling_per_second(parameter_set("gate_64"), None) is None


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_openfhe_that_is_not_there_is_reported_in_its_rows(call):
    result = call("bench", "methods", "--quick", "--only", "gate_64 ", "--openfhe", sys.executable, "--json", "-")
    rows = json.loads(result.stdout)["rows"]
    assert [row["method"] for row in rows[1:]] == [
        f"OpenFHE {method}, on the CPU" for method in ("GINX", "AP", "LMKCDEY")
    ]
    assert all("openfhe" in row["error"] and row.keys() >= KEYS for row in rows[1:])
    assert rows[0]["error"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench", "pbs", "--set", "papers/velofhe_gd1"),
        ("bench", "sign", "--set", "papers/xiao_2_digits"),
        ("bench", "keygen", "--set", "papers/velofhe_gd1"),
        ("demo", "lookup", "--set", "papers/velofhe_mr2"),
        ("calibrate-machine", "--set", "papers/velofhe_gd1"),
    ],
)
def test_no_other_command_takes_a_papers_set(call, error_line, arguments):
    result = call(*arguments)
    assert result.returncode == 2
    assert "'cloakwork bench methods' alone" in error_line(result.stderr)


def test_params_does_not_list_them(call):
    assert "papers/" not in call("params").stdout


@pytest.mark.parametrize("candidate", ["papers/xiao_2_digits", paper_set("papers/xiao_2_digits")], ids=["name", "set"])
def test_models_are_not_compiled_for_them(candidate):
    with pytest.raises(ParameterError, match="'cloakwork bench methods' alone"):
        named_sets([candidate], structured=True)


def test_neither_keys_nor_service_know_them(call, error_line):
    result = call("keygen", "--set", "papers/velofhe_gd1", "--out", ".")
    assert result.returncode == 2
    assert "'cloakwork bench methods' alone" in error_line(result.stderr)
    assert known_set(parameter_digest(paper_set("papers/velofhe_gd1")).hex()) is None


def test_rates_are_whole_where_they_are_large():
    assert (rate_text(241770.4), rate_text(70.857)) == ("241,770", "70.86")


def test_a_build_without_the_papers_kernels_refuses_their_sets_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_engine, "kernel_sets", "shipped", raising=False)
    paper = paper_sets()[0]
    with pytest.raises(UnsupportedError, match=f"{paper.name}.*CLOAKWORK_KERNEL_SETS=all"):
        run._require_kernel(paper, "cuda:0")
    run._require_kernel(paper, "cpu")
    run._require_kernel(parameter_set("lut4"), "cuda:0")
