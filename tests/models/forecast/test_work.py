"""The counts of a program's work: those of the engine calls that the runtime makes, and larger for larger programs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import mlp, model

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.forecast import measure
from cloakwork.models.forecast.profile import stored_profiles
from cloakwork.models.forecast.rates import Work, work_of
from cloakwork.models.program import Program
from cloakwork.models.runtime import Runtime

RNG = np.random.default_rng(71)
TOY = parameter_set("toy")


def compiled(sizes: list[int]) -> Program:
    """Many seeds would do; weights of layers that are there twice are the same."""
    return cw.compile(mlp(np.random.default_rng(5), sizes), RNG.uniform(-1, 1, (200, sizes[0])), accuracy=0).program


def convolutional() -> Program:
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["d"], name="conv1"),
        helper.make_node("Relu", ["d"], ["s"]),
        helper.make_node("Flatten", ["s"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["y"], name="dense"),
    ]
    shapes = {"w0": (2, 1, 2, 2), "w1": (2, 2, 2, 2), "w2": (8, 3)}
    weights = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return cw.compile(model(nodes, [1, 4, 4], weights), RNG.uniform(-1, 1, (200, 1, 4, 4)), accuracy=0).program


class Recorded:
    """What a runtime asks of its session, in the words of `Work`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[int] = []
        self.products: list[tuple[int, int, int]] = []  # samples, rows, columns
        self.packed_rows = self.extracted = 0
        for name in ("activation", "linear", "linear_packed", "extract"):
            monkeypatch.setattr(Session, name, self._around(name, getattr(Session, name)))

    def _around(self, name: str, original: Any) -> Any:
        def call(session: Session, *args: Any, **options: Any) -> Any:
            if name == "activation":
                self.batches.append(args[0].size)
            elif name == "linear":
                rows, columns = args[0].shape
                self.products.append((args[1].size // columns, rows, columns))
            elif name == "linear_packed":
                self.packed_rows += len(args[0])
            else:
                self.extracted += args[0].size
            return original(session, *args, **options)

        return call


PROGRAMS = {
    "dense": lambda: compiled([8, 12, 5, 3]),
    "convolutional": convolutional,
    "unpacked": lambda: measure.unpacked(TOY, 9),
    "chain": lambda: measure.chain(TOY, 4),
}


@pytest.mark.parametrize("name", list(PROGRAMS))
@pytest.mark.parametrize("samples", [1, 3])
def test_counts_are_those_of_the_calls_of_the_engine(name: str, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = replace(PROGRAMS[name](), parameters=TOY)
    session = Session(ClientKey.generate(TOY).evaluation_keys())
    recorded, words = Recorded(monkeypatch), TOY.large_dimension + 1
    result = Runtime(program, session).run(measure.probe_input(program, session, samples))
    work = work_of(program, samples, "cpu")
    assert list(work.lookups) == recorded.batches
    assert work.written == words * sum(s * rows for s, rows, _ in recorded.products)
    assert work.gathered == words * sum(s * columns for s, _, columns in recorded.products)
    assert work.multiplications == words * sum(s * rows * columns for s, rows, columns in recorded.products)
    assert work.extracted == words * recorded.extracted
    assert (work.products > 0) == (recorded.packed_rows > 0)
    assert work.answers == result.size and work.returned == words * result.size


@pytest.mark.parametrize(
    ("columns", "samples", "expected"),
    [
        (512, 1, (1, 1, 1)),
        (512, 4, (1, 4, 4)),  # one form of the row, a product for each sample's ciphertext
        (64, 8, (1, 1, 8)),  # eight samples in one ciphertext
        (64, 9, (1, 2, 9)),
        (784, 1, (2, 2, 2)),  # cut where a ciphertext ends
        (784, 2, (5, 5, 5)),  # 512 + 272, then 240 + 512 + 32
    ],
)
def test_products_of_a_packed_input(columns: int, samples: int, expected: tuple[int, int, int]) -> None:
    params = parameter_set("nn2")
    work = work_of(measure.dense(params, columns, 3), samples, "cpu")
    words = params.large_dimension + 1
    assert (work.transforms, work.products) == (3 * expected[0], 3 * expected[1])
    assert work.sums == 3 * expected[2] * words


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("samples", [1, 16])
def test_more_layers_and_wider_ones_are_more_work_and_take_longer(device: str, samples: int) -> None:
    small = compiled([8, 12, 3])
    for larger in (compiled([8, 12, 12, 3]), compiled([8, 24, 3]), compiled([3000, 12, 3])):
        larger = replace(larger, parameters=small.parameters)
        less, more = work_of(small, samples, device), work_of(larger, samples, device)
        counts = [field.name for field in fields(Work) if field.name not in ("lookups", "switched")]
        assert all(getattr(less, name) <= getattr(more, name) for name in counts)
        assert sum(less.lookups) <= sum(more.lookups)
        profile = stored_profiles()["cpu-1-thread"]
        assert profile.seconds(small.parameters, less) < profile.seconds(small.parameters, more)


def test_a_linear_program_takes_time() -> None:
    program = compiled([30, 4])
    assert program.bootstraps == 0
    (rates, _) = stored_profiles()["cpu-1-thread"].rates(program.parameters)
    one, many = (rates.parts(work_of(program, samples, "cpu")) for samples in (1, 64))
    assert one["look-ups"] == 0 and one["linear layers"] > 0 and one["transfers and answers"] > 0
    assert sum(one.values()) < sum(many.values()) < 64 * sum(one.values())
