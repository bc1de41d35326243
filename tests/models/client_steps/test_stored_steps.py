"""Steps as tests/vectors/steps stores them: the same numbers, answers, warnings and refusals. web/test/steps.test.mjs reads the same files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import FheError
from cloakwork.models.client_steps import FUNCTIONS, TOKENS
from cloakwork.models.client_steps.kinds import ANSWER_STEPS, INPUT_STEPS
from cloakwork.models.client_steps.transforms import TRANSFORMS
from cloakwork.models.errors import ShapeError
from cloakwork.models.graph.functions import FUNCTIONS as OF_A_GRAPH
from cloakwork.models.graph.last_steps import _NEVER, LAST_STEPS
from cloakwork.models.program.client_specification import ClientSpecification

FOLDER = Path(__file__).parents[2] / "vectors" / "steps"


def marked(fields: dict[str, Any]) -> Any:
    """What JSON has no form for."""
    if "float" in fields:
        return float(fields["float"])
    return tuple(fields["tuple"]) if "tuple" in fields else fields


def cases(kind: str) -> list[Any]:
    """Those that are asked about samples, about decrypted phases, or about nothing but their specification."""
    params = []
    for name in ("drawn", "kept"):
        stored = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"), object_hook=marked)
        for case in stored["cases"]:
            if kind == next((key for key in ("samples", "phases") if key in case), "error"):
                text = json.dumps(stored["common"] | case["client"])
                params.append(pytest.param(case | {"json": text}, id=case["name"]))
    return params


@pytest.fixture(scope="module")
def key() -> ClientKey:
    return ClientKey.generate("toy")


def check(case: dict[str, Any], answer: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert np.asarray(answer).tolist() == expected
    elif "named" in expected:
        assert list(answer) == list(expected["named"])
        for name, each in expected["named"].items():
            check(case, answer[name], each)
    else:
        answer, numbers = np.asarray(answer), np.array(expected["data"], dtype=np.float64).reshape(expected["shape"])
        assert answer.shape == numbers.shape
        if "within" not in case or answer.dtype.kind == "i":
            np.testing.assert_array_equal(answer, numbers)
        else:
            size = np.abs(np.where(np.isfinite(numbers), numbers, 0))
            near = case["within"] * (size + size.max(axis=0, initial=0))
            np.testing.assert_array_equal(np.isfinite(answer), np.isfinite(numbers))
            assert ((answer == numbers) | (np.abs(answer - numbers) <= near) | np.isnan(numbers)).all(), (
                answer,
                numbers,
            )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", cases("samples"))
def test_inputs(case: dict[str, Any], key: ClientKey) -> None:
    client, x = ClientSpecification.from_json(case["json"]), case["samples"]
    if "error" in case:
        with pytest.raises(ShapeError) as refused:
            client.inputs(x)
        assert [type(refused.value).__name__, str(refused.value)] == case["error"]
        return
    with warnings.catch_warnings(record=True) as lines:
        warnings.simplefilter("always")
        numbers = client.inputs(x)
    check(case, numbers, {"shape": case["shape"], "data": case["numbers"]})
    assert [str(line.message) for line in lines] == case.get("warnings", [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "refusal" in case:
            with pytest.raises(ShapeError) as refused:
                client.inputs(x, refuse=True)
            assert str(refused.value) == case["refusal"]
        else:
            np.testing.assert_array_equal(client.inputs(x, refuse=True), numbers)
        # A request says how many samples there are, and nothing of their values.
        length = len(client.encrypt_phases(key, np.zeros((len(numbers), numbers[0].size))).to_bytes())
        assert len(client.encrypt(key, x).to_bytes()) == length
    assert ClientSpecification.from_json(client.to_json()).to_json() == client.to_json()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", cases("phases"))
def test_answers(case: dict[str, Any]) -> None:
    client, phases = ClientSpecification.from_json(case["json"]), np.array(case["phases"], dtype=np.float64)
    expected: Any = None
    for stage in ("scores", "probabilities", "labels"):
        expected = case.get(stage, expected)
        if isinstance(expected, dict) and "error" in expected:
            with pytest.raises(FheError) as refused:
                client.output(phases, stage)
            assert [type(refused.value).__name__, str(refused.value)] == expected["error"]
        else:
            check(case, client.output(phases, stage), expected)
    assert ClientSpecification.from_json(client.to_json()).to_json() == client.to_json()


@pytest.mark.parametrize("case", cases("error"))
def test_specifications_that_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(FheError) as refused:
        ClientSpecification.from_json(case["json"])
    assert [type(refused.value).__name__, str(refused.value)] == case["error"]


def test_every_kind_is_stored() -> None:
    texts = "".join((FOLDER / f"{name}.json").read_text(encoding="utf-8") for name in ("drawn", "kept"))
    kinds = {*INPUT_STEPS, *ANSWER_STEPS, *FUNCTIONS, *TRANSFORMS, *TOKENS, *OF_A_GRAPH} - _NEVER
    kinds |= {kind.__name__ for kind in LAST_STEPS} - {"Functions"}
    assert [kind for kind in sorted(kinds) if json.dumps(kind) not in texts] == []
