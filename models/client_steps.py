"""What the client does before encryption and after decryption, as named steps that travel in JSON.

Input steps turn the user's table [samples, columns] into the numbers that are encrypted; output steps turn decrypted numbers into scores,
probabilities and labels. A step is a frozen dataclass of plain numbers, texts and arrays; its name in JSON is its class's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models import fields as typed
from cloakwork.models.errors import ShapeError
from cloakwork.models.ir import Indices, Reals
from cloakwork.models.range_report import RangeReport
from cloakwork.models.tabular.columns import check_column_names, feature_labels, feature_table, real_numbers
from cloakwork.models.tabular.transforms import TRANSFORMS, best_class, class_threshold

Stage: TypeAlias = Literal["scores", "probabilities", "labels"]
STAGES: Final[tuple[Stage, ...]] = ("scores", "probabilities", "labels")
_MOST_COLUMNS: Final = 1 << 20
_MOST_STEPS: Final = 1000


def _demand(condition: bool, rule: str) -> None:
    """ValueError: steps come from files of strangers too."""
    if not condition:
        raise ValueError(f"expected {rule}")


def _check_columns(count: int, names: tuple[str, ...] | None) -> None:
    _demand(0 < count <= _MOST_COLUMNS, f"1 to {_MOST_COLUMNS} columns")
    _demand(names is None or len(names) == count, "a name for each column")
    _demand(names is None or all(isinstance(name, str) for name in names), "names of columns that are texts")


# --- before encryption -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Columns:
    """The first step: a table of `count` finite numbers per sample, its names checked where it has some."""

    count: int
    names: tuple[str, ...] | None = None
    missing: bool = False  # whether NaN may pass

    def __post_init__(self) -> None:
        _check_columns(self.count, self.names)

    def __call__(self, x: Any) -> Reals:
        return feature_table(x, self.count, self.names, self.missing)


@dataclass(frozen=True, eq=False)
class Categories:
    """The first step for tables with text: categories of the training data as numbers 0, 1, ..; other columns as they are.

    `known[i]` are the categories of column `columns[i]`. An unseen one is refused, or becomes -1 (OneHot then gives zeros). A column without
    known categories is not looked at and becomes 0.
    """

    count: int
    columns: Indices
    known: tuple[tuple[str | float | bool, ...], ...]
    unseen: str = "refuse"  # or "ignore"
    names: tuple[str, ...] | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        _check_columns(self.count, self.names)
        _demand(self.columns.shape == (len(self.known),), "known categories for each encoded column")
        _demand(bool(((self.columns >= 0) & (self.columns < self.count)).all()), "encoded columns of the table")
        _demand(
            all(type(c) in (str, float, int, bool) for known in self.known for c in known),
            "categories that are texts and numbers",
        )
        _demand(self.unseen in ("refuse", "ignore"), "a rule for unseen categories: refuse or ignore")

    def __call__(self, x: Any) -> Reals:
        check_column_names(x, self.names)
        table = np.asarray(x, dtype=object)
        if table.ndim != 2 or table.shape[1] != self.count:
            raise ShapeError(f"input: expected an array of shape ['samples', {self.count}], got {list(table.shape)}")
        table = table.copy()
        for column, known in zip(self.columns, self.known, strict=True):
            table[:, column] = self._numbers(table[:, column], int(column), known) if known else 0.0
        return feature_table(table, self.count, self.names, self.missing)

    def _numbers(self, values: NDArray[Any], column: int, known: tuple[Any, ...]) -> list[float]:
        number = {category: float(i) for i, category in enumerate(known)}
        try:
            result = [number.get(value, -1.0) for value in values]
        except TypeError:
            raise ShapeError("input: expected texts and numbers as categories, got lists or other containers") from None
        if self.unseen == "refuse" and -1.0 in result:
            label = feature_labels(self.names, self.count)[column]
            raise ShapeError(
                f"input: column '{label}' has a category that the training data had not (row {result.index(-1.0)}); expected one of {list(known)}"
            )
        return result


@dataclass(frozen=True, eq=False)
class Impute:
    """Missing values become fill [columns]."""

    fill: Reals

    def __post_init__(self) -> None:
        _demand(self.fill.ndim == 1, "a number for each column")

    def __call__(self, x: Reals) -> Reals:
        return np.where(np.isnan(x), self.fill, x)


@dataclass(frozen=True, eq=False)
class Complete:
    """These columns have no missing values; `names` are theirs."""

    names: tuple[str, ...]
    columns: Indices

    def __post_init__(self) -> None:
        _demand(self.columns.shape == (len(self.names),), "a name for each column")
        _demand(all(isinstance(name, str) for name in self.names), "names of columns that are texts")

    def __call__(self, x: Reals) -> Reals:
        bad = np.isnan(x[:, self.columns]).any(axis=0)
        if bad.any():
            raise ShapeError(
                f"input: column '{self.names[int(np.argmax(bad))]}' has missing values (NaN), which are replaced in other columns only; "
                "replace them first"
            )
        return x


@dataclass(frozen=True, eq=False)
class Standardise:
    """(x - offset) * scale, column by column."""

    offset: Reals
    scale: Reals

    def __post_init__(self) -> None:
        _demand(self.offset.ndim == self.scale.ndim == 1, "an offset and a scale for each column")

    def __call__(self, x: Reals) -> Reals:
        result: Reals = (x - self.offset) * self.scale
        return result


@dataclass(frozen=True, eq=False)
class Normalise:
    """Each sample divided by its norm; samples of zeros stay."""

    norm: str  # l1, l2, max

    def __post_init__(self) -> None:
        _demand(self.norm in ("l1", "l2", "max"), "one of the norms l1, l2, max")

    def __call__(self, x: Reals) -> Reals:
        size = {"l1": np.abs(x).sum(axis=1), "l2": np.sqrt(np.square(x).sum(axis=1)), "max": np.abs(x).max(axis=1)}
        length = size[self.norm][:, None]
        result: Reals = x / np.where(length > 0, length, 1.0)
        return result


@dataclass(frozen=True, eq=False)
class OneHot:
    """Column j with `sizes[j]` > 0 holds category numbers and becomes that many columns of 0 and 1; -1 gives zeros. Others stay."""

    sizes: Indices

    def __post_init__(self) -> None:
        _demand(self.sizes.ndim == 1 and bool((self.sizes >= 0).all()), "a number of categories for each column")
        total = sum(max(int(size), 1) for size in self.sizes)
        _demand(0 < total <= _MOST_COLUMNS, f"1 to {_MOST_COLUMNS} columns of categories")

    def __call__(self, x: Reals) -> Reals:
        _demand(x.shape[1] == len(self.sizes), "as many columns as the encoder has")
        parts = [
            x[:, j : j + 1] if size == 0 else (x[:, j : j + 1] == np.arange(size)).astype(np.float64)
            for j, size in enumerate(self.sizes)
        ]
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True, eq=False)
class Select:
    """The named columns, in that order."""

    columns: Indices

    def __post_init__(self) -> None:
        _demand(self.columns.ndim == 1, "a list of columns")

    def __call__(self, x: Reals) -> Reals:
        return x[:, self.columns]


@dataclass(frozen=True, eq=False)
class Saturate:
    """Values beyond [lower, upper] of their column count as its end; `run_input_steps` reports them."""

    lower: Reals
    upper: Reals

    def __post_init__(self) -> None:
        _demand(self.lower.shape == self.upper.shape == (self.lower.size,), "a range for each column")

    def __call__(self, x: Reals) -> Reals:
        return np.clip(x, self.lower, self.upper)

    def outside(self, x: Reals) -> NDArray[np.bool_]:
        result: NDArray[np.bool_] = (x < self.lower) | (x > self.upper)
        return result


@dataclass(frozen=True, eq=False)
class Rescale:
    """Tensors of any shape to (x - offset) scale, each column or channel with its own; values beyond [lower, upper] count as the end.

    The arrays have the shape of a sample, or one that broadcasts to it; `run_input_steps` reports values beyond.
    """

    lower: Reals
    upper: Reals
    offset: Reals
    scale: Reals

    def __post_init__(self) -> None:
        _demand(
            self.lower.shape == self.upper.shape == self.offset.shape == self.scale.shape and self.lower.ndim > 0,
            "a range, an offset and a scale for each column",
        )
        _demand(bool((self.lower <= self.upper).all() and (self.scale > 0).all()), "ranges and positive scales")

    def __call__(self, x: Any) -> Reals:
        clipped = np.clip(np.asarray(x, dtype=np.float64), self.lower, self.upper)
        return np.asarray((clipped - self.offset) * self.scale)

    def outside(self, x: Reals) -> NDArray[np.bool_]:
        slack = 1e-9 * (self.upper - self.lower)
        result: NDArray[np.bool_] = (x < self.lower - slack) | (x > self.upper + slack)
        return result


@dataclass(frozen=True, eq=False)
class Round:
    """To whole numbers, halves to the even one."""

    def __call__(self, x: Reals) -> Reals:
        return np.rint(x)


@dataclass(frozen=True, eq=False)
class Quantise:
    """Tensors of any shape to multiples of unit in [low, high], halves to the even one: input and output of a model on a grid.

    The ends are the model's own (its quantiser saturates, encrypted or not), or `calibrated`: then `run_input_steps` reports values beyond.
    """

    unit: float
    low: float
    high: float
    calibrated: bool = False
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        _demand(self.unit > 0 and self.low <= self.high, "a positive unit and a range")

    def __call__(self, x: Any) -> Reals:
        return np.clip(np.rint(np.asarray(x, dtype=np.float64) / self.unit) * self.unit, self.low, self.high)

    def outside(self, x: Reals) -> NDArray[np.bool_]:
        """What rounding to the grid alone would not bring into the range."""
        slack = self.unit / 2 * (1 + 1e-9) if self.calibrated else math.inf
        result: NDArray[np.bool_] = (x < self.low - slack) | (x > self.high + slack)
        return result


@dataclass(frozen=True, eq=False)
class Compare:
    """Bit b of a sample: whether column feature[b] <= threshold[b] (< when strict); of a missing value missing[b]."""

    feature: Indices
    threshold: Reals
    missing: Indices  # 0 or 1
    strict: bool = False
    single: bool = False  # columns are rounded to float32 first

    def __post_init__(self) -> None:
        if not self.feature.shape == self.threshold.shape == self.missing.shape == (len(self.feature),):
            raise ValueError("expected a feature, a threshold and a direction for each comparison")
        _demand(bool((self.feature >= 0).all()), "features that exist")

    def __call__(self, x: Reals) -> Reals:
        columns = x.astype(np.float32).astype(np.float64) if self.single else x
        columns = columns[:, self.feature]
        holds = columns < self.threshold if self.strict else columns <= self.threshold
        return np.where(np.isnan(columns), self.missing, holds).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Bins:
    """Column c: how many comparisons with `threshold[start[c] : start[c + 1]]` (ascending) of column feature[c] fail; digits in base `radix`.

    Column c of the result is digit `digit[c]` of that count, the lowest first.
    """

    feature: Indices
    start: Indices
    threshold: Reals
    digit: Indices
    radix: int
    strict: bool = False
    single: bool = False

    def __post_init__(self) -> None:
        columns = (len(self.feature),)
        if not (self.feature.shape == self.digit.shape == columns and self.start.shape == (columns[0] + 1,)):
            raise ValueError("expected a feature, a digit and a range of thresholds for each column")
        if self.radix < 2 or (self.digit < 0).any():
            raise ValueError("expected digits of a radix of at least 2")
        _demand(int(self.digit.max(initial=0)) * math.log2(self.radix) < 62, "digits of numbers below 2^62")
        ends = np.concatenate([[0], self.start, [len(self.threshold)]])
        _demand(self.threshold.ndim == 1 and bool((np.diff(ends) >= 0).all()), "ranges of the thresholds")
        _demand(bool((self.feature >= 0).all()), "features that exist")

    def __call__(self, x: Reals) -> Reals:
        columns = x.astype(np.float32).astype(np.float64) if self.single else x
        out = np.empty((len(x), len(self.feature)))
        for c, feature in enumerate(self.feature):
            edges = self.threshold[self.start[c] : self.start[c + 1]]
            count = np.searchsorted(edges, columns[:, feature], side="right" if self.strict else "left")
            out[:, c] = count // self.radix ** int(self.digit[c]) % self.radix
        return out


# --- after decryption ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Integers:
    """To the nearest integer: the noise is gone."""

    stage: ClassVar[Stage] = "scores"

    def __call__(self, x: Reals) -> Reals:
        return np.rint(x)


@dataclass(frozen=True, eq=False)
class Wrap:
    """To the nearest integer, and that modulo `modulus` into [lowest[j], lowest[j] + modulus): a torus has no absolute integers."""

    lowest: Indices
    modulus: int
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        _demand(self.lowest.ndim == 1 and self.modulus > 0, "a lowest value for each output and a positive modulus")

    def __call__(self, x: Reals) -> Reals:
        result: Reals = np.remainder(np.rint(x) - self.lowest, self.modulus) + self.lowest
        return result


@dataclass(frozen=True, eq=False)
class Digits:
    """Output j, an integer, as digits in the mixed radix of its row of `radix` (ones at the end are skipped), the lowest first."""

    radix: Indices  # [outputs, most digits]
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        _demand(self.radix.ndim == 2 and bool((self.radix > 0).all()), "positive radices [outputs, most digits]")

    def __call__(self, x: Reals) -> Reals:
        columns = []
        for j, row in enumerate(self.radix):
            rest = x[:, j]
            for base in row[row > 1]:
                columns.append(rest % base)
                rest = rest // base
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Combine:
    """Groups added up: x matrix + offset; matrix [numbers, outputs]."""

    matrix: Reals
    offset: Reals
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        _demand(
            self.matrix.ndim == 2 and self.offset.shape == self.matrix.shape[1:],
            "a matrix and an offset for each output",
        )

    def __call__(self, x: Reals) -> Reals:
        result: Reals = x @ self.matrix + self.offset
        return result


@dataclass(frozen=True, eq=False)
class Transform:
    """A transform of models/tabular/transforms.py: sigmoid, softmax, exp, .."""

    name: str
    parameter: float = 1.0
    classes: bool = False
    stage: ClassVar[Stage] = "probabilities"

    def __post_init__(self) -> None:
        _demand(self.name in TRANSFORMS and self.parameter != 0, "a known transform with a parameter other than 0")

    def __call__(self, x: Reals) -> Reals:
        return TRANSFORMS[self.name](x, self.parameter, self.classes)


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of the largest score, the first of equal ones; of one column the second label above the threshold."""

    labels: NDArray[Any]
    threshold: float = 0.0
    stage: ClassVar[Stage] = "labels"

    def __post_init__(self) -> None:
        _check_labels(self.labels)

    def __call__(self, x: Reals) -> NDArray[Any]:
        if len(self.labels) != max(2, x.shape[1]):
            raise ShapeError(f"output: expected scores for {len(self.labels)} labels, got {x.shape[1]} columns")
        return self.labels[best_class(x, self.threshold)]


