"""The specification of the graph: one test for each rule that a pass could break."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, check, check_levelled, wrong_distance
from cloakwork.models.graph.steps import Step


def graph(**changes: Any) -> Graph:
    """x[2] -> W x + b [3] -> clip, one function of two for each -> identity row on the first."""
    linear = Linear(2, np.array([[0, 1]]), np.array([0]), np.ones((1, 3, 2)), np.zeros((1, 3)), "dense")
    step = Step("Clip", (np.array([0.0, -1.0]), np.array([1.0, 2.0])))
    lookup = Lookup(5, np.array([2, 3, 4]), (step,), np.array([0, 1, 1]), "clip")
    last = Linear(8, np.array([[5, -1]]), np.array([0]), np.ones((1, 1, 2)), np.zeros((1, 1)), "last")
    nodes = {"linear": linear, "lookup": lookup, "last": last}
    for name, change in changes.items():
        nodes[name] = replace(nodes[name], **change)
    return Graph((Input(0, (2,), "x"), *nodes.values()), np.array([8]))


def test_the_example_is_in_order() -> None:
    check_levelled(graph())


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"linear": {"first_wire": 1}}, "owns wires of its own"),
        ({"linear": {"gather": np.array([[0, 5]])}}, "reads wires computed before"),
        ({"linear": {"gather": np.array([[0, -2]])}}, "reads wires computed before"),
        ({"linear": {"gather": np.array([[0, 1, 1]])}}, "as many wires as a row has weights"),
        ({"linear": {"block": np.array([1])}}, "blocks that exist"),
        ({"linear": {"bias": np.zeros((1, 2))}}, "a bias for each row"),
        ({"linear": {"weights": np.full((1, 3, 2), np.nan)}}, "finite weights"),
        ({"lookup": {"function": np.array([0, 1, 2])}}, "names functions that exist"),
        ({"lookup": {"function": np.array([0, 1, -1])}}, "numbers functions from 0"),
        ({"lookup": {"steps": (Step("Nothing"),)}}, "steps that exist"),
    ],
)
def test_broken_graphs_are_named(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check(graph(**changes))


def test_levels_alternate() -> None:
    with pytest.raises(AssertionError, match="Linear only"):
        check_levelled(graph(lookup={"gather": np.array([0, 1, 2])}))
    with pytest.raises(AssertionError, match="Input and Lookup only"):
        check_levelled(graph(last={"gather": np.array([[5, 2]])}))
    with pytest.raises(AssertionError, match="output"):
        check_levelled(replace(graph(), output=np.array([5])))


def test_quantised_weights_are_integers() -> None:
    facts = np.ones(9)
    with pytest.raises(AssertionError, match="integer weights"):
        check(replace(graph(), lower=facts, upper=facts, scale=facts, offset=facts))


def test_look_ups_say_whether_they_are_exact() -> None:
    """Tables, and functions of what goes to a grid first; `function` says which spacing an argument has."""
    clip = graph().lookups[0]
    assert not clip.is_exact and not replace(clip, steps=()).is_exact
    with pytest.raises(AssertionError):
        assert clip.spacing.size
    table = replace(clip, steps=(Step("Table", (np.zeros((2, 4)),)),))
    assert table.is_exact and table.spacing.tolist() == [1, 1, 1]
    search = replace(clip, steps=(Step("Search", (np.zeros((2, 4)), np.array([0.5, 3.0]))),))
    assert search.is_exact and search.is_table
    assert search.spacing.tolist() == [[1.0, 6.0][number] for number in clip.function]
    snap = replace(clip, steps=(Step("Snap", (np.array([0.5, 0.25]), np.zeros(2))), *clip.steps))
    assert snap.is_exact and snap.spacing.tolist() == [0.5, 0.25, 0.25]
    scale = np.array([1, 1, 0.125, 0.25, 0.5, 1, 1, 1, 1])
    assert wrong_distance(replace(graph(), scale=scale), snap).tolist() == [0.03125, 0.03125, 0.0625]


@pytest.mark.parametrize("tolerance", [0.0, -1.0, np.nan, np.inf])
def test_searches_tolerate_something(tolerance: float) -> None:
    whole = graph()
    clip = whole.lookups[0]
    step = Step("Search", (np.zeros((2, 4)), np.array([1.0, tolerance])))
    damaged = tuple(replace(node, steps=(step,)) if node is clip else node for node in whole.nodes)
    with pytest.raises(AssertionError, match="tolerates what is positive"):
        check(replace(whole, nodes=damaged))
