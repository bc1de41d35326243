"""bench and demo: the keys that scripts rely on, and that wrong outputs would be counted."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cloakwork.app.cli.bench import large, measure
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.gates import INPUT_COUNTS
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session

BOOTSTRAP_KEYS = {
    "set",
    "device",
    "batch",
    "threads",
    "median_seconds",
    "per_second",
    "keyswitch_seconds",
    "blind_rotate_seconds",
    "wrong",
    "p_fail_log2",
    "security_bits",
}
KEYGEN_KEYS = {
    "median_seconds",
    "bootstrap_key_bytes",
    "keyswitch_key_bytes",
    "upload_bytes",
    "ciphertext_bytes",
    "seeded_ciphertext_bytes",
}


def one_object(result) -> dict:
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(
    "kind",
    [
        ("pbs", "--set", "toy"),
        ("gate", "--gate", "MUX", "--set", "toy_gate"),
        ("linear", "--rows", "5", "--cols", "7", "--set", "toy_two_limb"),
    ],
    ids=lambda kind: kind[0],
)
def test_every_device_writes_the_keys_of_the_design(call, device, kind):
    record = one_object(call("bench", *kind, "--device", device, "--batch", "3", "--repeats", "2", "--json", "-"))
    keys = {"median_seconds", "macs_per_second", "wrong"} if kind[0] == "linear" else BOOTSTRAP_KEYS
    assert record.keys() >= keys
    assert (record["device"], record["wrong"]) == (device, 0)
    assert record["median_seconds"] > 0


def test_gate_writes_the_keys_of_the_design_and_nothing_else(call):
    result = call(
        "bench", "gate", "--gate", "NAND", "--set", "toy_gate", "--batch", "5", "--repeats", "3", "--json", "-"
    )
    record = one_object(result)
    assert record.keys() >= BOOTSTRAP_KEYS
    assert result.stderr == ""
    assert (record["set"], record["device"], record["batch"], record["threads"]) == ("toy_gate", "cpu", 5, 1)
    assert record["per_second"] == pytest.approx(5 / record["median_seconds"])
    assert record["outputs"] == 20
    assert record["keyswitch_seconds"] + record["blind_rotate_seconds"] > 0


@pytest.mark.parametrize(
    "kind",
    [
        ("pbs", "--set", "toy_lanes"),
        ("gate", "--gate", "MUX", "--set", "toy_lanes_block"),
        ("linear", "--rows", "5", "--cols", "7", "--set", "toy_lanes"),
        ("keygen", "--set", "toy_lanes"),
    ],
    ids=lambda kind: kind[0],
)
def test_values_of_a_common_mask_are_counted(call, kind):
    batch = () if kind[0] == "keygen" else ("--batch", "3")
    record = one_object(call("bench", *kind, *batch, "--repeats", "2", "--json", "-"))
    if kind[0] in ("pbs", "gate"):
        assert (record["batch"], record["values_per_ciphertext"], record["outputs"]) == (3, 2, 18)
        assert record["per_second"] == pytest.approx(6 / record["median_seconds"])
    assert record.get("wrong", 0) == 0


@pytest.mark.parametrize(
    ("kind", "bits", "rotations"),
    [
        (("func", "--bits", "3"), 3, 2),
        (("floor", "--bits", "12", "--remove", "4"), 12, 2),
        (("sign", "--bits", "16"), 16, 7),
        (("decomp", "--bits", "11", "--digit-bits", "2"), 11, 11),
    ],
    ids=["func", "floor", "sign", "decomp"],
)
def test_large_precision_writes_the_keys_of_the_design(call, device, kind, bits, rotations):
    options = ["--set", "toy_two_limb", "--device", device, "--batch", "3", "--repeats", "2", "--json", "-"]
    record = one_object(call("bench", *kind, *options))
    assert record.keys() >= BOOTSTRAP_KEYS - {"keyswitch_seconds", "blind_rotate_seconds"} | {"bits", "rotations"}
    assert (record["bits"], record["rotations"], record["wrong"]) == (bits, rotations, 0)
    assert (record["device"], record["batch"], record["threads"], record["outputs"]) == (device, 3, 1, 9)
    assert record["p_fail_log2"] <= -128
    assert record["per_second"] == pytest.approx(3 / record["median_seconds"])


@pytest.mark.parametrize("kind", ["func", "floor", "sign", "decomp"])
def test_wrong_results_of_large_precision_are_counted(kind):
    """A session of another key gives noise: at least a quarter of the results are wrong."""
    parameters = parameter_set("toy_two_limb")
    key, stranger = ClientKey.generate(parameters), ClientKey.generate(parameters)
    stranger._key_id = key.key_id
    session = Session(stranger.evaluation_keys())
    works = {
        "func": lambda: large.func_work(parameters, 3, -128.0),
        "floor": lambda: large.floor_work(parameters, 8, 4, -128.0),
        "sign": lambda: large.sign_work(parameters, 8, -128.0),
        "decomp": lambda: large.decomp_work(parameters, 8, 2, -128.0),
    }
    work = works[kind]()
    m = np.random.default_rng(1).integers(0, 1 << work.bits, 200)
    outputs = work.run(session, key.encrypt_integers(m, 1 << work.bits))
    assert work.wrong(key, outputs, m) > 50


@pytest.mark.parametrize("name", ["toy", "toy_gate", "toy_two_limb"])
def test_pbs_writes_the_same_keys(call, name):
    record = one_object(call("bench", "pbs", "--set", name, "--batch", "4", "--repeats", "2", "--json", "-"))
    assert record.keys() >= BOOTSTRAP_KEYS
    assert record["wrong"] == 0


@pytest.mark.parametrize("arrays", ["device", "host", "page-locked"])
def test_linear(call, arrays):
    layer = ["--rows", "3", "--cols", "5", "--batch", "2", "--arrays", arrays]
    record = one_object(call("bench", "linear", *layer, "--set", "toy", "--json", "-"))
    assert (record["wrong"], record["arrays"]) == (0, arrays)
    assert record["macs_per_second"] > 0
    assert record["median_seconds"] > 0


def test_keygen(call):
    record = one_object(call("bench", "keygen", "--set", "toy", "--json", "-"))
    assert record.keys() >= KEYGEN_KEYS
    assert record["seeded_ciphertext_bytes"] < record["ciphertext_bytes"]
    assert record["upload_bytes"] < record["bootstrap_key_bytes"] + record["keyswitch_key_bytes"]


def test_json_to_a_file_leaves_the_table_on_standard_output(call, tmp_path):
    result = call("bench", "keygen", "--set", "toy", "--repeats", "1", "--json", "result.json")
    assert "median_seconds" in result.stdout
    assert json.loads((tmp_path / "result.json").read_text()).keys() >= KEYGEN_KEYS


@pytest.mark.parametrize(
    "arguments",
    [
        ["gate", "--set", "toy_gate", "--gate", "MAYBE"],
        ["gate", "--set", "toy_gate", "--batch", "0"],
        ["gate", "--set", "toy_gate", "--device", "tpu"],
        ["gate", "--set", "toy_gate", "--threads", "100000"],
        ["pbs", "--set", "toy", "--repeats", "0"],
        ["pbs"],
        ["sign", "--set", "toy", "--bits", "32"],
        ["floor", "--set", "toy", "--bits", "8", "--remove", "8"],
        ["func", "--set", "toy", "--bits", "8"],
        ["decomp", "--set", "toy_gate"],
        ["decomp", "--set", "toy", "--digit-bits", "3"],
    ],
)
def test_wrong_calls(call, error_line, arguments):
    result = call("bench", *arguments, "--json", "-")
    assert result.returncode == 2
    assert result.stdout == ""
    error_line(result.stderr)


def test_demo_checks_its_results(call):
    record = one_object(call("demo", "lookup", "--set", "toy", "--json", "-"))
    assert record["wrong"] == 0
    assert record["numbers"] == 4


@pytest.mark.parametrize("gate", INPUT_COUNTS)
def test_clear_gates(gate):
    truth = {
        "AND": lambda a, b: a and b,
        "NAND": lambda a, b: not (a and b),
        "OR": lambda a, b: a or b,
        "NOR": lambda a, b: not (a or b),
        "XOR": lambda a, b: a != b,
        "XNOR": lambda a, b: a == b,
        "ANDNY": lambda a, b: not a and b,
        "ANDYN": lambda a, b: a and not b,
        "ORNY": lambda a, b: not a or b,
        "ORYN": lambda a, b: a or not b,
        "NOT": lambda a: not a,
        "MUX": lambda s, a, b: a if s else b,
        "MAJORITY": lambda a, b, c: a + b + c >= 2,
        "AND3": lambda a, b, c: a and b and c,
        "OR3": lambda a, b, c: a or b or c,
    }[gate]
    inputs = INPUT_COUNTS[gate]
    rows = np.array([[bool(case >> i & 1) for case in range(1 << inputs)] for i in range(inputs)])
    expected = [bool(truth(*map(bool, column))) for column in rows.T]
    assert measure.clear_gate(gate, rows).tolist() == expected


def test_the_clear_product_is_exact():
    rng = np.random.default_rng(1)
    modulus = 132710401 * 134176769
    phases = rng.integers(0, modulus, (3, 200)).astype(np.uint64)
    weights = rng.integers(-8, 8, (4, 200))
    expected = [
        [sum(int(w) * int(x) for w, x in zip(row, sample, strict=True)) % modulus for row in weights]
        for sample in phases
    ]
    assert measure.clear_product(weights, phases, modulus).tolist() == expected


def test_wrong_outputs_are_counted():
    """A session of another key decrypts to noise: about three in four 2-bit results are wrong."""
    parameters = parameter_set("toy")
    key, stranger = ClientKey.generate(parameters), ClientKey.generate(parameters)
    stranger._key_id = key.key_id
    session = Session(stranger.evaluation_keys())
    operation = measure.exact_operation(key, session, 64, np.random.default_rng(1))
    seconds, wrong = measure.measure(operation, 2, lambda done, total: True)
    assert len(seconds) == 2
    assert wrong > 64
