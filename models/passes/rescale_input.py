"""Columns (channels) of the input that differ much in size get an offset and a scale of their own, which the client applies before encryption.

    u = (x - offset) scale in [-1, 1],   W x = (W / scale) u + W offset

One scale for all would leave the small ones below the noise and the weights of the large ones with a bit or two. Inputs whose columns are alike,
such as the pixels of an image, keep one range for all: that says less of the data that the model was calibrated with. Ranges that come from samples
are rounded outwards to round numbers (criteria/feature_ranges.py); those that the caller gives are taken as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.calibration import largest, tail_end
from cloakwork.models.client_steps import Rescale
from cloakwork.models.criteria.feature_ranges import public_ends
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.ir import Graph, Linear, Node, check, wires
from cloakwork.models.graph.merge_equal import regroup
from cloakwork.models.passes.equalise_lookups import undone

_ALIKE = 4.0  # ranges within this factor of each other are left alone
_SPARSE = 0.8  # of the samples with one value make a column that says nothing of its range
RESCALED = (-1.0, 1.0)  # the range of rescaled inputs
_LEAST_SHARE = 1 / 64  # of the median range, for columns that are constant


@dataclass(frozen=True)
class InputRanges:
    """The source of the ranges of columns, channels or inputs.

    Args:
        given: lowest and highest value, by number, in place of what samples show.
        rounded: whether the ends that samples show are rounded outwards to round numbers.
    """

    given: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    rounded: bool = True

    def of_all(self, low: float, high: float) -> tuple[float, float]:
        """Returns the range of all numbers of an input, from what samples show."""
        (lowest,), (highest,) = self._seen(np.array([low]), np.array([high]))
        return float(lowest), float(highest)

    def of_columns(self, low: Reals, high: Reals) -> tuple[Reals, Reals]:
        """Returns [columns] each, from what samples show where no range is given."""
        low, high = self._seen(low, high)
        for column, ends in self.given.items():
            low[column], high[column] = ends
        return low, high

    def _seen(self, low: Reals, high: Reals) -> tuple[Reals, Reals]:
        """Constants get a range around their value."""
        low, high = _with_room(low, high)
        return public_ends(low, high) if self.rounded else (low, high)


def rescale_input(graph: Graph, samples: Reals, ranges: InputRanges) -> tuple[Graph, Rescale | None]:
    """Returns the graph on rescaled inputs, and the client's step; itself and None where the columns are alike.

    Args:
        graph: levelled.
        samples: [samples, *shape of the input].
        ranges: of columns (channels).
    """
    step = column_rescale(samples, ranges)
    return (graph, None) if step is None else (on_rescaled(graph, [step], [graph.input.shape]), step)


def column_rescale(samples: Reals, ranges: InputRanges) -> Rescale | None:
    """Rescales to [-1, 1] for samples [samples, ..], column by column (channel by channel); None where they are alike and no range is given."""
    values = _by_column(samples)
    low, high = values.min(axis=0), values.max(axis=0)
    known = (high > low) & ~_sparse(values, low, high)
    if not ranges.given and (known.sum() < 2 or _alike(low[known], high[known])):
        return None
    return _rescale(*ranges.of_columns(*_widened(values, low, high)), samples.shape[1:])


def column_ranges(samples: Reals, ranges: InputRanges) -> dict[int, tuple[float, float]]:
    """Returns the ranges of all columns (channels) of samples [samples, ..], by number, also where they are alike."""
    values = _by_column(samples)
    ends = ranges.of_columns(*_widened(values, values.min(axis=0), values.max(axis=0)))
    return dict(enumerate(zip(*(side.tolist() for side in ends), strict=True)))


def _by_column(samples: Reals) -> Reals:
    """Returns [samples and positions, columns]."""
    shape = samples.shape[1:]
    channels = samples.reshape(len(samples), shape[0], -1) if len(shape) > 1 else samples.reshape(len(samples), -1, 1)
    return np.asarray(np.moveaxis(channels, 1, -1).reshape(-1, channels.shape[1]))


def rescale_of_range(low: float, high: float, shape: tuple[int, ...]) -> Rescale:
    """Rescales to [-1, 1] for all numbers of an input alike, which are between low and high."""
    return _rescale(*_with_room(np.array([low]), np.array([high])), shape)


def whole_range(samples: Reals) -> tuple[float, float]:
    """Returns the range of all numbers, as far as fitted tails reach."""
    values = samples.reshape(-1, 1)
    low, high = _widened(values, values.min(axis=0), values.max(axis=0))
    return float(low[0]), float(high[0])


def _with_room(low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """[columns] each: those that are constant get a range around their value."""
    half = (high - low) / 2
    varies = half[half > 0]
    floor = _LEAST_SHARE * float(np.median(varies)) if len(varies) else 1.0
    aside = np.where(half > 0, 0.0, np.maximum(np.abs(low) / 2, floor))
    return low - aside, high + aside


def _rescale(low: Reals, high: Reals, shape: tuple[int, ...]) -> Rescale:
    """Args: low, high: [columns], or of all numbers [1]."""
    if len(shape) > 1:  # padding is zero, and stays it
        offset, half = np.zeros_like(low), np.maximum(np.abs(low), np.abs(high))
    else:
        offset, half = low / 2 + high / 2, high / 2 - low / 2
    column_shape = (-1, *[1] * (len(shape) - 1))
    return Rescale(*(np.ascontiguousarray(facts.reshape(column_shape)) for facts in (low, high, offset, 1 / half)))


def _sparse(values: Reals, low: Reals, high: Reals) -> np.ndarray:
    """Returns columns of which most values are one of the ends: a pixel at the border, one category of many."""
    return np.asarray(((values == low).mean(axis=0) > _SPARSE) | ((values == high).mean(axis=0) > _SPARSE))


def _alike(low: Reals, high: Reals) -> bool:
    reach = np.maximum(np.abs(low), np.abs(high))
    width = high - low
    return bool(reach.max() <= _ALIKE * width.min() and width.max() <= _ALIKE * width.min())


def _widened(values: Reals, low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """As far as fitted tails reach, and the extremes at least."""
    width = high - low
    above = tail_end(largest(values), len(values), width)
    below = -tail_end(largest(-values), len(values), width)
    varies = width > 0
    return np.where(varies, np.minimum(low, below), low), np.where(varies, np.maximum(high, above), high)


def on_rescaled(graph: Graph, steps: Sequence[Rescale], shapes: Sequence[tuple[int, ...]]) -> Graph:
    """Returns the graph on inputs after these steps. Args: shapes: of the parts of the input that they act on, one after the other.

    Raises:
        CompileError: a linear node would need more weights than are worth keeping.
    """
    input_wires = wires(graph.input)
    centre, factor = np.zeros(graph.wire_count + 1), np.ones(graph.wire_count + 1)
    for fact, name in ((centre, "offset"), (factor, "scale")):
        spread = [
            np.broadcast_to(getattr(step, name), shape or (1,)) for step, shape in zip(steps, shapes, strict=True)
        ]
        fact[input_wires] = np.concatenate([numbers.reshape(-1) for numbers in spread])
    nodes: list[Node] = [graph.input]
    for node in graph.nodes[1:]:
        if not isinstance(node, Linear):
            nodes.append(node)
            continue
        split = _one_factor_per_column(node, factor)
        moved = None if split is None else undone(split, centre, factor)
        if moved is None:
            raise CompileError(
                f"linear '{node.origin}': reads columns of the input that differ in size at too many different places; standardise them before "
                "training, or concatenate inputs along channels"
            )
        nodes.append(moved)
    return check(replace(graph, nodes=tuple(nodes)))


def _one_factor_per_column(node: Linear, factor: Reals) -> Linear | None:
    """Returns the node with its blocks split until all positions of one read a column with the same factor, but for padding; None: too many
    weights."""
    read = np.where(node.gather >= 0, factor[node.gather], 0.0)
    columns = np.zeros((len(node.weights), read.shape[1]))
    np.maximum.at(columns, node.block, read)
    block_factors = columns[node.block]
    if bool(((read == block_factors) | (read == 0)).all()):
        return node
    groups = regroup(node, np.where(read > 0, read, block_factors))
    if groups is None:
        return None
    first, block = groups
    old = node.block[first]
    return replace(node, weights=node.weights[old], bias=node.bias[old], block=block)
