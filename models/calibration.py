"""What calibration data showed of a model, small enough to travel with it: a model of the zoo compiles without any data set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.fhe_core.errors import SerializationError
from cloakwork.models import fields as typed
from cloakwork.models.errors import CompileError, ShapeError
from cloakwork.models.interpreter import samples_at_once, wire_values
from cloakwork.models.ir import Graph, Linear, Reals, wires
from cloakwork.models.tabular.columns import real_numbers

_VERSION = 1
_DIGITS = 6


@dataclass(frozen=True, eq=False)
class Calibration:
    """Least and largest values: of the input, and of every row of weights [blocks, rows] over samples and positions, node by node."""

    input_range: tuple[float, float]
    rows: tuple[tuple[Reals, Reals], ...]
    learned: bool = False  # with the weights, while training: the compiler takes the ranges as they are

    def check(self, graph: Graph) -> None:
        """CompileError when it was taken from another model, or from this one before the passes changed."""
        expected = [node.bias.shape for node in graph.linears]
        if [low.shape for low, _ in self.rows] != expected:
            raise CompileError(
                f"calibration: expected ranges of {len(expected)} linear layers of shapes {expected}, got {len(self.rows)} of shapes "
                f"{[low.shape for low, _ in self.rows]}; it belongs to another model: calibrate with data again"
            )

    def to_json(self) -> str:
        fields = {
            "cloakwork_calibration": _VERSION,
            "input_range": list(self.input_range),
            **({"learned": True} if self.learned else {}),
            "rows": [{"low": _rounded(low), "high": _rounded(high)} for low, high in self.rows],
        }
        return json.dumps(fields, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibration:
        """SerializationError for anything that `to_json` does not write."""
        try:
            fields = typed.parsed_object(text)
            if fields["cloakwork_calibration"] != _VERSION:
                raise ValueError("its version is another")
            low, high = (typed.real(value) for value in typed.entries(fields["input_range"]))
            rows = tuple((_matrix(row["low"]), _matrix(row["high"])) for row in typed.entries(fields["rows"]))
            learned = typed.flag(fields.get("learned", False))
            if not (low <= high and all(a.shape == b.shape and (a <= b).all() for a, b in rows)):
                raise ValueError("a range is not one")
        except (KeyError, TypeError, ValueError) as error:
            raise SerializationError(
                f"calibration: expected version {_VERSION} of its JSON; calibrate with data again ({error})"
            ) from error
        return cls((low, high), rows, learned)


def observe(graph: Graph, samples: ArrayLike) -> Calibration:
    """Runs samples [samples, ..] through the graph in clear."""
    array, size = real_numbers(samples), samples_at_once(graph)
    if array.ndim == 0 or len(array) == 0:
        raise ShapeError("calibration: expected at least one sample, got none; pass a few hundred typical inputs")
    parts = [_observed(graph, array[start : start + size]) for start in range(0, len(array), size)]
    inputs = [part.input_range for part in parts]
    rows = tuple(
        (np.minimum.reduce([low for low, _ in ranges]), np.maximum.reduce([high for _, high in ranges]))
        for ranges in zip(*(part.rows for part in parts), strict=True)
    )
    return Calibration((min(low for low, _ in inputs), max(high for _, high in inputs)), rows)


def _observed(graph: Graph, samples: Reals) -> Calibration:
    values = wire_values(graph, samples)
    if not np.isfinite(values).all():
        raise CompileError(
            "calibration: the model gives values that are not finite; check the data and the model's functions"
        )
    inputs = values[:, wires(graph.input)]
    return Calibration(
        (float(inputs.min()), float(inputs.max())), tuple(_row_ranges(node, values) for node in graph.linears)
    )


def _row_ranges(node: Linear, values: Reals) -> tuple[Reals, Reals]:
    """Over samples and over the positions that share a block; a block without a position has range 0."""
    seen = values[:, wires(node)].reshape(len(values), len(node.gather), -1)
    low, high = np.zeros_like(node.bias), np.zeros_like(node.bias)
    for block in np.unique(node.block):
        chosen = seen[:, node.block == block]
        low[block], high[block] = chosen.min(axis=(0, 1)), chosen.max(axis=(0, 1))
    return low, high


def _rounded(values: Reals) -> list[list[float]]:
    """Six digits: far finer than the margin that the compiler adds."""
    return [[float(f"{value:.{_DIGITS}g}") for value in row] for row in values]


def _matrix(rows: Any) -> Reals:
    matrix = typed.reals(rows)
    if matrix.ndim != 2:
        raise ValueError("expected finite numbers [blocks, rows]")
    return matrix
