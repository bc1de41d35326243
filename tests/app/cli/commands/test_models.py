"""compile, inspect, zoo, and the way of a sample through files: keygen, encrypt, run, decrypt."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import several_tensors as tensors

from cloakwork.app.cli.shared.sample_digits import sample_digits
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.models import zoo
from cloakwork.models.compile.pipeline import APPROXIMATE
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.program.facts import Facts

DATA = os.environ.get("CLOAKWORK_DATA", "")
PASSPHRASE = {"CLOAKWORK_PASSPHRASE": "correct horse"}
RNG = np.random.default_rng(11)


def small_network() -> onnx.ModelProto:
    """4-5-3 with ReLU."""
    helper, weights = onnx.helper, [RNG.normal(size=(5, 4)), RNG.normal(size=(3, 5))]
    nodes = [
        helper.make_node("Gemm", ["x", "w0"], ["h"], name="hidden", transB=1),
        helper.make_node("Relu", ["h"], ["a"], name="relu"),
        helper.make_node("Gemm", ["a", "w1"], ["y"], name="scores", transB=1),
    ]
    constants = [onnx.numpy_helper.from_array(w.astype(np.float32), f"w{i}") for i, w in enumerate(weights)]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", n]) for name, n in (("x", 4), ("y", 3))
    ]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def small_tree() -> onnx.ModelProto:
    """x0 <= 0.5, else x1 <= 0.25."""
    helper = onnx.helper
    nodes = {
        "nodes_treeids": [0] * 5, "nodes_nodeids": [0, 1, 2, 3, 4], "nodes_featureids": [0, 0, 1, 0, 0], "nodes_values": [0.5, 0.0, 0.25, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 3, 0, 0],
        "nodes_falsenodeids": [2, 0, 4, 0, 0], "target_treeids": [0] * 3, "target_nodeids": [1, 3, 4], "target_ids": [0] * 3,
        "target_weights": [1.0, 2.0, 3.0], "n_targets": 1,
    }  # fmt: skip
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **nodes)
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", n]) for name, n in (("x", 2), ("y", 1))
    ]
    graph = helper.make_graph([node], "tree", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")
def test_trees_of_a_file_are_compared_as_is_asked_for(call, tmp_path):
    onnx.save(small_tree(), tmp_path / "tree.onnx")
    np.save(tmp_path / "data.npy", np.random.default_rng(0).normal(size=(200, 2)))
    told = call("compile", "tree.onnx", "--thresholds", "client", "-o", "told.clkm", "--json", "-")
    assert json.loads(told.stdout)["discloses"][0] == {"what": "thresholds of the model", "count": 2}
    refused = call("compile", "tree.onnx", "-o", "none.clkm")
    assert refused.returncode == 1 and "--samples: expected samples, or ranges" in refused.stderr
    calibrated = ("compile", "tree.onnx", "--samples", "data.npy", "--accuracy", "0.5")
    found = call(*calibrated, "--grid-bits", "8", "--grid", "quantiles", "-o", "grid.clkm", "--json", "-")
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["grid"]["kinds"] == {"quantiles": 2} and report["grid"]["points"] == 2 * 199
    assert report["discloses"][0] == {"what": "points of public grids", "count": 2 * 199}
    placed = call(*calibrated, "--thresholds", "server", "--grid-bits", "8", "-o", "places.clkm", "--json", "-")
    assert placed.returncode == 0, placed.stderr
    report = json.loads(placed.stdout)
    assert report["grid"]["sent"] == 2 * -(-8 // report["grid"]["digit_bits"])
    assert report["discloses"][0] == {"what": "ends and steps of public grids", "count": 4}
    wrong = call(*calibrated, "--thresholds", "nobody", "-o", "wrong.clkm")
    assert wrong.returncode in (1, 2) and "expected one of 'grid', 'client', 'server'" in wrong.stderr


def test_labels_alone(call, tmp_path):
    """Of a linear file; a network has no such option."""
    node = onnx.helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        coefficients=[1.0, 0.0, 0.0, 1.0, -1.0, -1.0],
        intercepts=[0.0, 0.25, 0.5],
        classlabels_ints=[3, 5, 8],
        post_transform="SOFTMAX",
    )
    scores = onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [None, 3])
    label = onnx.helper.make_tensor_value_info("label", onnx.TensorProto.INT64, [None])
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 2])
    graph = onnx.helper.make_graph([node], "linear", [x], [label, scores])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "linear.onnx")
    samples = np.random.default_rng(0).normal(size=(300, 2))
    np.save(tmp_path / "data.npy", samples)
    found = call("compile", "linear.onnx", "--samples", "data.npy", "--tell", "labels", "-o", "l.clkm", "--json", "-")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["tell"] == "labels"
    weights, constants = np.array([[1, 0], [0, 1], [-1, -1]]), np.array([0, 0.25, 0.5])
    labels = np.array([3, 5, 8])[(samples @ weights.T + constants).argmax(axis=1)]
    assert (CompiledModel.load(tmp_path / "l.clkm").predict(samples) == labels).mean() > 0.98
    onnx.save(small_network(), tmp_path / "small.onnx")
    refused = call("compile", "small.onnx", "--tell", "labels", "--precision", "fast", "-o", "n.clkm")
    assert refused.returncode == 1 and "expected the precision 'exact'" in refused.stderr


def test_ranges_of_features_are_said_or_refused(call, tmp_path):
    onnx.save(small_tree(), tmp_path / "tree.onnx")
    np.save(tmp_path / "data.npy", np.random.default_rng(0).normal(size=(300, 4)))
    ranged = ("--range", "0=-5:5", "--range", "feature 1=-1e1:10")
    found = call("compile", "tree.onnx", *ranged, "-o", "tree.clkm", "--client", "tree.json", "--json", "-")
    assert found.returncode == 0, found.stderr
    (grid,) = [each for each in json.loads((tmp_path / "tree.json").read_text())["input_steps"] if "spacing" in each]
    assert grid["low"] == [-5.0, -10.0]
    onnx.save(small_network(), tmp_path / "small.onnx")
    network = ("compile", "small.onnx", "--samples", "data.npy", "--accuracy", "0", "-o", "small.clkm", "--force")
    found = call(*network, "--range", "2=-9:9.25", "--client", "small.json")
    assert found.returncode == 0, found.stderr
    (step,) = json.loads((tmp_path / "small.json").read_text())["input_steps"]
    assert (step["lower"][2], step["upper"][2]) == (-9.0, 9.25)
    for wrong in ("0=5", "=0:1", "0=a:b", "0:1", "\u00b2=0:1"):
        refused = call(*network, "--range", wrong)
        assert refused.returncode in (1, 2) and "feature" in refused.stderr and "Traceback" not in refused.stderr
    twice = call(*network, "--range", "0=0:1", "--range", "0=0:2")
    assert twice.returncode == 2 and "expected one NAME=LOW:HIGH for each" in twice.stderr


@pytest.fixture
def compiled(call, tmp_path: Path) -> dict[str, object]:
    """small.onnx and data.npy, compiled to small.clkm and client.json; the report."""
    onnx.save(small_network(), tmp_path / "small.onnx")
    np.save(tmp_path / "data.npy", RNG.uniform(-1, 1, (300, 4)))
    result = call(
        "compile", "small.onnx", "--samples", "data.npy", "--accuracy", "0", "-o", "small.clkm", "--client", "client.json", "--json", "-"
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_compile_reports_what_inspect_reports(call, tmp_path, compiled):
    assert compiled["bootstraps"] == 5
    assert compiled["bytes"] == (tmp_path / "small.clkm").stat().st_size
    inspected = json.loads(call("inspect", "small.clkm", "--json", "-").stdout)
    assert {key: inspected[key] for key in inspected if key != "model"} == {
        key: compiled[key] for key in compiled if key not in ("compiled", "bytes")
    }
    text = call("inspect", "small.clkm", "--details", "--picture", "small.svg").stdout
    lines = call("inspect", "small.clkm").stdout.splitlines()
    starts = (
        "as your model: ",
        "seconds for one sample: ",
        "bytes to send: ",
        "a client learns: the answers, and of the model ",
    )
    assert len(lines) == 4 and all(map(str.startswith, lines, starts)), lines
    assert "hidden" in (tmp_path / "small.svg").read_text() and (tmp_path / "small.svg").read_text().startswith("<svg")
    assert str(compiled["parameter_set"]) in text and "hidden" in text


def test_a_sample_goes_through_files(call, tmp_path, compiled):
    """The server's step needs neither a passphrase nor the secret key's file."""
    x = RNG.uniform(-0.9, 0.9, (3, 4))
    np.savetxt(tmp_path / "x.csv", x, fmt="%.17g", delimiter=",")
    assert call("keygen", "--client", "client.json", "--out", "keys", environment=PASSPHRASE).returncode == 0
    key = ["--key", "keys/client.key"]
    result = call("encrypt", "x.csv", "--client", "client.json", *key, "-o", "x.bin", environment=PASSPHRASE)
    assert result.returncode == 0, result.stderr
    (tmp_path / "keys" / "client.key").rename(tmp_path / "away.key")
    record = call("run", "small.clkm", "x.bin", "--keys", "keys/evaluation.keys", "-o", "y.bin", "--json", "-")
    assert record.returncode == 0, record.stderr
    assert json.loads(record.stdout)["samples"] == 3 and json.loads(record.stdout)["rerandomised"] is True
    digests = []
    for name, options in (("y2", []), ("y3", ["--deterministic"]), ("y4", ["--deterministic", "--threads", "2"])):
        files = ["--keys", "keys/evaluation.keys", "-o", f"{name}.bin"]
        again = call("run", "small.clkm", "x.bin", *files, *options, "--json", "-")
        digests.append(json.loads(again.stdout)["sha256"])
    assert digests[1] == digests[2] and len({json.loads(record.stdout)["sha256"], *digests}) == 3
    assert (tmp_path / "y3.bin").read_bytes() == (tmp_path / "y4.bin").read_bytes()
    arguments = ["decrypt", "y.bin", "--client", "client.json", "--key", "away.key", "--out", "y.npy", "--json", "-"]
    result = call(*arguments, environment=PASSPHRASE)
    assert result.returncode == 0, result.stderr
    values = np.load(tmp_path / "y.npy", allow_pickle=False)
    assert json.loads(result.stdout)["values"] == values.tolist()
    model = CompiledModel.load(tmp_path / "small.clkm")
    clear = model.predict(x)
    assert values.shape == (3, 3)
    drawn = [
        model.predict(x, how="simulate", seed=seed) - clear for seed in range(60)
    ]  # the noise of toy parameters is large
    deviation = np.sqrt(np.square(drawn).mean(axis=0))
    assert (np.abs(values - clear) < 6 * deviation + 0.05 * np.abs(clear).max()).all()


def test_refusals_on_the_way(call, tmp_path, compiled, error_line):
    """Each file in another's place, keys of another set, damaged and truncated files."""
    np.save(tmp_path / "x.npy", np.zeros((1, 4)))
    np.save(tmp_path / "wide.npy", np.zeros((1, 5)))
    for arguments in (["--client", "client.json", "--out", "keys"], ["--set", "toy", "--out", "toy"]):
        assert call("keygen", *arguments, environment=PASSPHRASE).returncode == 0
    right, toy = ["--key", "keys/client.key"], ["--key", "toy/client.key"]
    client = ["--client", "client.json"]
    assert call("encrypt", "x.npy", *client, *right, "-o", "x.bin", environment=PASSPHRASE).returncode == 0
    assert call("run", "small.clkm", "x.bin", "--keys", "keys/evaluation.keys", "-o", "y.bin").returncode == 0
    data = (tmp_path / "small.clkm").read_bytes()
    (tmp_path / "cut.clkm").write_bytes(data[:-40])
    (tmp_path / "flipped.clkm").write_bytes(data[:99] + bytes([data[99] ^ 1]) + data[100:])
    (tmp_path / "cut.bin").write_bytes((tmp_path / "x.bin").read_bytes()[:-8])
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    (tmp_path / "other.json").write_text("{}")
    keys = ["--keys", "keys/evaluation.keys"]
    # Another model of the same set and shapes, and ciphertexts of a release that did not say their model.
    original = CompiledModel.load(tmp_path / "small.clkm")
    replace(original, program=replace(original.program, facts=Facts(others={"twin": True}))).save(
        tmp_path / "twin.clkm"
    )
    encrypted = SeededPackedCiphertexts.load(tmp_path / "x.bin")
    encrypted.with_purpose(None).save(tmp_path / "old.bin")
    failures = [
        ["run", "twin.clkm", "x.bin", *keys, "-o", "z.bin"],
        ["run", "small.clkm", "old.bin", *keys, "-o", "z.bin"],
        ["decrypt", "y.bin", "--model", "twin.clkm", *right],
        ["encrypt", "wide.npy", *client, *right, "-o", "z.bin"],
        ["encrypt", "x.bin", *client, *right, "-o", "z.bin"],
        ["encrypt", "x.npy", *client, *toy, "-o", "z.bin"],
        ["encrypt", "x.npy", "--client", "other.json", *right, "-o", "z.bin"],
        ["encrypt", "x.npy", "--client", "binary.json", *right, "-o", "z.bin"],
        ["encrypt", "x.npy", *client, *right, "-o", "x.bin"],
        ["run", "cut.clkm", "x.bin", *keys, "-o", "z.bin"],
        ["run", "flipped.clkm", "x.bin", *keys, "-o", "z.bin"],
        ["run", "small.clkm", "cut.bin", *keys, "-o", "z.bin"],
        ["run", "small.clkm", "y.bin", *keys, "-o", "z.bin"],
        ["run", "small.clkm", "x.bin", "--keys", "toy/evaluation.keys", "-o", "z.bin"],
        ["run", "small.clkm", "x.bin", "--keys", "keys/client.key", "-o", "z.bin"],
        ["run", "small.clkm", "x.bin", *keys, "-o", "y.bin"],
        ["decrypt", "x.bin", *client, *right],
        ["decrypt", "y.bin", *client, *toy],
    ]
    calls = [
        ["encrypt", "x.npy", "x.npy", *client, *right, "-o", "z.bin"],
        ["encrypt", "x.npy", *client, "--full", *right, "-o", "z.bin"],
        ["encrypt", "x.npy", *client, "--model", "small.clkm", *right],
        ["decrypt", "y.bin", *client, "--noise", *right],
        ["run", "x.bin", "x.bin", *keys],
        ["keygen", "--set", "toy", *client],
        ["keygen"],
    ]
    for status, group in ((1, failures), (2, calls)):
        for arguments in group:
            result = call(*arguments, environment=PASSPHRASE)
            assert result.returncode == status, (arguments, result.stderr)
            line = error_line(result.stderr)
            assert "Traceback" not in line
            assert ("for program" in line) == bool({"twin.clkm", "old.bin"} & {*arguments}), line
            assert result.stdout == ""
    assert not (tmp_path / "z.bin").exists()