@dataclass(frozen=True, eq=False)
class Pick:
    """The label whose number the only output is: the arg-max was taken before decryption."""

    labels: NDArray[Any]
    stage: ClassVar[Stage] = "labels"

    def __post_init__(self) -> None:
        _check_labels(self.labels)

    def __call__(self, x: Reals) -> NDArray[Any]:
        number = np.rint(x[:, 0]).astype(np.int64)
        if ((number < 0) | (number >= len(self.labels))).any():
            raise ShapeError("output: expected the numbers of labels; the result is of another model or was damaged")
        return self.labels[number]


def _check_labels(labels: NDArray[Any]) -> None:
    _demand(labels.ndim == 1 and len(labels) > 0 and labels.dtype.kind in "biufU", "labels that are texts or numbers")


@dataclass(frozen=True, eq=False)
class Squeeze:
    """One output: [samples] instead of [samples, 1]."""

    stage: ClassVar[Stage] = "labels"

    def __call__(self, x: Reals) -> Reals:
        return x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x


InputStep: TypeAlias = (
    Columns
    | Categories
    | Impute
    | Complete
    | Standardise
    | Normalise
    | OneHot
    | Select
    | Saturate
    | Rescale
    | Round
    | Quantise
    | Compare
    | Bins
)
OutputStep: TypeAlias = Quantise | Integers | Wrap | Digits | Combine | Transform | Labels | Pick | Squeeze

