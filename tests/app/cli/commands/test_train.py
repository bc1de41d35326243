"""`cloakwork train`: a recipe of the zoo as a command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cloakwork.models.compiled import CompiledModel

DATA = os.environ.get("CLOAKWORK_DATA", "")


@pytest.mark.tier("all")
@pytest.mark.skipif(
    not (Path(DATA) / "mnist").is_dir(), reason="no MNIST: set CLOAKWORK_DATA to the folder that holds mnist/"
)
def test_one_epoch_of_the_small_network(call, tmp_path):
    pytest.importorskip("torch")
    arguments = ["train", "mnist-mlp-1x30", "--epochs", "1", "-o", "m.onnx", "--compiled", "m.clkm", "--json", "-"]
    result = call(*arguments, environment={"CLOAKWORK_DATA": DATA})
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["epochs"] == 1
    assert record["accuracy_clear"] > 0.8
    assert CompiledModel.load(tmp_path / "m.clkm").program.parameters.name == record["parameter_set"]
    again = call("compile", "m.onnx", "--samples", "m.calibration.json", "-o", "n.clkm", "--precision", "10")
    assert again.returncode == 0, again.stderr
    arguments = ["simulate", "m.clkm", "--data", "mnist", "--samples", "500", "--json", "-"]
    simulated = call(*arguments, environment={"CLOAKWORK_DATA": DATA})
    assert json.loads(simulated.stdout)["accuracy_simulated"] > 0.7


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