def test_compile_refuses(call, tmp_path, error_line):
    onnx.save(small_network(), tmp_path / "small.onnx")
    np.save(tmp_path / "data.npy", RNG.uniform(-1, 1, (30, 4)))
    np.save(tmp_path / "wide.npy", RNG.uniform(-1, 1, (30, 5)))
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    np.save(tmp_path / "number.npy", np.float64(3))
    np.save(tmp_path / "empty.npy", np.zeros((0, 4)))
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    data = ["--samples", "data.npy"]
    output = ["-o", "out.clkm"]
    failures = [
        ["junk.onnx", *data, *output],
        ["small.onnx", "--samples", "wide.npy", *output],
        ["small.onnx", "--samples", "words.npy", *output],
        ["small.onnx", "--samples", "junk.onnx", *output],
        ["small.onnx", "--samples", "nothing.npy", *output],
        ["small.onnx", "--samples", "number.npy", *output],
        ["small.onnx", "--samples", "empty.npy", *output],
        ["small.onnx", *data, "-o", "no_folder/out.clkm"],
        ["small.onnx", *data, "--set", "gate_64", *output],
        ["small.onnx", *data, "-o", "small.onnx"],
        ["small.onnx", *output],
    ]
    calls = [
        ["nothing.onnx", *data, *output],
        ["small.onnx", *data, "--weight-bits", "11", *output],
        ["small.onnx", *data, "--precision", "sloppy", *output],
        ["small.onnx", *data, "--tell", "everything", *output],
        ["small.onnx", *data, "--grid-bits", "8", "--leaf-bits", "4", *output],
        ["small.onnx", *data, "--set", "no_such_set", *output],
        ["small.onnx", *data],
    ]
    for status, group in ((1, failures), (2, calls)):
        for arguments in group:
            result = call("compile", *arguments)
            assert result.returncode == status, (arguments, result.stderr)
            error_line(result.stderr)
    assert not (tmp_path / "out.clkm").exists()
    for wrong in ("number.npy", "empty.npy"):
        for command in (
            "simulate mnist-mlp-1x30 --data",
            "index build -o out.clkn",
            "compile small.onnx -o out.clkm --samples",
        ):
            assert f"{wrong}: expected at least one sample" in error_line(call(*command.split(), wrong).stderr)
    foreign = error_line(call("compile", "small.onnx", *data, "--leaf-bits", "4", *output).stderr)
    assert "--leaf-bits: no option of a network" in foreign and "--accumulator-bits" in foreign and "_" not in foreign


