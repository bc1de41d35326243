"""`cloakwork train`: a recipe of the zoo as a command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cloakwork.models.compiler import CompiledModel

DATA = os.environ.get("CLOAKWORK_DATA", "")


@pytest.mark.tier("all")
@pytest.mark.skipif(
    not (Path(DATA) / "mnist").is_dir(), reason="no MNIST: set CLOAKWORK_DATA to the folder that holds mnist/"
)
def test_one_epoch_of_the_small_network(run, call, tmp_path):
    pytest.importorskip("torch")
    arguments = ["train", "mnist-mlp-1x30", "--epochs", "1", "-o", "m.onnx", "--compiled", "m.clkm", "--json", "-"]
    result = run(*arguments, environment={"CLOAKWORK_DATA": DATA})
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["epochs"] == 1
    assert record["accuracy_clear"] > 0.8
    assert CompiledModel.load(tmp_path / "m.clkm").program.parameters.name == record["parameter_set"]
    again = call("compile", "m.onnx", "--calibration", "m.calibration.json", "-o", "n.clkm", "--profile", "10")
    assert again.returncode == 0, again.stderr
    simulated = call("simulate", "m.clkm", "--data", "mnist", "--samples", "500", "--json", "-")
    assert json.loads(simulated.stdout)["accuracy_simulated"] > 0.7


def test_without_pytorch_it_says_what_to_install(run, tmp_path, error_line):
    (tmp_path / "hidden" / "torch").mkdir(parents=True)
    (tmp_path / "hidden" / "torch" / "__init__.py").write_text("raise ImportError('not here')")
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    for file in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / "data" / "mnist" / f"{file}-ubyte.gz").write_bytes(b"")
    paths = os.pathsep.join([str(tmp_path / "hidden"), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    environment = {"PYTHONPATH": paths, "CLOAKWORK_DATA": str(tmp_path / "data")}
    result = run("train", "mnist-mlp-1x30", environment=environment)
    assert result.returncode == 1
    assert "pip install '.[train]'" in error_line(result.stderr)


def test_wrong_calls(call, tmp_path, error_line):
    (tmp_path / "mnist-mlp-1x30.onnx").write_bytes(b"")
    for status, arguments in (
        (2, ["no-such-recipe"]),
        (2, ["mnist-mlp-1x30", "--epochs", "0"]),
        (1, ["mnist-mlp-1x30"]),
    ):
        result = call("train", *arguments)
        assert result.returncode == status, result.stderr
        error_line(result.stderr)
