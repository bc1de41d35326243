"""What a network ends in, done by the client: against the formulas written out, through both forms of JSON, and as one tail with what follows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cloakwork.models.client_steps import (
    Indicators,
    Labels,
    Named,
    OutputStep,
    Pick,
    Transform,
    last_step_from_record,
    last_step_to_record,
    run_output_steps,
    split_tail,
    tail_from_fields,
    tail_to_fields,
)
from cloakwork.models.client_steps.transforms import TRANSFORMS, best_class
from cloakwork.models.graph.last_steps import (
    LAST_STEPS,
    ArgMax,
    ArgMin,
    Functions,
    Hardmax,
    L2Normalization,
    LastStep,
    LogSoftmax,
    Softmax,
    TopK,
    TopKIndices,
)
from cloakwork.models.graph.steps import Step

RNG = np.random.default_rng(31)
VALUES: dict[str, NDArray[np.float64]] = {
    "random": RNG.normal(size=(40, 5)),
    "ties": RNG.integers(-1, 2, (60, 5)).astype(np.float64),
    "equal": np.zeros((3, 5)),
    "signed zeros": np.array([[0.0, -0.0, 0.0, -0.0, 0.0], [-0.0, 0.0, -1.0, -0.0, 0.0]]),
    "large": RNG.normal(size=(20, 5)) * 1e300,
    "far apart": RNG.normal(size=(40, 5)) * 400,
    "tiny": RNG.normal(size=(20, 5)) * 1e-300,
    "infinite": np.array([[np.inf, 0, 1, 2, 3], [-np.inf, 0, 1, 2, 3], [np.inf, np.inf, 0, 0, 0], [-np.inf] * 5]),
    "not numbers": np.array([[np.nan, 0, 1, 2, 3], [4, 0, 1, np.nan, np.nan], [np.nan] * 5]),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_networks_and_tables_have_one_softmax_and_one_arg_max(name: str) -> None:
    x, labels = VALUES[name], np.array(list("abcde"))
    np.testing.assert_array_equal(Softmax(-1)(x), Transform("softmax", 1.0, True)(x))
    np.testing.assert_array_equal(Softmax(1)(2.5 * x), TRANSFORMS["softmax"](x, 2.5, True))
    np.testing.assert_array_equal(ArgMax(1, False)(x), best_class(x))
    np.testing.assert_array_equal(labels[ArgMax(-1, False)(x)], Labels(labels)(x))


def test_integers_go_in_as_real_numbers() -> None:
    x = np.array([[3, 1, 2]])
    assert ArgMax(1, False)(x).tolist() == [0] and Softmax(1)(x).sum() == pytest.approx(1)
    assert TopK(1, 2)(x).dtype == np.float64 and Hardmax(1)(ArgMin(1)(x)).tolist() == [[1.0]]


# --- JSON ------------------------------------------------------------------------------------------------------------------------

FUNCTIONS = Functions(((Step("Tanh"),), (Step("Clip", (np.array([-1.0]), np.array([np.inf]))),)), np.array([0, 1, 1]))
STEPS: dict[str, tuple[LastStep, Any]] = {
    "Softmax": (Softmax(-1), ["Softmax", -1, True, 0, True]),
    "LogSoftmax": (LogSoftmax(1), ["LogSoftmax", 1, True, 0, True]),
    "Hardmax": (Hardmax(1), ["Hardmax", 1, True, 0, True]),
    "L2Normalization": (L2Normalization(-1), ["L2Normalization", -1, True, 0, True]),
    "ArgMax": (ArgMax(1, False), ["ArgMax", 1, False, 0, True]),
    "ArgMin": (ArgMin(1), ["ArgMin", 1, True, 0, True]),
    "TopK": (TopK(1, 2, False), ["TopK", 1, True, 2, False]),
    "TopKIndices": (TopKIndices(-1, 3), ["TopKIndices", -1, True, 3, True]),
    "Functions": (
        FUNCTIONS,
        {
            "functions": [[["Tanh", [], [1]]], [["Clip", [-1.0, float(np.finfo(np.float64).max)], [1]]]],
            "which": [0, 1, 1],
        },
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_both_forms_of_json(name: str) -> None:
    """As releases before wrote them, and back to a step that does the same."""
    step, fields = STEPS[name]
    record = fields if isinstance(fields, dict) else dict(zip(RECORD, fields, strict=True))
    assert last_step_to_record(step) == record and tail_to_fields((step,))["client_steps"] == [fields]
    x = RNG.normal(size=(7, 3))
    for found in (
        last_step_from_record(json.loads(json.dumps(record))),
        tail_from_fields(json.loads(json.dumps(tail_to_fields((step,)))))[0],
    ):
        assert type(found) is type(step) and last_step_to_record(found) == record  # type: ignore[arg-type]
        np.testing.assert_array_equal(found(x), step(x))
    assert step.title and step.fits((3,)) and {type(s) for s, _ in STEPS.values()} == set(LAST_STEPS)


RECORD = ("operator", "axis", "keepdims", "count", "largest")


def test_short_forms_of_earlier_releases() -> None:
    (step,) = tail_from_fields({"client_steps": [["ArgMax", 1, False]]})
    assert isinstance(step, ArgMax) and step.axis == 1 and not step.keepdims
    found = last_step_from_record({"operator": "Softmax", "axis": -1, "keepdims": True})
    assert isinstance(found, Softmax) and found.axis == -1


def test_steps_that_do_not_fit_an_output() -> None:
    assert Softmax(1).fits((4,)) and Softmax(-1).fits((4,)) and ArgMax(2).fits((4, 3))
    assert not any(
        step.fits((4,))
        for step in (Softmax(0), Softmax(-2), Softmax(2), ArgMax(-3), TopK(1, 5), TopK(1, 0), TopK(0, 1))
    )
    assert not FUNCTIONS.fits((4,)) and not FUNCTIONS.fits((3, 1))
    many = Functions(((Step("Tanh"),),) * 9, np.zeros(3, dtype=np.int64))
    assert not many.fits((3,))


# --- one tail --------------------------------------------------------------------------------------------------------------------

TAILS: dict[str, tuple[OutputStep, ...]] = {
    "a network": (Softmax(1),),
    "a network of tables": (Functions(((Step("Tanh"),),), np.zeros(5, dtype=np.int64)), Transform("softmax", 1.0, True), Labels(np.arange(5))),
    "softmax twice": (Softmax(1), Transform("softmax", 2.0, True), Labels(np.array(list("vwxyz")))),
    "several": (TopK(1, 3), LogSoftmax(1), Indicators(-1.0)),
    "a number of a label": (ArgMax(1), Pick(np.array(list("vwxyz")))),
    "nothing": (),
}  # fmt: skip


@pytest.mark.parametrize("name", TAILS)
def test_a_tail_runs_as_its_two_halves_did(name: str) -> None:
    steps, x = TAILS[name], VALUES["random"]
    last, others = split_tail(steps)
    assert (*last, *others) == steps
    first: Any = x
    for step in last:
        first = step(np.asarray(first, dtype=np.float64))
    for stage in ("scores", "probabilities", "labels"):
        expected = run_output_steps(others, first, stage)  # type: ignore[arg-type]
        np.testing.assert_array_equal(run_output_steps(steps, x, stage), expected)  # type: ignore[arg-type]
    fields = json.loads(json.dumps(tail_to_fields(steps)))
    assert [len(fields[key]) for key in ("client_steps", "output_steps")] == [len(last), len(others)]
    np.testing.assert_array_equal(run_output_steps(tail_from_fields(fields), x), run_output_steps(steps, x))


def test_last_steps_come_first() -> None:
    with pytest.raises(ValueError, match="before all others"):
        tail_to_fields((Labels(np.arange(5)), Softmax(1)))


def test_outputs_by_name_end_in_steps_of_their_own() -> None:
    named = Named(("p", "q"), ((3,), (2,)), ((Softmax(1),), ()), np.array([0, 1, 2, 2, 3]))
    x = VALUES["random"][:, :4]
    answers = run_output_steps((named,), x)
    np.testing.assert_array_equal(answers["p"], Softmax(1)(x[:, :3]))
    np.testing.assert_array_equal(answers["q"], x[:, 2:])
    (again,) = tail_from_fields(json.loads(json.dumps(tail_to_fields((named,)))))
    np.testing.assert_array_equal(run_output_steps((again,), x)["p"], answers["p"])