def test_a_model_of_the_zoo_comes_as_it_is(call, tmp_path, error_line):
    assert call("compile", "mnist-mlp-1x30", "-o", "m.clkm").returncode == 0
    assert CompiledModel.load(tmp_path / "m.clkm").program.bootstraps == 30
    refused = call("compile", "mnist-mlp-1x30", "--precision", "balanced", "-o", "n.clkm")
    assert refused.returncode == 2 and "compiled already" in error_line(refused.stderr)


def test_structured_keys_want_to_be_asked_for(call, tmp_path, compiled, error_line):
    """compile, and keygen for a program of such a set; naming the set to keygen is asking."""
    assert compiled["structured_secret"] is False
    arguments = ["compile", "small.onnx", "--samples", "data.npy", "--accuracy", "0", "--client", "b.json"]
    refused = call(*arguments, "-o", "block.clkm", "--set", "nn2_block")
    assert refused.returncode != 0 and "--structured" in error_line(refused.stderr)
    result = call(*arguments, "-o", "block.clkm", "--structured", "--json", "-")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["structured_secret"] is True and report["parameter_set"].endswith("_block")
    refused = call("keygen", "--client", "b.json", "--out", "keys", environment=PASSPHRASE)
    assert refused.returncode != 0 and "--structured" in error_line(refused.stderr)
    for wanted in (["--client", "b.json", "--structured"], ["--set", "toy_block"]):
        made = call("keygen", *wanted, "--out", f"keys-{len(wanted)}", environment=PASSPHRASE)
        assert made.returncode == 0, made.stderr


