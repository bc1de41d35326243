"""The public grid: chosen from data alone, and thresholds moved to it."""

import itertools

import numpy as np
import pytest
from cases import case

from cloakwork.models.client_steps import Compare, Thermometer
from cloakwork.models.errors import CompileError
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from cloakwork.models.trees.on_grid import snapped
from cloakwork.models.trees.public_grid import public_grid

RNG = np.random.default_rng(0)


def grid_of(values, kind="auto", bits=6, span=None, missing=0):
    column = np.concatenate([np.asarray(values, dtype=float), np.full(missing, np.nan)])
    return public_grid(column[:, None], ("f",), kind, None if span is None else {"f": span}, bits)[0]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.arange(20), "integers"),
        (RNG.integers(0, 2, 50), "integers"),
        (RNG.integers(10, 69, 200) / 10, "integers"),
        ((RNG.integers(10, 69, 200) / 10).astype(np.float32), "integers"),
        ((RNG.integers(10, 69, 400) / 10 - 3.7) / 1.83, "integers"),  # scaled to mean 0
        (RNG.integers(0, 60, 200) * 500, "integers"),
        (np.full(9, 3.0), "integers"),
        (RNG.choice([0.0, 0.13, 7.7], 100), "categories"),
        (RNG.normal(size=300), "uniform"),
        (RNG.integers(0, 10_000, 300), "uniform"),
        (np.exp(RNG.normal(size=300) * 5), "uniform"),
        ([], "uniform"),
    ],
)
def test_a_grid_has_the_resolution_of_the_data_where_there_is_room(values, kind):
    grid = grid_of(values, missing=3)
    assert grid.kind == kind and 0 < grid.count <= 63 and len(grid.points) == grid.count
    assert (np.diff(grid.points) > 0).all() and np.isfinite(grid.points).all()
    distinct = np.unique(np.asarray(values, dtype=float))
    assert not np.isin(grid.points, distinct).any() or kind == "uniform"
    if kind != "uniform":
        between = np.searchsorted(grid.points, distinct)
        assert len(np.unique(between)) == len(distinct), "a point between any two values"


def test_ends_of_a_range_are_no_sample_s():
    values = RNG.normal(size=500) * 37 + 1000
    grid = grid_of(values)
    assert grid.points[0] < values.min() and grid.points[-1] > values.max()
    assert grid_of(values + RNG.uniform(0, 1e-4, 500)).points.tolist() == grid.points.tolist()
    assert grid_of(values, span=(0, 2000)).points[[0, -1]].tolist() == [0, 2000]


def test_what_was_asked_for_is_taken():
    values = RNG.normal(size=1000)
    assert grid_of(values, "quantiles").kind == "quantiles"
    assert np.abs(np.diff(np.searchsorted(np.sort(values), grid_of(values, "quantiles").points)) - 1000 / 63).max() <= 1
    assert grid_of(values, "quantiles", bits=1).count == grid_of(values, bits=1).count == 1
    assert grid_of(np.arange(256), bits=8).count == 255
    assert grid_of(np.arange(256), bits=8, span=(0, 255)).kind == "integers"
    assert public_grid(None, ("a", "b"), {"a": [3, 1, 2]}, {1: (0, 1)}, 4)[0].points.tolist() == [1, 2, 3]
    assert public_grid(values[:, None], ("f",), {0: "categories"}, None, 16)[0].count == 999


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, ("a", "b"), "auto", {"a": (0, 1)}, 6), "expected samples, or ranges, .* of b;"),
        ((None, ("a",), "auto", {"c": (0, 1)}, 6), "ranges: there is no feature 'c'; expected a"),
        (
            (None, ("a",), "auto", {3: (0, 1)}, 6),
            "ranges: expected names of features, or numbers from 0 to 0, got 3",
        ),
        ((None, ("a",), "auto", {"a": (1, 1)}, 6), "expected two ascending finite numbers for 'a', got 1 and 1"),
        ((None, ("a",), "auto", {"a": (0, np.inf)}, 6), "expected two ascending finite numbers"),
        ((None, ("a",), {"a": [np.nan]}, None, 6), "expected 1 to 65535 finite points for 'a'"),
        ((None, ("a",), "auto", {"a": (0, 1)}, 17), "grid_bits: expected 1 to 16, got 17"),
        ((np.ones((3, 1)), ("a",), "gold", None, 6), "grid: expected auto, integers, .* for 'a', got 'gold'"),
        ((np.ones((3, 1)), ("a",), "quantiles", None, 6), "at least two values of 'a'"),
        ((RNG.normal(size=(99, 1)), ("a",), "integers", None, 6), "values of 'a' have no common step"),
        ((RNG.normal(size=(99, 1)), ("a",), "categories", None, 6), "'a' has 99 values, the grid 63 points"),
    ],
)
def test_wishes_that_cannot_be_fulfilled(arguments, message):
    with pytest.raises(CompileError, match=message):
        public_grid(*arguments)


