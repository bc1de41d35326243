"""`cloakwork simulate`: samples from files, tables, MNIST, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from cloakwork.app.cli.shared.sample_digits import sample_digits
from cloakwork.models import zoo

DATA = os.environ.get("CLOAKWORK_DATA", "")


def test_simulation_of_samples_in_files(call, tmp_path):
    images, labels = sample_digits()
    np.save(tmp_path / "x.npy", images.reshape(-1, 28, 28))
    np.save(tmp_path / "labels.npy", labels)
    arguments = ["simulate", "mnist-mlp-1x30", "--data", "x.npy", "--seed", "5", "--json", "-"]
    record = json.loads(call(*arguments, "--labels", "labels.npy").stdout)
    assert record["samples"] == 30
    assert record["accuracy_clear"] == 1.0 and record["accuracy_simulated"] >= 0.9
    assert 0 < record["noise_relative"] < 1 and record["noise_sd"] > 0
    unlabelled = json.loads(call(*arguments, "--samples", "7").stdout)
    assert unlabelled["samples"] == 7
    assert "accuracy_clear" not in unlabelled


@pytest.mark.parametrize("name", [name for name in zoo.names() if "samples" in zoo.card(name).facts])
def test_simulation_of_tables_is_exact(call, name):
    record = json.loads(call("simulate", name, "--data", zoo.card(name).data, "--json", "-").stdout)
    assert record["samples"] == zoo.card(name).facts["samples"]
    assert record["agreement"] == 1.0
    assert record["accuracy_simulated"] == record["accuracy_clear"] >= 0.9


def test_simulation_refuses(call, tmp_path, error_line):
    np.save(tmp_path / "x.npy", np.zeros((2, 5)))
    np.save(tmp_path / "labels.npy", np.zeros(3))
    for status, arguments in (
        (2, ["--data", "photographs"]),
        (2, ["--data", "drawn-digits", "--labels", "labels.npy"]),
        (1, ["--data", "x.npy"]),
        (1, ["--data", "x.npy", "--labels", "labels.npy"]),
        (1, ["--data", "nothing.npy"]),
    ):
        result = call("simulate", "mnist-mlp-1x30", *arguments)
        assert result.returncode == status, (arguments, result.stderr)
        error_line(result.stderr)


@pytest.mark.tier("all")
@pytest.mark.skipif(
    not (Path(DATA) / "mnist").is_dir(), reason="no MNIST: set CLOAKWORK_DATA to the folder that holds mnist/"
)
def test_simulation_of_the_whole_test_set(call):
    result = call("simulate", "mnist-mlp-1x30", "--data", "mnist", "--json", "-", environment={"CLOAKWORK_DATA": DATA})
    record = json.loads(result.stdout)
    assert record["samples"] == 10000
    assert record["accuracy_simulated"] >= 0.968
    assert record["accuracy_clear"] - record["accuracy_simulated"] <= 0.004
    assert record["agreement"] >= 0.99
