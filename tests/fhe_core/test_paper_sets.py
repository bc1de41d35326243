"""The founding papers' parameters: their table regenerated, refused everywhere but in measurements, and working as the noise model says."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cloakwork.fhe_core import _engine, noise
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError, SerializationError
from cloakwork.fhe_core.parameters import (
    is_paper_set,
    measuring_papers,
    offered_sets,
    paper_set,
    paper_sets,
    parameter_set,
    parameter_sets,
)
from cloakwork.fhe_core.server import Session

TOOLS = Path(__file__).resolve().parents[2] / "fhe_core" / "tools"
NAMES = _engine.paper_set_names()


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("paper_sets", TOOLS / "paper_sets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_tool_writes_the_header(tool: ModuleType) -> None:
    assert tool.header() == tool.HEADER.read_text(), "run fhe_core/tools/paper_sets.py --write"


def test_every_row_has_a_stored_estimate(tool: ModuleType) -> None:
    for row in tool.PAPER_ROWS:
        assert not math.isnan(tool.search.row_security(row)), row.name


def test_failure_probabilities_are_those_of_the_noise_model() -> None:
    for params in paper_sets():
        assert params.p_fail_log2 == pytest.approx(noise.lookup_p_fail_log2(params), abs=0.11)


@pytest.mark.parametrize("name", NAMES)
def test_everything_but_a_measurement_refuses_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOAKWORK_ALLOW_TOY", "1")
    assert is_paper_set(paper_set(name))
    for refused in (parameter_set, ClientKey.generate):
        with pytest.raises(ParameterError, match="measured by 'cloakwork bench methods' alone"):
            refused(name)
    with pytest.raises(ParameterError, match="'cloakwork bench methods' alone makes keys of it"):
        _engine.SecretKey.generate(paper_set(name))
    listed = [params.name for params in (*parameter_sets(), *offered_sets(), *offered_sets(True))]
    assert name not in listed and name not in _engine.parameter_set_names()


def test_shipped_sets_are_no_papers_sets() -> None:
    with pytest.raises(ParameterError, match="expected one of papers/"):
        paper_set("gate_64")
    assert not any(map(is_paper_set, parameter_sets()))


def test_they_have_no_files() -> None:
    with measuring_papers():
        key = ClientKey.generate(paper_set("papers/velofhe_gd1"))
    bits = key.encrypt(np.array([True]), encoding=Encoding.BOOLEAN)
    for write in (bits.to_bytes, key.evaluation_keys().to_bytes):
        with pytest.raises(ParameterError, match="has no files"):
            write()


def test_a_file_that_names_one_is_refused() -> None:
    key = ClientKey.generate("toy_gate")
    data = key.encrypt(np.array([True]), encoding=Encoding.BOOLEAN).to_bytes()
    with pytest.raises(SerializationError, match="parameter set"):
        type(key.encrypt([True], encoding=Encoding.BOOLEAN)).from_bytes(
            data.replace(b"toy_gate".ljust(20, b"\0"), b"papers/velofhe_gd1".ljust(20, b"\0"))
        )


@pytest.mark.parametrize("name", ["papers/velofhe_gd1", "papers/velofhe_mr1"])
def test_gates(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOAKWORK_ALLOW_TOY", raising=False)
    with measuring_papers():
        key = ClientKey.generate(paper_set(name))
    session = Session(key.evaluation_keys())
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    encrypted = [key.encrypt(bits, encoding=Encoding.BOOLEAN) for bits in (x, y)]
    assert key.decrypt(session.gate("NAND", *encrypted)).tolist() == [True, True, True, False]