@pytest.mark.tier("all")
def test_a_common_mask_wants_to_be_asked_for(call, tmp_path, compiled, error_line):
    """compile, and three samples of two to a ciphertext there and back by files."""
    assert compiled["samples_per_ciphertext"] == 1
    arguments = ["compile", "small.onnx", "--samples", "data.npy", "--accuracy", "0", "--client", "cm.json"]
    for wrong in (["--set", "nn2_cm2"], ["--set", "nn2", "--bodies", "2"]):
        refused = call(*arguments, "-o", "cm.clkm", *wrong)
        assert refused.returncode != 0 and "--bodies 2" in error_line(refused.stderr)
    result = call(
        *arguments, "-o", "cm.clkm", "--set", "nn2_cm2", "--precision", "fast", "--bodies", "2", "--json", "-"
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["samples_per_ciphertext"], report["parameter_set"]) == (2, "nn2_cm2")
    np.save(tmp_path / "three.npy", np.load(tmp_path / "data.npy")[:3])
    for step in (
        ["keygen", "--client", "cm.json", "--out", "cm"],
        ["encrypt", "three.npy", "--client", "cm.json", "--key", "cm/client.key", "--out", "three.ct"],
        ["run", "cm.clkm", "three.ct", "--keys", "cm/evaluation.keys", "--out", "out.ct"],
        [
            "decrypt",
            "out.ct",
            "--client",
            "cm.json",
            "--key",
            "cm/client.key",
            "--samples",
            "3",
            "--out",
            "three_out.npy",
        ],
        ["decrypt", "out.ct", "--client", "cm.json", "--key", "cm/client.key", "--out", "four_out.npy"],
    ):
        made = call(*step, environment=PASSPHRASE)
        assert made.returncode == 0, (step, made.stderr)
    three, four = np.load(tmp_path / "three_out.npy"), np.load(tmp_path / "four_out.npy")
    assert (len(three), len(four)) == (3, 4)
    np.testing.assert_array_equal(four[:3], three)
    wrong = call(
        "decrypt", "out.ct", "--client", "cm.json", "--key", "cm/client.key", "--samples", "5", environment=PASSPHRASE
    )
    assert wrong.returncode != 0 and "3 rows of ciphertexts for 5 samples" in error_line(wrong.stderr)


