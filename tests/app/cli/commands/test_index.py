"""index build and query: files in, answers out, and what is wrong said in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RNG = np.random.default_rng(20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = np.concatenate([RNG.standard_normal((30, 6)) + 3, RNG.standard_normal((30, 6)) - 3])
    np.save(tmp_path / "table.npy", table)
    np.save(tmp_path / "labels.npy", np.repeat([4, 9], 30))
    np.save(tmp_path / "values.npy", np.repeat([0.5, -2.5], 30))
    np.save(tmp_path / "queries.npy", table[[1, 2, 40, 59]] * 0.9)
    return tmp_path


def ended(call: Any, *arguments: Any) -> dict[str, Any]:
    result = call("index", *map(str, arguments), "--json", "-")
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--labels", "labels.npy"), [4, 4, 9, 9]),
        (("--values", "values.npy", "--metric", "cosine"), [0.5, 0.5, -2.5, -2.5]),
        ((), None),
    ],
)
def test_build_and_query(call: Any, folder: Path, options: tuple[str, ...], expected: list[float] | None) -> None:
    chosen = [folder / option if option.endswith(".npy") else option for option in options]
    built = ended(call, "build", folder / "table.npy", *chosen, "-o", folder / "index", "--neighbors", 3)
    assert (built["rows"], built["features"]) == (60, 6) and built["parameter_set"] in ("bgv12", "bgv13")
    found = ended(
        call, "query", folder / "queries.npy", "--index", folder / "index", "-o", folder / "answers.npy", "--threads", 2
    )
    assert (found["queries"], found["wrong"], found["outputs"]) == (4, 0, 240)
    assert found["answer_bytes"] > built["answer_bytes"] and found["query_bytes"] > built["query_bytes"]
    answers = np.load(folder / "answers.npy", allow_pickle=False)
    assert answers.tolist() == found["answers"]
    if expected is None:  # numbers of rows
        assert all((row < 30) == (place < 2) for place, row in enumerate(found["answers"]))
    else:
        assert found["answers"] == pytest.approx(expected)


def test_cells(call: Any, folder: Path) -> None:
    """Two of four cells are asked for: their rows alone are scored."""
    options = ("--labels", folder / "labels.npy", "--cells", 4, "--probes", 2, "--neighbors", 3)
    built = ended(call, "build", folder / "table.npy", *options, "-o", folder / "index")
    assert (built["cells"], built["probes"], built["query_bytes"]) == (4, 2, 99328) and built["recall"] > 0.5
    assert "centroids" in built["client_learns"]
    found = ended(call, "query", folder / "queries.npy", "--index", folder / "index", "--threads", 2)
    assert found["wrong"] == 0 and 0 < found["outputs"] <= 240 and found["answers"] == [4, 4, 9, 9]
    assert found["query_bytes"] <= 100_000 and found["answer_bytes"] <= 100_000
    whole = ended(call, "build", folder / "table.npy", *options[:2], "--cells", 0, "-o", folder / "whole")
    assert "cells" not in whole and whole["client_learns"] == "the score of every row"


def test_what_is_wrong_is_said(call: Any, folder: Path) -> None:
    def refused(message: str, *arguments: Any) -> None:
        result = call("index", *map(str, arguments))
        assert result.returncode in (1, 2) and message in result.stderr and "Traceback" not in result.stderr

    index = folder / "index"
    both = ("--labels", folder / "labels.npy", "--values", folder / "values.npy")
    refused("expected one of them", "build", folder / "table.npy", "-o", index, *both)
    refused(
        "n_neighbors", "build", folder / "table.npy", "-o", index, "--labels", folder / "labels.npy", "--neighbors", 61
    )
    refused("expected shapes", "build", folder / "labels.npy", "-o", index)
    refused("power of two", "build", folder / "table.npy", "-o", index, "--cells", 8, "--probes", 3)
    assert not index.exists()
    ended(call, "build", folder / "table.npy", "-o", index)
    refused("would be overwritten", "build", folder / "table.npy", "-o", index)
    ended(call, "build", folder / "table.npy", "-o", index, "--force")
    refused("no such file", "query", folder / "queries.npy", "--index", folder / "other")
    refused("expected an index", "query", folder / "queries.npy", "--index", folder / "table.npy")
    refused("expected shape [samples, 6]", "query", folder / "labels.npy", "--index", index)