_INPUT: Final[dict[str, type]] = {
    kind.__name__: kind
    for kind in (
        Columns,
        Categories,
        Impute,
        Complete,
        Standardise,
        Normalise,
        OneHot,
        Select,
        Saturate,
        Rescale,
        Round,
        Quantise,
        Compare,
        Bins,
    )
}
_OUTPUT: Final[dict[str, type]] = {
    kind.__name__: kind for kind in (Quantise, Integers, Wrap, Digits, Combine, Transform, Labels, Pick, Squeeze)
}


# Fields that files of earlier releases do not have.
_ADDED: Final[dict[str, dict[str, Any]]] = {"Quantise": {"calibrated": False}}


def run_input_steps(steps: Sequence[InputStep], x: Any, report: RangeReport | None = None) -> Reals:
    """Args: report: takes what lies beyond a calibrated range."""
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # what overflows is beyond every range; NaN is refused after the steps
        for i, step in enumerate(steps):
            if report is not None and isinstance(step, Saturate | Quantise | Rescale):
                numbers = real_numbers(x)
                report.add(step.outside(numbers), column_labels(steps[:i], numbers))
            x = step(x)
    result: Reals = x
    return result


def column_labels(before: Sequence[InputStep], x: Reals) -> tuple[str, ...] | None:
    """What to call the columns of a table x after these steps; None where x is no table."""
    if x.ndim != 2:
        return None
    labels: tuple[str, ...] = ()
    for step in before:
        if isinstance(step, Columns | Categories):
            labels = feature_labels(step.names, step.count)
        elif not labels:
            continue
        elif isinstance(step, Select):
            labels = tuple(labels[i] for i in step.columns)
        elif isinstance(step, OneHot):
            labels = tuple(
                f"{label}[{k}]" if size else label
                for label, size in zip(labels, step.sizes.tolist(), strict=True)
                for k in range(max(size, 1))
            )
    return labels if len(labels) == x.shape[1] else feature_labels(None, x.shape[1])


