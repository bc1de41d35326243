"""Forecasts beside encrypted runs on this machine, in turns: `python tests/benchmarks/forecast.py [--device cpu] [--markdown FILE] [--json FILE]`.

In each turn the machine is measured anew, with a set of the program's ring other than the program's where reports would do so too, and the
program runs for one sample and for a batch. A ratio is formed within a turn, and one thread is timed by its own clock, so that what else the
machine does matters little.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.forecast.measure import REPRESENTATIVES, clock_of, measure_set
from cloakwork.models.forecast.rates import nearest_set, work_of
from cloakwork.models.runtime import Runtime

LOOKUPS = 2500  # of a batch, about
Samples = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--lookups", type=int, default=LOOKUPS, help="of a batch at most; a GPU wants a hundred times more"
    )
    parser.add_argument("--only", action="append", help="a program by its name; may be repeated")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sessions = Sessions(options.device, options.threads)
    rows = []
    for name, make in programs():
        if options.only and name not in options.only:
            continue
        for row in compared(name, make(), sessions, options.turns, options.lookups):
            rows.append(row)
            print(table([row]).splitlines()[-1], flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(table(rows))


class Sessions:
    """Keys of the sets that reports scale from, made when they are asked for."""

    def __init__(self, device: str, threads: int) -> None:
        self.device, self.threads = device, threads
        self._made: dict[str, Session] = {}

    def of(self, name: str) -> Session:
        if name not in self._made:
            self._made[name] = self.fresh(ClientKey.generate(parameter_set(name)))
        return self._made[name]

    def fresh(self, key: ClientKey) -> Session:
        return Session(key.evaluation_keys(), device=self.device, threads=self.threads)


def compared(name: str, model: CompiledModel, sessions: Sessions, turns: int, lookups: int) -> Iterator[dict[str, Any]]:
    program = model.program
    params = program.parameters
    scaled_from = nearest_set(params, {each: parameter_set(each) for each in REPRESENTATIVES})
    key = ClientKey.generate(params)
    runtime = Runtime(program, sessions.fresh(key))
    batch = int(np.clip(lookups // max(program.bootstraps, 1), 1, 64))
    found: dict[int, list[tuple[float, float]]] = {}
    clock = clock_of(sessions.device, sessions.threads)
    for _ in range(turns):
        rates = measure_set(sessions.of(scaled_from), rounds=2).scaled(parameter_set(scaled_from), params)
        for count in sorted({1, batch}):
            x = model.client.encrypt_phases(key, np.zeros((count, program.graph.input.size)))
            forecast = sum(rates.parts(work_of(program, count, sessions.device)).values())
            found.setdefault(count, []).append((forecast, least(lambda: runtime.answer(x), clock)))  # noqa: B023
    for count, pairs in found.items():
        ratios = [forecast / measured for forecast, measured in pairs]
        yield {
            "program": name,
            "set": params.name,
            "scaled_from": scaled_from,
            "lookups": program.bootstraps,
            "samples": count,
            "forecast_seconds": statistics.median(forecast for forecast, _ in pairs),
            "measured_seconds": statistics.median(measured for _, measured in pairs),
            "ratio": statistics.median(ratios),
            "least_ratio": min(ratios),
            "most_ratio": max(ratios),
        }


def least(run: Callable[[], object], clock: Callable[[], float]) -> float:
    """Of one run, of a few where it is short: as the machine is measured."""
    found: list[float] = []
    while len(found) < 5 and sum(found) < 1:
        start = clock()
        run()
        found.append(clock() - start)
    return min(found)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| program | set (from) | look-ups | samples | forecast, s | measured, s | forecast / measured (least, most) |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        origin = "" if row["scaled_from"] == row["set"] else f" ({row['scaled_from']})"
        lines.append(
            f"| {row['program']} | {row['set']}{origin} | {row['lookups']} | {row['samples']} | {row['forecast_seconds']:.3g} | "
            f"{row['measured_seconds']:.3g} | {row['ratio']:.2f} ({row['least_ratio']:.2f}, {row['most_ratio']:.2f}) |"
        )
    return "\n".join(lines) + "\n"


def programs() -> Iterator[tuple[str, Callable[[], CompiledModel]]]:
    """Of every kind: trees, linear, dense, convolutions with max-pool, exact look-ups."""
    for name in zoo.names():
        if name != "mnist-cnn":  # tens of seconds for a sample on a thread
            yield name, partial(zoo.load_model, name)
    yield "MLP 784-64-32-10", _wide
    yield "CNN with max-pool, 8x8", _convolutional
    yield "MLP 8-12-3, exact", _exact
    yield "one layer 784-10", _one_layer


def _wide() -> CompiledModel:
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (200, 784))
    return cw.compile(_mlp(rng, [784, 64, 32, 10]), x, accuracy=0)


def _one_layer() -> CompiledModel:
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (200, 784))
    return cw.compile(_mlp(rng, [784, 10]), x, accuracy=0)


def _exact() -> CompiledModel:
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (200, 8))
    return cw.compile(
        _mlp(rng, [8, 12, 3]), x, precision="exact", weight_bits=2, input_bits=2, activation_bits=2, accuracy=0
    )


def _convolutional() -> CompiledModel:
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (200, 1, 8, 8))
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w1"], ["y"], name="dense"),
    ]
    weights = {"w0": rng.normal(size=(4, 1, 3, 3)), "w1": rng.normal(size=(36, 5))}
    return cw.compile(_model(nodes, [1, 8, 8], weights), x, accuracy=0)


def _mlp(rng: np.random.Generator, sizes: list[int]) -> onnx.ModelProto:
    nodes, weights, wire = [], {}, "x"
    for i, (columns, rows) in enumerate(itertools.pairwise(sizes)):
        last = i == len(sizes) - 2
        weights[f"w{i}"] = rng.normal(size=(columns, rows)) / np.sqrt(columns)
        nodes.append(helper.make_node("MatMul", [wire, f"w{i}"], ["y" if last else f"m{i}"], name=f"layer{i}"))
        if not last:
            nodes.append(helper.make_node("Relu", [f"m{i}"], [f"a{i}"]))
            wire = f"a{i}"
    return _model(nodes, [sizes[0]], weights)


def _model(nodes: list[onnx.NodeProto], shape: list[int], weights: dict[str, Samples]) -> onnx.ModelProto:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])
    wanted = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "benchmark", [given], [wanted], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


if __name__ == "__main__":
    main()