FAR = (
    [5e-324, 0], [1e-320, 3e-320, 7e-320], [1e300, 1e300 + 1e284], [1.0, 1 + 2**-52], [1e18, 1e18 + 1024], [1e-300, 1e300], [-1e308, 0, 5e307],
)  # fmt: skip


@pytest.mark.parametrize("kind", ["auto", "uniform", "quantiles", "categories"])
def test_numbers_at_the_ends_of_what_there_is(kind):
    for values, bits in itertools.product(FAR, (2, 6, 16)):
        with case(values, bits):
            grid = grid_of(values * 8, kind, bits)
            assert (
                len(grid.points) == grid.count and (np.diff(grid.points) >= 0).all() and np.isfinite(grid.points).all()
            )
            assert (grid.step > 0) == (len(grid.explicit) == 0)


def test_a_range_that_overflows_is_refused():
    with pytest.raises(CompileError, match="span more than a uniform grid can"):
        grid_of([-1.7e308, 1e308, 5e307])


def stumps(thresholds, strict=False, single=False):
    made = [
        Tree.of_nodes([0, 0, 0], [threshold, 0, 0], [1, -1, -1], [2, -1, -1], [[0], [0], [1]])
        for threshold in thresholds
    ]
    return TreeEnsemble(tuple(made), 1, strict=strict, single=single)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("single", [False, True])
def test_where_the_grid_is_as_fine_as_the_data_nothing_changes(strict, single):
    """Values of the lattice that calibration did not show included."""
    x = np.concatenate([[3, 40], np.random.default_rng(1).integers(3, 41, 58)])[:, None] / 10
    thresholds = np.concatenate([x[:30, 0], RNG.uniform(0, 5, 50), [-1e30, 1e30, np.inf]])
    if single:
        thresholds = thresholds.astype(np.float32).astype(float)
    ensemble = stumps(thresholds, strict, single)
    found = snapped(ensemble, public_grid(x, ("f",), "auto", None, 6), x)
    assert found.moved.tolist() == [0]
    every = np.arange(3, 41)[:, None] / 10
    assert len(np.unique(x)) < len(every)
    np.testing.assert_array_equal(
        found.ensemble.tree_values(every),
        ensemble.tree_values(every.astype(np.float32).astype(float) if single else every),
    )


def test_a_threshold_moves_past_the_fewest_samples():
    """0.2 is nearer to -0.1, but nine samples in ten are 0."""
    x = np.concatenate([np.zeros(90), RNG.uniform(0.7, 1, 10)])[:, None]
    grids = public_grid(None, ("f",), {"f": [-0.1, 0.6, 1.5]}, None, 6)
    thresholds = [0.2, -0.2, 1.1, 0.9]
    found = snapped(stumps(thresholds), grids, x)
    between = int(((x > 0.6) & (x <= 0.9)).sum())
    nearest = 0.6 if between <= 10 - between else 1.5
    assert [tree.threshold[0] for tree in found.ensemble.trees] == [0.6, -0.1, 1.5, nearest]
    assert found.moved.tolist() == [min(between, 10 - between)]
    blind = snapped(stumps(thresholds), grids, None)
    assert [tree.threshold[0] for tree in blind.ensemble.trees] == [-0.1, -0.1, 1.5, 0.6]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("count", "digit"), [(5, 0), (255, 0), (256, 5), (700, 5), (1023, 5), (1023, 8), (65535, 8)])
def test_thermometer_bits_are_comparisons_with_every_point(strict, count, digit):
    number = np.array
    step = Thermometer(number([1, 0]), number([count, 3]), number([0.5, 0.0]), number([1.0, 0.0]), number([-1.0, 0, 2]), number([digit, 0]),
                       True, strict)  # fmt: skip
    x = np.stack([RNG.integers(-2, 3, 40), RNG.integers(-5, 2 * count + 5, 40) / 2], axis=1).astype(float)
    x[:4, 0], x[2:6, 1] = np.nan, np.nan
    bits = step(x)
    assert bits.shape[1] == step.widths.sum() and set(np.unique(bits)) <= {0.0, 1.0}
    for feature, column, points in ((0, 1, 0.5 + np.arange(count)), (1, 0, number([-1.0, 0, 2]))):
        same = Compare(np.full(len(points), column), points, np.zeros(len(points), dtype=int), strict)(x)
        own = bits[:, step.starts[feature] : step.starts[feature] + step.widths[feature]]
        np.testing.assert_array_equal(own[:, -1], np.isnan(x[:, column]))
        if step.digit[feature]:
            high, low = own[:, : count >> digit], own[:, count >> digit : -1]
            failing = (1 - high).sum(axis=1) * 2**digit + (1 - low).sum(axis=1)
            np.testing.assert_array_equal(failing, (1 - same).sum(axis=1))
        else:
            np.testing.assert_array_equal(own[:, :-1], same)