def run_output_steps(steps: Sequence[OutputStep], values: NDArray[Any], until: Stage = "labels") -> NDArray[Any]:
    """Stops before the first step of a later stage. Labels come from scores, so that saturated probabilities are no ties."""
    if until not in STAGES:
        raise ShapeError(f"output: expected one of {', '.join(STAGES)}, got '{until}'")
    if until == "labels" and any(isinstance(step, Labels) for step in steps):
        steps = [step for step in steps if step.stage != "probabilities"]
    for step in steps:
        if STAGES.index(step.stage) > STAGES.index(until):
            break
        values = step(values)
    return values


def takes_table(steps: Sequence[InputStep]) -> bool:
    """Whether the first step checks a table of columns; the others take any tensor."""
    return bool(steps) and isinstance(steps[0], Columns | Categories)


def example_row(steps: Sequence[InputStep]) -> Any | None:
    """A table of one sample that the first step takes; None where it takes anything."""
    first = steps[0] if steps else None
    if not isinstance(first, Columns | Categories):
        return None
    row = np.zeros((1, first.count), dtype=object)
    if isinstance(first, Categories):
        for column, known in zip(first.columns, first.known, strict=True):
            row[0, column] = known[0] if known else 0
    return row


def final_steps(transform: str, parameter: float, labels: NDArray[Any] | None) -> tuple[OutputStep, ...]:
    """What follows the scores of a TreeEnsemble or a LinearModel."""
    last: OutputStep = Squeeze() if labels is None else Labels(labels, class_threshold(transform))
    return Transform(transform, float(parameter), labels is not None), last