def test_the_steps_of_the_compiler_are_shown_on_request(call, compiled):
    base = ["compile", "small.onnx", "--samples", "data.npy", "--accuracy", "0", "-o", "m.clkm", "--force"]
    shown = call(*base, "--stages").stderr.splitlines()
    steps = [line.partition(":")[0] for line in shown if not line.startswith(" ")]
    assert steps == ["import_onnx", *(step.name for step in APPROXIMATE)]
    assert "fuse_functions: nothing to do" in shown
    assert any(line.strip().startswith("1 linear 'hidden' 1 x 5 x 4, integer of 0 in [") for line in shown)
    assert not call(*base).stderr


def test_the_zoo_is_listed(call):
    record = json.loads(call("zoo", "--json", "-").stdout)
    assert [each["name"] for each in record["models"]] == list(zoo.names())
    assert "mnist-mlp-1x30" in call("zoo", environment={"COLUMNS": "200"}).stdout


def test_an_exact_profile(call, tmp_path, error_line):
    onnx.save(small_network(), tmp_path / "small.onnx")
    np.save(tmp_path / "data.npy", RNG.uniform(-1, 1, (300, 4)))
    base = [
        "compile",
        "small.onnx",
        "--samples",
        "data.npy",
        "--accuracy",
        "0",
        "-o",
        "m.clkm",
        "--json",
        "-",
        "--force",
    ]
    result = call(*base, "--precision", "exact", "--weight-bits", "2", "--input-bits", "2", "--accumulator-bits", "4")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["failure_log2_program"] <= -120
    for arguments in (
        ["--precision", "exact", "--input-bits", "40"],
        ["--precision", "exact", "--accumulator-ranges", "wide"],
    ):
        result = call(*base, *arguments)
        assert result.returncode == 2
        error_line(result.stderr)


