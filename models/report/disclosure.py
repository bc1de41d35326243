"""Disclosure of a model by its client specification, read off its steps: numbers that were learnt or chosen, counted, in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import (
    Append,
    Binarise,
    Bins,
    Categories,
    Combine,
    Compare,
    Curves,
    Digits,
    Divide,
    Equal,
    Impute,
    InputStep,
    LabelGroups,
    Labels,
    Outliers,
    OutputStep,
    Pick,
    Polynomials,
    Positions,
    Power,
    Project,
    Quantiles,
    Quantise,
    Rescale,
    Saturate,
    Splines,
    Standardise,
    Tensors,
    Texts,
    Thermometer,
    Transform,
    Wrap,
)
from cloakwork.models.criteria.feature_ranges import are_round
from cloakwork.models.program.client_specification import ClientSpecification

ROUND_RANGES: Final = "ranges of features in round numbers"
OTHER_RANGES: Final = "ranges of features to all digits"
THRESHOLDS: Final = "thresholds of the model"
_NEAR: Final = 1e-6


@dataclass(frozen=True)
class Disclosure:
    """A count of disclosed numbers (or texts) of a kind."""

    what: str
    count: int

    def text(self) -> str:
        return f"{self.count} {self.what if self.count > 1 else _singular(self.what)}"

    def to_fields(self) -> dict[str, Any]:
        return {"what": self.what, "count": self.count}


def _singular(what: str) -> str:
    """Of one: "scales and offsets of outputs" becomes "scale and offset of outputs"."""
    head, mark, rest = re.match(r"(.*?)( of | that |$)(.*)", what).groups()  # type: ignore[union-attr]
    return re.sub(r"(?<=\w\w)s\b", "", re.sub(r"ies\b", "y", head)) + mark + rest


def disclosures(specification: ClientSpecification) -> list[Disclosure]:
    """Lists disclosures in the order of the steps; equal kinds are added up. Shapes, the parameter set and the program's digest are not named."""
    counts: dict[str, int] = {}
    inputs = list(_flat(specification.input_steps))
    binned_last = bool(inputs) and isinstance(inputs[-1], Bins)
    of_trees = any(isinstance(step, Wrap | Pick) for step in specification.output_steps)
    for step in (*inputs, *_flat(specification.output_steps)):
        compares = binned_last and step is inputs[-1] and of_trees  # in programs of older releases
        _add(counts, _thresholds(step) if compares else _told(step))
    if not any(isinstance(step, _OF_A_RANGE) for step in inputs) and not binned_last:
        _add(counts, _range_of_all(specification))
    if not any(isinstance(step, Combine) for step in specification.output_steps) and specification.output_unit == 0:
        counts["scales and offsets of outputs"] = len(
            np.unique(
                np.stack([specification.output_scale.reshape(-1), specification.output_offset.reshape(-1)]), axis=1
            ).T
        )
    counts["scale of what is encrypted"] = 1
    return [Disclosure(what, count) for what, count in counts.items() if count]


def _add(counts: dict[str, int], disclosed: list[tuple[str, int]]) -> None:
    for what, count in disclosed:
        counts[what] = counts.get(what, 0) + count


def _flat(steps: Sequence[InputStep | OutputStep]) -> Iterator[Any]:
    """Yields steps, also those inside of others."""
    for step in steps:
        yield step
        if isinstance(step, Append):
            yield from _flat(step.steps)
        elif isinstance(step, Tensors):
            for tensor_steps in step.steps:
                yield from _flat(tensor_steps)


def _told(step: Any) -> list[tuple[str, int]]:
    reader = _READERS.get(type(step))
    return [] if reader is None else reader(step)


def _one(what: str, field: str) -> Callable[[Any], list[tuple[str, int]]]:
    """So many as the field has entries."""
    return lambda step: [(what, int(np.asarray(getattr(step, field), dtype=object).size))]


def _thresholds(step: Compare | Bins) -> list[tuple[str, int]]:
    if isinstance(step, Compare):
        pairs = np.unique(np.stack([step.feature.astype(np.float64), step.threshold]), axis=1)
        return [(THRESHOLDS, pairs.shape[1])]
    return [(THRESHOLDS, len(_edges(step)))]


