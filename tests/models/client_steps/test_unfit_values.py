"""Whether a request goes out, and how long it is, does not depend on what is encrypted: a hostile server chose the steps."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawn_steps import STEPS, drawn_samples, drawn_steps, with_steps

from cloakwork.app.client.remote_models import RemoteProgram
from cloakwork.fhe_core.client import ClientKey
from cloakwork.models.client_steps import (
    Append,
    Categories,
    Columns,
    OneHot,
    Power,
    Splines,
    Standardise,
    Tensors,
    Texts,
    run_input_steps,
)
from cloakwork.models.client_steps.unfit import Refusing, Replaced
from cloakwork.models.errors import CompileError, ReplacedValuesWarning, ShapeError
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.program.client_specification import ClientSpecification

TOY = "toy"
DRAWS = 150


@pytest.fixture(scope="module")
def key() -> ClientKey:
    return ClientKey.generate(TOY)


@pytest.fixture(scope="module")
def client() -> ClientSpecification:
    """Without steps: three numbers in, one out."""
    return ClientSpecification(bytes(32), TOY, (3,), (-1.0, 1.0), 0.25, np.ones(1), np.zeros(1))


def taken(client: ClientSpecification, x: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return client.inputs(x)


def test_every_drawn_request_goes_out_in_the_same_bytes(client: ClientSpecification, key: ClientKey) -> None:
    rng = np.random.default_rng(38)
    refused = 0
    for _ in range(DRAWS):
        one = with_steps(client, drawn_steps(rng))
        sizes = set()
        for texts in (False, True):
            x = drawn_samples(rng, 4, texts)
            numbers = taken(one, x)
            assert numbers.shape == (4, *one.input_shape)
            assert np.isfinite(numbers).all() and np.abs(numbers).max() <= 4
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sizes.add(len(one.encrypt(key, x).to_bytes()))
            try:
                one.phases(x, refuse=True)
            except ShapeError:
                refused += 1
        assert len(sizes) == 1, one.input_steps
    assert refused > DRAWS  # of 2 DRAWS: the owner of a model is told, as before


@pytest.mark.parametrize("name", STEPS)
def test_every_kind_of_step_takes_every_number(name: str, client: ClientSpecification) -> None:
    rng = np.random.default_rng(len(name))
    for _ in range(20):
        one = with_steps(client, (Columns(3, missing=True), STEPS[name](rng)))
        assert np.isfinite(taken(one, drawn_samples(rng, 8, texts=False))).all()


def test_an_input_below_a_threshold_of_the_server_is_not_told(client: ClientSpecification) -> None:
    """Box-Cox after an offset, which refused what is below it."""
    for offset in (-0.5, 0.731, 2.0):
        steps = Columns(3), Standardise(np.full(3, offset), np.ones(3)), Power("box-cox", np.ones(3))
        one = with_steps(client, steps)
        assert taken(one, np.full((1, 3), 0.73)).shape == (1, 3)


def test_the_nearest_value_takes_the_place() -> None:
    knots = np.tile(np.arange(6.0)[:, None], (1, 2))
    splines = Splines(knots, 2, "error", True)
    x = np.array([[-5.0, 2.5], [9.0, np.nan]])
    np.testing.assert_array_equal(splines(x, Replaced()), splines(np.array([[2.0, 2.5], [3.0, 2.0]])))
    power = Power("box-cox", np.array([1.0]))
    np.testing.assert_array_equal(power(np.array([[-3.0]]), Replaced()), [[-1.0]])
    encoder = Categories(1, np.array([0]), (("a", "b"),)), OneHot(np.array([2]))
    assert run_input_steps(encoder, [["c"], [["b"]], ["b"]], unfit=Replaced()).tolist() == [[0, 0], [0, 0], [0, 1]]
    texts = Texts(("a", "bb"), pattern=r"\w+")
    assert texts(["a bb a", None, 3.5], Replaced()).tolist() == [[2, 1], [0, 0], [0, 0]]
    tensors = Tensors(("u", "v"), ((2,), ()), ((), ()))
    given = {"u": [[np.inf, "x"]], "v": [10**400]}
    largest = np.finfo(np.float64).max
    assert tensors(given, Replaced()).tolist() == [[largest, 0.0, largest]]


def test_the_user_is_warned_by_sample_and_column_not_by_value(client: ClientSpecification) -> None:
    steps = (
        Columns(3, ("age", "blood", "weight"), missing=True),
        Append(np.array([2, 0]), (Power("box-cox", np.ones(2)),)),
    )
    one = replace(with_steps(client, steps), input_range=(-1e9, 1e9), input_scale=1e-10)
    with pytest.warns(ReplacedValuesWarning) as caught:
        one.inputs([[1.0, -777.25, 2.0], [1.0, np.nan, -777.25]])
    (message,) = (str(each.message) for each in caught)
    assert message.startswith(
        "input: 1 of 2 samples have values that the model does not take (in columns 'weight', 'blood'); the nearest"
    )
    assert "777" not in message and caught[0].filename == __file__


def test_shapes_and_types_are_refused(client: ClientSpecification) -> None:
    numbers, categories = with_steps(client, (Columns(3),)), Categories(3, np.array([0]), (("a",),))
    for x in (
        np.ones((2, 2)),
        np.ones((0, 3)),
        [[1.0, 2.0, 3.0], [1.0]],
        np.array([["1.5", "2", "3"]]),  # by its type, whatever it says
        np.ones((2, 3), dtype=complex),
        np.zeros((2, 3), dtype="datetime64[s]"),
    ):
        with pytest.raises(ShapeError):
            numbers.inputs(x)
    with pytest.raises(ShapeError):
        with_steps(client, (categories,)).inputs([["a", 1.0]])
    with pytest.raises(ShapeError):
        replace(client, input_steps=(Texts(("a", "b", "c")),)).inputs([["a", "b"]])


def test_an_end_of_the_range_is_encrypted_where_rounding_puts_it_beyond(
    client: ClientSpecification, key: ClientKey
) -> None:
    """A refusal there would tell values at the end from all others."""
    one = replace(client, input_range=(-1.0, 1.0), input_scale=0.25 * (1 + 5e-10)).checked()
    assert len(one.encrypt(key, np.ones((1, 3))).to_bytes()) == len(one.encrypt(key, np.zeros((1, 3))).to_bytes())


def test_samples_of_single_precision_and_named_columns_are_taken_too(client: ClientSpecification) -> None:
    """As a remote model has them: arrays, lists and tables."""
    rng = np.random.default_rng(5)
    for _ in range(DRAWS):
        model = RemoteProgram("drawn", "1", {}, "", with_steps(client, drawn_steps(rng)))
        x = drawn_samples(rng, 4, texts=False)
        numbers = np.array([[np.nan if cell is None else float(cell) for cell in row] for row in x])
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for given in (numbers.astype(np.float32), x, drawn_samples(rng, 4, texts=True), [["n/a", "red", "1.5"]]):
                rows = model.rows(given)
                assert np.isfinite(rows).all() and np.abs(rows).max() <= 0.25


def test_an_index_of_neighbours_takes_every_number() -> None:
    for metric in ("euclidean", "cosine"):
        index = NeighbourIndex.build(np.arange(12.0).reshape(6, 2), np.arange(6), n_neighbors=1, metric=metric)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = index.client.integers([[np.nan, np.inf], [1e308, -1e308], ["n/a", 10**400], [1.0, None]])
        assert found.shape == (4, 2) and np.abs(found).max() <= index.client.limit
        with pytest.warns(ReplacedValuesWarning):
            index.client.integers([[np.nan, 1.0]])
        with pytest.raises(CompileError, match="finite"):
            index.predict([[np.nan, 1.0]])


def test_the_kinds_that_refuse_are_those_that_are_tried() -> None:
    """A new step that some values do not suit comes here, or into the tables above."""
    tried = {type(make(np.random.default_rng(0))).__name__ for make in STEPS.values()}
    assert {kind.__name__ for kind in Refusing.__subclasses__()} <= tried | {
        "Columns",
        "Categories",
        "Texts",
        "Tensors",
    }
