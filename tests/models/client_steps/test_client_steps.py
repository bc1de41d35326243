"""The client's steps before encryption and after decryption: what they compute, and that JSON keeps them."""

import json

import numpy as np
import pytest

from cloakwork.models.client_steps import (
    Bins,
    Categories,
    Columns,
    Combine,
    Compare,
    Digits,
    Divide,
    Impute,
    Integers,
    Labels,
    Normalise,
    OneHot,
    Quantise,
    Round,
    Saturate,
    Select,
    Squeeze,
    Standardise,
    Transform,
    final_steps,
    input_steps_from_fields,
    output_steps_from_fields,
    run_input_steps,
    run_output_steps,
    steps_to_fields,
)
from cloakwork.models.client_steps.range_report import RangeReport
from cloakwork.models.errors import CalibratedRangeWarning, ShapeError

INPUT_STEPS = (
    Columns(2, ("a", "b"), missing=True),
    Impute(np.array([0.1, 2.0])),
    Standardise(np.array([1.0, 0.5]), np.array([1 / 3, 2.0])),
    Divide(np.array([0.0, 0.1]), np.array([3.0, -1.0])),
    Saturate(np.array([-9.0, -9.0]), np.array([9.0, 9.0])),
    Normalise("l2"),
    Select(np.array([1, 0])),
    OneHot(np.array([0, 0])),
    Round(),
    Compare(np.array([0, 1, 1]), np.array([0.5, 0.1, 1.0]), np.array([0, 1, 0])),
)
OUTPUT_STEPS = (
    Integers(),
    Digits(np.array([[3, 4]])),
    Combine(np.array([[0.5], [1.0]]), np.array([0.25])),
    Transform("sigmoid", 1.0, True),
    Labels(np.array(["no", "yes"])),
)


def again(steps, read):
    return read(json.loads(json.dumps(steps_to_fields(steps))))


def test_input_steps_survive_json():
    x = np.random.default_rng(0).normal(size=(50, 2))
    x[0, 0] = np.nan
    np.testing.assert_array_equal(
        run_input_steps(again(INPUT_STEPS, input_steps_from_fields), x), run_input_steps(INPUT_STEPS, x)
    )


def test_output_steps_survive_json_and_stop_at_a_stage():
    steps, values = again(OUTPUT_STEPS, output_steps_from_fields), np.array([[7.2], [0.4]])  # 7 = 1 + 3 * 2
    np.testing.assert_array_equal(run_output_steps(steps, values, "scores"), [[2.75], [0.25]])
    np.testing.assert_allclose(run_output_steps(steps, values, "probabilities").sum(axis=1), 1)
    assert run_output_steps(steps, values).tolist() == ["yes", "yes"]


def test_final_steps_of_regression_drop_the_single_column():
    steps = final_steps("exp", 1.0, None)
    assert isinstance(steps[1], Squeeze)
    np.testing.assert_allclose(run_output_steps(steps, np.array([[0.0], [1.0]])), [1, np.e])


def test_comparisons_with_ties_and_missing_values():
    x = np.array([[0.5], [np.nan], [0.6]])
    edges = np.array([0, 0]), np.array([0.5, 0.5]), np.array([1, 0])
    assert Compare(*edges)(x).tolist() == [[1, 1], [1, 0], [0, 0]]
    assert Compare(*edges, strict=True)(x).tolist() == [[0, 0], [1, 0], [0, 0]]


def test_bins_count_failing_comparisons_in_digits():
    edges = np.arange(20.0)
    for strict in (False, True):
        step = Bins(np.array([0, 0]), np.array([0, 20, 40]), np.tile(edges, 2), np.array([0, 1]), 8, strict)
        x = np.array([[-1.0], [0.0], [7.5], [19.0], [30.0]])
        low, high = step(x).T
        holds = x < edges if strict else x <= edges
        np.testing.assert_array_equal(low + 8 * high, (~holds).sum(axis=1))


