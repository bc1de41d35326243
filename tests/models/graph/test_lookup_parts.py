"""Look-ups are counted by what the compiler put them in place of, and by what for; files say it too."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper
from onnx_models import mlp, model

import cloakwork as cw
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.graph.ir import Lookup
from cloakwork.models.graph.lookup_parts import DIRECT, LookupRole, lookups_by_part, part_origin
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes

RNG = np.random.default_rng(15)


def parts(made: CompiledModel) -> dict[str, dict[str, int]]:
    """Of the report, those of the file being the same."""
    found: dict[str, dict[str, int]] = made.report()["bootstraps_by_part"]
    assert lookups_by_part(program_from_bytes(program_to_bytes(made.program)).graph) == found
    assert sum(sum(each.values()) for each in found.values()) == made.program.bootstraps
    return found


def test_look_ups_of_the_model_are_direct() -> None:
    made = cw.compile(mlp(RNG, [6, 5, 3]), RNG.uniform(-1, 1, (200, 6)), precision="fast", accuracy=0)
    assert parts(made) == {"activation0": {DIRECT: 5}}
    assert "look-ups by part" not in made.details


def test_chains_are_named_by_their_look_up() -> None:
    """A comparison and a maximum of wide sums."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node("Split", ["s"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("Max", ["a", "b"], ["m"], name="largest"),
        helper.make_node("Less", ["a", "b"], ["l"], name="less"),
        helper.make_node("Cast", ["l"], ["c"], to=1),
        helper.make_node("Concat", ["m", "c"], ["y"], axis=1),
    ]
    weights = RNG.integers(-5, 6, (4, 2)).astype(np.float32)
    x = RNG.integers(0, 64, (200, 4)).astype(np.float32)
    x[0], x[1] = 0, 63
    settings = {"input_bits": 6}
    made = cw.compile(
        model(nodes, [4], {"w": weights}, opset=18), x, precision="exact", **settings, weight_bits=8, accuracy=0
    )
    found = parts(made)
    whole = Counter(part for each in found.values() for part in each)
    assert {LookupRole.LOWER.value, LookupRole.HIGHEST.value, LookupRole.PIECE.value} == set(whole)
    largest = next(each for name, each in found.items() if "largest" in name)
    assert largest[LookupRole.PIECE.value] >= 2
    assert f"{largest[LookupRole.PIECE.value]} piece" in made.details


@pytest.mark.parametrize("name", ["conv", "a, clamp", "of (two), fine digit", "line\nbreak", ""])
def test_names_of_layers_are_kept(name: str) -> None:
    """Whatever they are, unless they end as origins of parts do."""
    made = cw.compile(mlp(RNG, [3, 2, 2]), RNG.uniform(-1, 1, (50, 3)), precision="fast", accuracy=0)
    graph = made.program.graph
    for origin, part in ((name, DIRECT), (part_origin(name, LookupRole.FINE, "reading 2"), LookupRole.FINE.value)):
        named = [replace(node, origin=origin) if isinstance(node, Lookup) else node for node in graph.nodes]
        assert lookups_by_part(replace(graph, nodes=tuple(named))) == {name: {part: 2}}