# --- JSON ------------------------------------------------------------------------------------------------------------------------


def steps_to_fields(steps: Sequence[InputStep | OutputStep]) -> list[dict[str, Any]]:
    """For JSON: {"step": name, field: value, ..}; real numbers exactly."""
    return [
        {"step": type(step).__name__, **{f.name: _plain(getattr(step, f.name)) for f in _fields(step)}}
        for step in steps
    ]


def input_steps_from_fields(fields: Any) -> tuple[InputStep, ...]:
    """ValueError or KeyError for anything that `steps_to_fields` does not write."""
    steps = tuple(_step(_INPUT, entry) for entry in typed.entries(fields, _MOST_STEPS))
    first = steps[:1] if not steps or isinstance(steps[0], Columns | Categories | Quantise | Rescale) else ()
    if len(first) != min(1, len(steps)) or any(isinstance(step, Columns | Categories) for step in steps[1:]):
        raise ValueError("a table's columns are checked in the first step")
    return steps


def output_steps_from_fields(fields: Any) -> tuple[OutputStep, ...]:
    """ValueError or KeyError for anything that `steps_to_fields` does not write."""
    steps = tuple(_step(_OUTPUT, entry) for entry in typed.entries(fields, _MOST_STEPS))
    stages = [STAGES.index(step.stage) for step in steps]
    _demand(stages == sorted(stages), f"steps in the order {', '.join(STAGES)}")
    return steps