def test_categories_become_numbers_and_columns():
    step = Categories(2, np.array([0]), (("red", "green"),))
    table = step([["green", 1.5], ["red", 2.0]])
    np.testing.assert_array_equal(OneHot(np.array([2, 0]))(table), [[0, 1, 1.5], [1, 0, 2.0]])
    with pytest.raises(ShapeError, match=r"category that the training data had not \(row 1\)"):
        step([["red", 0], ["blue", 0]])
    lenient = again((Categories(1, np.array([0]), (("red",),), "ignore"),), input_steps_from_fields)
    assert OneHot(np.array([1]))(run_input_steps(lenient, [["blue"], ["red"]])).tolist() == [[0], [1]]


def test_categories_have_numbers_of_their_own():
    """Several share one, a missing value is a category or stays missing, and each column has its rule for unseen ones."""
    step = Categories(
        2, np.array([0, 1]), (("a", "b", None), (1, 2)), missing=True, numbers=((4, 4, 7.5), (0, None)), others=(None, "refuse")
    )  # fmt: skip
    (travelled,) = again((step,), input_steps_from_fields)
    rows = [["a", 1], ["b", 2], [None, 1], ["", 1], ["c", True]]
    for each in (step, travelled):
        np.testing.assert_array_equal(each(rows), [[4, 0], [4, np.nan], [7.5, 0], [7.5, 0], [np.nan, 0]])
        with pytest.raises(ShapeError, match=r"'feature 1' has a category .*\(row 0\); expected one of \[1, 2\]"):
            each([["a", None]])
    old = {"step": "Categories", "count": 1, "columns": [0], "known": [["a"]], "unseen": "ignore", "names": None, "missing": False}  # fmt: skip
    assert run_input_steps(input_steps_from_fields([old]), [["b"], ["a"]]).tolist() == [[-1], [0]]


def test_values_beyond_the_range_saturate_and_are_counted_once():
    """Over several steps and columns: one warning, which names columns as the user does, and no value."""
    steps = (
        Columns(3, ("age", "income", "height")),
        Select(np.array([2, 0])),
        Saturate(np.zeros(2), np.ones(2)),
        Quantise(0.25, 0.0, 0.5, calibrated=True),
    )
    report = RangeReport()
    result = run_input_steps(steps, np.array([[5.0, 7.0, 0.5], [0.6, -9.0, 0.5], [0.6, 0.0, 0.7]]), report)
    assert result.tolist() == [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]
    with pytest.warns(CalibratedRangeWarning) as caught:
        report.warn()
    assert len(caught) == 1 and caught[0].filename == __file__
    assert str(caught[0].message) == (
        "input: 2 of 3 samples have values beyond the calibrated range (3 values in columns 'age', 'height'); they count as its end"
    )


def test_a_quantiser_of_the_models_own_saturates_without_a_word():
    report = RangeReport()
    assert run_input_steps((Quantise(0.5, -1.0, 1.0),), np.array([[9.0, -9.0]]), report).tolist() == [[1.0, -1.0]]
    report.warn()


CODES = {
    "step": "Categories",
    "count": 1,
    "columns": [0],
    "known": [["a"]],
    "unseen": "refuse",
    "names": None,
    "missing": False,
    "numbers": [[0]],
    "others": ["refuse"],
}


@pytest.mark.parametrize(
    "fields",
    [
        [CODES | {"count": 0}],
        [{"step": "Exec", "code": "1"}],
        [{"step": "Round"}],  # the first step checks the columns
        [{"step": "Columns", "count": 2}],
        [{"step": "Columns", "count": "2", "names": None, "missing": False}],
        [{"step": "Columns", "count": 1, "names": None, "missing": False}, {"step": "Impute", "fill": ["a"]}],
        [CODES | {"known": [[["a"]]]}],
        [CODES | {"numbers": [[0, 1]]}],
        [CODES | {"numbers": [["a"]]}],
        [CODES | {"numbers": [[10**400]]}],
        [CODES | {"numbers": [[True]]}],
        [CODES | {"others": [None, 1]}],
        [CODES | {"others": ["ignore"]}],
        [
            {"step": "Columns", "count": 1, "names": None, "missing": False},
            {"step": "Divide", "offset": [0], "divisor": [0]},
        ],
        "steps",
    ],
)
def test_made_up_steps_are_refused(fields):
    with pytest.raises((ValueError, KeyError, TypeError)):
        input_steps_from_fields(fields)
