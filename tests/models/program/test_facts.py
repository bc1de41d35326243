"""What a program says of its model: through plain fields and files, and fields of strangers and of other releases."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx_models import mlp

import cloakwork as cw
from cloakwork.fhe_core.errors import SerializationError
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes
from cloakwork.models.program.facts import (
    CheckFacts,
    ExactFacts,
    Facts,
    GridFacts,
    LinearFacts,
    TreeFacts,
    VerdictFacts,
)

TREES = TreeFacts(
    trees=3,
    depth=4,
    comparisons=9,
    comparisons_by="client",
    comparison_bits=7,
    features_compared=5,
    bootstraps_one_per_node=20,
    leaf_bits=8,
    leaf_rounding_error=0.01,
    outputs=2,
    p_fail_log2=-120.5,
    lookup_p_fail_log2=-130,
    output_p_fail_log2=-128.0,
    bootstraps_of_flags=0,
    bootstraps_of_leaves=6,
)
LINEAR = LinearFacts(features=4, outputs=1, feature_bits=12, weight_bits=11, p_fail_log2=-128.2)
EXACT = ExactFacts(-64.0, {"layer0": 17, "layer1": 5}, ("layer0",), ())
CHECK = CheckFacts("agreement", 0.98, 200, {"layer0": 0.1, "a": 0}, 0.0, 0.02, 1)
SEVERAL = replace(
    CHECK,
    outputs={"y": VerdictFacts("closeness", 0.98, 0.975), "a": VerdictFacts("agreement", 1.0, 0.99)},
    at_least=0.975,
    unseen=100,
)
EARLIER = replace(CHECK, outputs={"y": VerdictFacts("determination", 0.9), "a": VerdictFacts("agreement", 1.0)})
KNOWN: dict[str, Facts] = {
    "nothing": Facts(),
    "trees": Facts(trees=TREES, tell="labels"),
    "trees of an earlier release": Facts(trees=replace(TREES, bootstraps_of_flags=None, bootstraps_of_leaves=None)),
    "bins of an earlier release": Facts(trees=TREES, estimator="IsolationForest", offset=-0.5, others={"bin_bits": 3}),
    "grid": Facts(trees=TREES, grid=GridFacts(6, 100, 100, {"uniform": 2}, "agreement", 1.0, 50)),
    "positions": Facts(
        trees=replace(TREES, comparisons_by="server"), grid=GridFacts(6, 100, 4, {"uniform": 2}, digit_bits=3)
    ),
    "linear": Facts(linear=LINEAR, estimator="LinearRegression"),
    "exact": Facts(exact=EXACT, check=CHECK),
    "network": Facts(check=SEVERAL),
    "network of an earlier release": Facts(check=EARLIER),
    "other releases": Facts(others={"kind": "forest", "of": {"a": [1, None]}}, estimator="New"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_plain_fields_and_back(name: str) -> None:
    fields = KNOWN[name].to_fields()
    text = json.dumps(fields)
    assert Facts.from_fields(json.loads(text)) == KNOWN[name]
    assert json.dumps(Facts.from_fields(json.loads(text)).to_fields()) == text  # 1 stays an integer
    assert list(fields) == sorted(fields)


def test_names_of_files() -> None:
    """They are the report's and the service's too."""
    assert KNOWN["exact"].to_fields().keys() == {
        "failure_log2_limit",
        "values",
        "rounded",
        "calibrated_ranges",
        "check",
    }
    assert Facts(linear=LINEAR).to_fields() == {
        "kind": "linear", "features": 4, "outputs": 1, "feature_bits": 12, "weight_bits": 11, "p_fail_log2": -128.2,
    }  # fmt: skip
    trees = KNOWN["trees"].to_fields()
    assert trees["kind"] == "trees" and trees["tell"] == "labels"
    assert {"p_fail_log2", "lookup_p_fail_log2", "output_p_fail_log2"} <= trees.keys()
    assert "bootstraps_of_flags" not in KNOWN["trees of an earlier release"].to_fields()
    outputs = KNOWN["network"].to_fields()["check"]["outputs"]
    assert outputs["y"] == {"measure": "closeness", "value": 0.98, "at_least": 0.975}
    earlier = KNOWN["network of an earlier release"].to_fields()["check"]
    assert earlier["outputs"]["y"] == {"measure": "determination", "value": 0.9} and "at_least" not in earlier
    assert "digit_bits" not in KNOWN["grid"].to_fields()["grid"]
    assert KNOWN["positions"].to_fields()["grid"]["digit_bits"] == 3
    assert "outputs" not in KNOWN["exact"].to_fields()["check"]


@pytest.fixture(scope="module")
def program() -> Program:
    rng = np.random.default_rng(5)
    return cw.compile(mlp(rng, [4, 3, 2]), rng.uniform(-1, 1, (60, 4)), accuracy=0).program


@pytest.mark.parametrize("name", KNOWN)
def test_through_a_file(program: Program, name: str) -> None:
    data = program_to_bytes(replace(program, facts=KNOWN[name]))
    loaded = program_from_bytes(data)
    assert loaded.facts == KNOWN[name]
    assert program_to_bytes(replace(loaded, facts=loaded.facts)) == data  # written anew


def with_facts(data: bytes, facts: Any) -> bytes:
    length = int.from_bytes(data[8:16], "little")
    header = {**json.loads(data[16 : 16 + length]), "facts": facts}
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    body = data[:8] + len(text).to_bytes(8, "little") + text + data[16 + length : -32]
    return body + hashlib.sha256(body).digest()


_TREES, _LINEAR, _EXACT, _CHECK = (
    facts.to_fields() for facts in (Facts(trees=TREES), Facts(linear=LINEAR), Facts(exact=EXACT), Facts(check=SEVERAL))
)
_MAY_BE_MISSING = ("at_least", "outputs", "unseen")
HOSTILE: list[Any] = [
    7, [1], "trees",
    *({key: value for key, value in _TREES.items() if key != name} for name in ("trees", "outputs", "p_fail_log2")),
    *({key: value for key, value in _LINEAR.items() if key != name} for name in ("outputs", "p_fail_log2")),
    *({key: value for key, value in _EXACT.items() if key != name} for name in _EXACT),
    *({**_TREES, **changed} for changed in (
        {"outputs": 0}, {"outputs": True}, {"depth": "4"}, {"comparisons_by": 1}, {"leaf_rounding_error": None},
        {"leaf_rounding_error": float("nan")}, {"p_fail_log2": float("inf")}, {"tell": "yes"}, {"tell": 1}, {"encrypted_argmax": 1},
        {"bootstraps_of_flags": []}, {"grid": {**KNOWN["positions"].to_fields()["grid"], "digit_bits": "3"}},
    )),
    *({**_LINEAR, **changed} for changed in ({"outputs": -1}, {"p_fail_log2": "-128"}, {"p_fail_log2": True}, {"features": None})),
    *({**_EXACT, **changed} for changed in (
        {"values": [1]}, {"values": {"layer0": "17"}}, {"rounded": "layer0"}, {"rounded": [7]}, {"calibrated_ranges": [None]},
        {"calibrated_ranges": {}}, {"failure_log2_limit": None},
    )),
    {"estimator": 7}, {"estimator": None}, {"offset": "0"}, {"offset": float("nan")}, {"offset": True},
    {"check": None}, {"check": []}, {"check": {}},
    *({"check": {key: value for key, value in _CHECK["check"].items() if key != name}} for name in _CHECK["check"] if name not in _MAY_BE_MISSING),
    *({"check": {**_CHECK["check"], **changed}} for changed in (
        {"measure": "luck"}, {"measure": []}, {"value": "1"}, {"value": float("inf")}, {"samples": 2.5}, {"samples": True}, {"layers": [0.1]},
        {"layers": {"a": None}}, {"asked": False}, {"outputs": [1]}, {"outputs": {"y": 1}}, {"outputs": {"y": {"measure": "agreement"}}},
        {"at_least": "1"}, {"unseen": 1.5},
        {"outputs": {"y": {"measure": "luck", "value": 1}}}, {"outputs": {"y": {"measure": "agreement", "value": None}}},
    )),
]  # fmt: skip


@pytest.mark.parametrize("facts", HOSTILE, ids=range(len(HOSTILE)))
def test_made_up_facts_are_refused(program: Program, facts: Any) -> None:
    with pytest.raises(SerializationError, match="not a valid program"):
        program_from_bytes(with_facts(program_to_bytes(program), facts))


def test_files_without_facts_and_with_unknown_ones_are_read(program: Program) -> None:
    data = program_to_bytes(program)
    assert program_from_bytes(with_facts(data, {})).facts == Facts()
    later = {"kind": "clouds", "p_rain_log2": -3, "check": {**_CHECK["check"], "place": "here"}}
    found = program_from_bytes(with_facts(data, later)).facts
    assert found.others == {"kind": "clouds", "p_rain_log2": -3} and found.check == SEVERAL


@pytest.mark.parametrize(("flag", "tell"), [(True, "labels"), (False, "scores")])
def test_files_that_say_by_a_flag_what_clients_decrypt_are_read(program: Program, flag: bool, tell: str) -> None:
    """As release 0.2 wrote them; the file keeps its bytes, so the program keeps its digest."""
    data = with_facts(program_to_bytes(program), {"encrypted_argmax": flag})
    found = program_from_bytes(data)
    assert found.facts == Facts(tell=tell) and program_to_bytes(found) == data
    assert "encrypted_argmax" not in found.facts.to_fields()
