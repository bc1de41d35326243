"""Whether a request goes out, and how long it is, does not depend on what is encrypted: a hostile server chose the steps."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from cloakwork.app.client.remote_models import RemoteProgram
from cloakwork.fhe_core.client import ClientKey
from cloakwork.models.client_steps import Append, Categories, Columns, Normalise, Power, Texts
from cloakwork.models.errors import CalibratedRangeWarning, CompileError, ReplacedValuesWarning, ShapeError
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.program.client_specification import ClientSpecification

TOY = "toy"


@pytest.fixture(scope="module")
def key() -> ClientKey:
    return ClientKey.generate(TOY)


@pytest.fixture(scope="module")
def client() -> ClientSpecification:
    """Without steps: three numbers in, one out."""
    return ClientSpecification(bytes(32), TOY, (3,), (-1.0, 1.0), 0.25, np.ones(1), np.zeros(1))


def test_the_user_is_warned_by_sample_and_column_not_by_value(client: ClientSpecification) -> None:
    steps = (
        Columns(3, ("age", "blood", "weight"), missing=True),
        Append(np.array([2, 0]), (Power("box-cox", np.ones(2)),)),
    )
    one = replace(client, input_steps=steps, input_shape=(5,), input_range=(-1e9, 1e9), input_scale=1e-10)
    with pytest.warns(ReplacedValuesWarning) as caught:
        one.inputs([[1.0, -777.25, 2.0], [1.0, np.nan, -777.25]])
    (message,) = (str(each.message) for each in caught)
    assert message.startswith(
        "input: 1 of 2 samples have values that the model does not take (in columns 'weight', 'blood'); the nearest"
    )
    assert "777" not in message and caught[0].filename == __file__


def test_shapes_and_types_are_refused(client: ClientSpecification) -> None:
    numbers, categories = replace(client, input_steps=(Columns(3),)), Categories(3, np.array([0]), (("a",),))
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
        replace(client, input_steps=(categories,)).inputs([["a", 1.0]])
    with pytest.raises(ShapeError):
        replace(client, input_steps=(Texts(("a", "b", "c")),)).inputs([["a", "b"]])


def test_an_end_of_the_range_is_encrypted_where_rounding_puts_it_beyond(
    client: ClientSpecification, key: ClientKey
) -> None:
    """A refusal there would tell values at the end from all others."""
    one = replace(client, input_range=(-1.0, 1.0), input_scale=0.25 * (1 + 5e-10)).checked()
    assert len(one.encrypt(key, np.ones((1, 3))).to_bytes()) == len(one.encrypt(key, np.zeros((1, 3))).to_bytes())


def test_samples_of_single_precision_are_taken_too(client: ClientSpecification) -> None:
    """As a remote model has them."""
    steps = Columns(3), Normalise("l1"), Power("box-cox", np.array([0.0, -2.0, 9.0]))
    model = RemoteProgram("drawn", "1", {}, "", replace(client, input_steps=steps))
    numbers = np.array([[np.nan, np.inf, -1.5], [1e38, -1e38, 1e-45], [0.0, -0.0, 3.0]], dtype=np.float32)
    with pytest.warns(ReplacedValuesWarning), pytest.warns(CalibratedRangeWarning):
        rows = model.rows(numbers)
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