def test_profiles_of_layers(call, compiled, error_line):
    data = ["--samples", "data.npy", "--accuracy", "0"]
    base = ["compile", "small.onnx", *data, "-o", "m.clkm", "--force", "--json", "-"]
    result = call(*base, "--precision", "hidden=3", "--precision", "balanced")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["noise_limit_percent"] == 1.0
    for arguments, status in (
        (["--precision", "1", "--precision", "2"], (2,)),
        (["--precision", "no such layer=1"], (1, 2)),
        (["--precision", "-1"], (1, 2)),
    ):
        result = call(*base, *arguments)
        assert result.returncode in status, result.stderr
        error_line(result.stderr)


def test_more_samples_than_memory_holds_are_refused(tmp_path, monkeypatch):
    from cloakwork.app.cli.shared import model_memory
    from cloakwork.app.cli.shared.console import FailureError

    monkeypatch.setattr(model_memory, "physical_memory_bytes", lambda: 1 << 30)
    program = zoo.load_model("mnist-mlp-1x30").program
    model_memory.check_memory(program, (2, 784), tmp_path)
    with pytest.raises(FailureError, match="several files"):
        model_memory.check_memory(program, (10**6, 784), tmp_path)


@pytest.mark.gpu
def test_the_card_gives_the_file_that_the_processor_gives(call, tmp_path):
    np.save(tmp_path / "x.npy", sample_digits()[0][:5])
    assert call("keygen", "--model", "mnist-mlp-1x30", environment=PASSPHRASE).returncode == 0
    encrypt = ["encrypt", "x.npy", "--model", "mnist-mlp-1x30", "-o", "x.bin"]
    assert call(*encrypt, environment=PASSPHRASE).returncode == 0
    for device in ("cpu", "cuda"):
        result = call("run", "mnist-mlp-1x30", "x.bin", "-o", f"{device}.bin", "--device", device)
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "cpu.bin").read_bytes() == (tmp_path / "cuda.bin").read_bytes()