def _fields(step: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(step)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def _step(kinds: dict[str, type], entry: Any) -> Any:
    if not isinstance(entry, dict):
        raise ValueError("expected a step with its fields")
    kind = kinds[typed.text(entry["step"])]
    known = {f.name: str(f.type) for f in dataclasses.fields(kind)}
    given = {**_ADDED.get(kind.__name__, {}), **entry}
    if set(given) - {"step"} != set(known):
        raise ValueError(f"step {kind.__name__}: other fields than {sorted(known)}")
    return kind(**{name: _value(given[name], kind_of, name) for name, kind_of in known.items()})


def _value(value: Any, kind: str, name: str) -> Any:
    """A field of a dataclass from JSON by its annotation."""
    if kind == "Reals":
        return typed.reals(value, finite=name != "threshold")
    if kind.startswith("NDArray"):
        return typed.labels(value)
    if kind.startswith("tuple"):
        if value is None:
            return None
        values = typed.entries(value, _MOST_COLUMNS)
        return tuple(tuple(_entry(e) for e in v) if isinstance(v, list) else _entry(v) for v in values)
    if kind == "int":
        return typed.integer(value, -typed.LARGEST_INTEGER)
    return {"Indices": typed.indices, "float": typed.real, "str": typed.text, "bool": typed.flag}[kind](value)


def _entry(value: Any) -> Any:
    return typed.text(value) if isinstance(value, str) else value