def _edges(step: Bins) -> set[tuple[int, float]]:
    """Returns each once: digits of one feature have the same."""
    return {
        (int(feature), float(value))
        for feature, first, end in zip(step.feature, step.start[:-1], step.start[1:], strict=True)
        for value in step.threshold[first:end]
    }


def _grids(step: Thermometer | Positions) -> list[tuple[str, int]]:
    return [
        ("ends and steps of public grids", 2 * int(np.count_nonzero(step.spacing))),
        ("points of public grids", len(step.points)),
    ]


def _combined(step: Combine) -> list[tuple[str, int]]:
    """Equal units of several sums are one number."""
    units = np.unique(np.abs(step.matrix[step.matrix != 0]))
    return [("units of scores", len(units)), ("constants of scores", int(np.count_nonzero(step.offset)))]


def _windows(step: Wrap) -> list[tuple[str, int]]:
    """Where a sum's values begin; 0 tells nothing."""
    return [("least values of sums", int(np.count_nonzero(step.lowest)))]


def _packed(step: Digits) -> list[tuple[str, int]]:
    """Of outputs that are several numbers."""
    rows = step.radix[(step.radix > 1).sum(axis=1) > 1]
    return [("numbers of values of outputs", int(np.count_nonzero(rows > 1)))]


def _ranges(lower: Reals, upper: Reals) -> list[tuple[str, int]]:
    ends = zip(lower.reshape(-1), upper.reshape(-1), strict=True)
    rounded = sum(are_round(float(low), float(high)) for low, high in ends)
    return [(ROUND_RANGES, rounded), (OTHER_RANGES, lower.size - rounded)]


def _rescaled(step: Rescale) -> list[tuple[str, int]]:
    """Offset and scale follow from the range where it becomes [-1, 1]; else the scale is told too."""
    reach = np.maximum(np.abs(step.lower - step.offset), np.abs(step.upper - step.offset)) * step.scale
    other = np.unique(np.round(reach[np.abs(reach - 1) > _NEAR], 3))
    return [*_ranges(step.lower, step.upper), ("levels of features", len(other))]


def _range_of_all(specification: ClientSpecification) -> list[tuple[str, int]]:
    """Returns the one that all numbers of the input share."""
    low, high = specification.input_range
    return _ranges(np.array([low]), np.array([high]))


_OF_A_RANGE: Final = (
    Saturate,
    Rescale,
    Quantise,
    Thermometer,
    Positions,
    Compare,
)  # what they give is in a range of theirs
_READERS: Final[Mapping[type, Callable[[Any], list[tuple[str, int]]]]] = {
    Thermometer: _grids,
    Positions: _grids,
    Compare: _thresholds,
    Bins: lambda step: [("edges of bins", len(_edges(step)))],
    Equal: _one("values that features are compared with", "value"),
    Binarise: _one("thresholds of the preprocessing", "threshold"),
    Categories: lambda step: [("categories of the training data", sum(len(known) for known in step.known))],
    Texts: _one("words", "vocabulary"),
    Impute: _one("fill values", "fill"),
    Standardise: _one("means and scales of features", "offset"),
    Divide: _one("means and scales of features", "offset"),
    Saturate: lambda step: _ranges(step.lower, step.upper),
    Rescale: _rescaled,
    Quantise: lambda _: [("quantisers", 1)],
    Project: _one("numbers of a projection", "matrix"),
    Polynomials: _one("powers", "powers"),
    Power: _one("exponents", "exponent"),
    Quantiles: _one("quantiles of the training data", "quantiles"),
    Splines: _one("knots", "knots"),
    Wrap: _windows,
    Digits: _packed,
    Combine: _combined,
    Curves: _one("points of a calibration", "x"),
    Transform: lambda step: [("parameters of a transform", int(step.parameter != 1.0))],
    Outliers: lambda _: [("offset of outliers", 1)],
    Labels: _one("labels", "labels"),
    LabelGroups: _one("labels", "labels"),
    Pick: _one("labels", "labels"),
}