@pytest.mark.tier("all")
def test_several_inputs_and_outputs_through_files(call, tmp_path, error_line):
    """compile, inspect, simulate, keygen, encrypt, run, decrypt with arrays by name (.npz)."""
    proto, x = tensors.image_and_table(np.random.default_rng(2)), tensors.samples(np.random.default_rng(3), 200)
    onnx.save(proto, tmp_path / "two.onnx")
    np.savez(tmp_path / "data.npz", **x)
    few = {name: array[:2] for name, array in x.items()}
    np.savez(tmp_path / "few.npz", **few)
    compiled = call(
        "compile", "two.onnx", "--samples", "data.npz", "--accuracy", "0", "--task", "embedding=regression", "--set", "nn1_wide",
        "-o", "two.clkm", "--client", "client.json", "--json", "-",
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stderr
    report = json.loads(compiled.stdout)
    assert [each["name"] for each in report["input_tensors"]] == ["image", "table"]
    assert [each["client_steps"] for each in report["output_tensors"]] == [["Softmax"], []]
    simulated = json.loads(call("simulate", "two.clkm", "--data", "data.npz", "--json", "-").stdout)
    assert simulated["samples"] == 200 and set(simulated["agreement"]) == {"probabilities", "embedding"}
    assert call("keygen", "--client", "client.json", environment=PASSPHRASE).returncode == 0
    assert call("encrypt", "few.npz", "--client", "client.json", "-o", "x.bin", environment=PASSPHRASE).returncode == 0
    assert call("run", "two.clkm", "x.bin", "-o", "y.bin").returncode == 0
    done = call("decrypt", "y.bin", "--client", "client.json", "--out", "y.npz", "--json", "-", environment=PASSPHRASE)
    assert done.returncode == 0, done.stderr
    record, clear = json.loads(done.stdout), CompiledModel.load(tmp_path / "two.clkm").predict(few)
    with np.load(tmp_path / "y.npz") as answers:
        for name, wanted in clear.items():
            np.testing.assert_allclose(answers[name], record["values"][name])
            assert record["shape"][name] == list(wanted.shape)
            assert np.abs(answers[name] - wanted).max() < 0.3 * max(1.0, np.abs(wanted).max())
    shown = call("decrypt", "y.bin", "--client", "client.json", environment=PASSPHRASE).stdout.splitlines()
    assert shown[0] == "probabilities:" and len(shown) == 6

    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    np.savez(tmp_path / "other.npz", image=few["image"])
    np.save(tmp_path / "one.npy", few["image"])
    for arguments, status in (
        (["encrypt", "bad.npz", "--client", "client.json", "-o", "z.bin"], 1),
        (["encrypt", "other.npz", "--client", "client.json", "-o", "z.bin"], 1),
        (["encrypt", "one.npy", "--client", "client.json", "-o", "z.bin"], 1),
        (["encrypt", "few.npz", "--model", "iris-tree", "-o", "z.bin"], 2),
        (["decrypt", "y.bin", "--client", "client.json", "--out", "y.npy"], 1),
        (["simulate", "two.clkm", "--data", "data.npz", "--labels", "one.npy"], 2),
        (["compile", "two.onnx", "--samples", "data.npz", "--output", "nothing", "-o", "z.clkm"], 2),
        (["compile", "two.onnx", "--samples", "data.npz", "--task", "a=regression", "--task", "regression", "-o", "z.clkm"], 2),
    ):  # fmt: skip
        wrong = call(*arguments, environment=PASSPHRASE)
        assert wrong.returncode == status, (arguments, wrong.stderr)
        error_line(wrong.stderr)
    one = call(
        "compile", "two.onnx", "--samples", "data.npz", "--output", "embedding", "--accuracy", "0", "--json", "-", "-o", "one.clkm"
    )  # fmt: skip
    assert one.returncode == 0 and json.loads(one.stdout)["output_tensors"] == [], one.stderr
