"""Facts of a program about the model that it was made of: typed, and as plain fields of files, reports and the service's answers.

A field is written under its own name, or under the `key` of its metadata where files call it otherwise. Of files of other releases fields that are
not known are kept (`Facts.others`); those that are known are refused where they are not of their kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, get_args

from cloakwork.models import fields as typed

Measure: TypeAlias = Literal[
    "agreement", "closeness", "cosine", "determination"
]  # the last: of grids, and earlier releases
Told: TypeAlias = Literal["labels", "values", "cosines"]
Tell: TypeAlias = Literal["scores", "labels"]
Numbers: TypeAlias = Mapping[str, float]
Counts: TypeAlias = Mapping[str, int]
Texts: TypeAlias = tuple[str, ...]

AGREEMENT_FIELDS: Final = (
    "measure",
    "agreement",
    "samples",
    "at_least",
)  # of GridFacts, which depend on the thresholds


@dataclass(frozen=True)
class _Record:
    """A record, written in the order of files; fields with a default may be missing, and are not written while they are None or empty."""

    kind: ClassVar[str | None] = None  # written as a field of its own

    def to_fields(self) -> dict[str, Any]:
        values = {key: getattr(self, each.name) for key, each in self.keys().items()}
        absent = {key for key, each in self.keys().items() if _may_be_missing(each) and values[key] in (None, {})}
        kind = {} if self.kind is None else {"kind": self.kind}
        return dict(sorted((kind | {key: _plain(v) for key, v in values.items() if key not in absent}).items()))

    @classmethod
    def taken(cls, rest: dict[str, Any]) -> Self:
        """Takes its fields, which leave `rest`. ValueError where one is missing, or not of its kind."""
        missing = [key for key, each in cls.keys().items() if key not in rest and not _may_be_missing(each)]
        _demand(not missing, ", ".join(missing))
        given = {e.name: _READERS[str(e.type)](rest.pop(key)) for key, e in cls.keys().items() if key in rest}
        if cls.kind is not None:
            rest.pop("kind")
        return cls(**given)

    @classmethod
    def keys(cls) -> dict[str, dataclasses.Field[Any]]:
        """Returns fields by what files call them."""
        return {each.metadata.get("key", each.name): each for each in dataclasses.fields(cls)}


@dataclass(frozen=True)
class TreeFacts(_Record):
    """Facts of an ensemble of trees. Failure probabilities: log2, of a sample, of the worst look-up and of decoding the worst output."""

    kind: ClassVar[str | None] = "trees"
    trees: int
    depth: int
    comparisons: int
    comparisons_by: str  # client or server
    comparison_bits: int
    features_compared: int
    bootstraps_one_per_node: int
    leaf_bits: int
    leaf_rounding_error: float
    outputs: int
    p_fail_log2: float
    lookup_p_fail_log2: float
    output_p_fail_log2: float
    bootstraps_of_flags: int | None = None  # None: by a release that did not count them
    bootstraps_of_leaves: int | None = None

    def __post_init__(self) -> None:
        _demand(self.outputs > 0, "outputs")


@dataclass(frozen=True)
class GridFacts(_Record):
    """Facts of the public grid with which clients compare features, or on which they say where theirs are. `measure`, `agreement` and `samples` say
    how the trees on the grid agree with the original ones, between samples too; "closeness" as `verdict_of` of original/agreement.py."""

    bits: int
    points: int  # of all features
    sent: int  # bits of a sample, or numbers of digit_bits
    kinds: Counts  # features by kind
    measure: Measure | None = None
    agreement: float | None = None
    samples: int | None = None
    digit_bits: int | None = None  # of positions, which the server compares; None: clients send comparisons
    at_least: float | None = (
        None  # lower end of the agreement's confidence interval; None: by a release that did not say it
    )


@dataclass(frozen=True)
class LinearFacts(_Record):
    """Facts of a linear model without bootstraps."""

    kind: ClassVar[str | None] = "linear"
    features: int
    outputs: int
    feature_bits: int
    weight_bits: int
    p_fail_log2: float  # of decoding one output

    def __post_init__(self) -> None:
        _demand(self.outputs > 0, "outputs")


@dataclass(frozen=True)
class ExactFacts(_Record):
    """Facts of a network with look-ups on integers; layers by the names of linear nodes."""

    p_fail_log2_limit: float = field(metadata={"key": "failure_log2_limit"})  # that was asked for of one look-up
    values: Counts  # of the accumulators of every layer
    rounded: Texts  # layers whose look-ups see fewer
    calibrated_ranges: Texts  # layers whose values wrap beyond what calibration showed
    results_rounded: Texts | None = (
        None  # functions of a network of integers whose results are on no grid of its own; None: there are none
    )
    activation_bits: int | None = None  # that these are rounded to


@dataclass(frozen=True)
class VerdictFacts(_Record):
    """The verdict on one output; see verdicts.Verdict."""

    measure: Measure
    value: float
    at_least: float | None = None  # None: by a release that did not say it


@dataclass(frozen=True)
class CheckFacts(_Record):
    """Results of the compiler's check of its own work, on the worst output; see accuracy.Check and accuracy.Losses."""

    measure: Measure
    value: float
    samples: int
    layers: Numbers  # relative error of each linear layer's results
    outside_share: float
    outside_share_at_most: float
    asked: float
    outputs: Mapping[str, VerdictFacts] = field(default_factory=dict)  # of several
    at_least: float | None = (
        None  # lower end of the value's confidence interval; None: by a release that did not say it
    )
    unseen: int | None = None  # samples of these that ranges and roundings have not seen; None: as well


@dataclass(frozen=True)
class OriginalFacts(_Record):
    """Agreement of the program with the user's own model: the share of labels; of values one less the error's share of their spread, of embeddings
    one less the error of the cosines between pairs."""

    told: Told
    value: float
    at_least: float  # the lower end of its confidence interval of 95 %
    samples: int

    @property
    def text(self) -> str:
        kept, at_least = 100 * self.value, 100 * self.at_least
        if self.told == "labels":
            return f"as your model: {kept:.1f} % of labels ({self.samples} samples, at least {at_least:.1f} %)"
        what, of = ("values", " of their spread") if self.told == "values" else ("cosines between pairs", "")
        return f"as your model: {what} off by {100 - kept:.2g} %{of} ({self.samples} samples, at most {100 - at_least:.2g} %)"


@dataclass(frozen=True)
class Facts:
    """All that is known; None for the kinds of model that a program is not."""

    trees: TreeFacts | None = None
    linear: LinearFacts | None = None
    exact: ExactFacts | None = None
    check: CheckFacts | None = None
    grid: GridFacts | None = None  # of trees
    tell: Tell = "scores"  # what the client decrypts
    estimator: str | None = None  # class of cloakwork.estimators
    offset: float | None = None  # of an IsolationForest's scores
    original: OriginalFacts | None = None
    others: Mapping[str, Any] = field(default_factory=dict)  # plain values that another release wrote

    def to_fields(self) -> dict[str, Any]:
        """Returns the fields for JSON, in the order of files; what is not known is left out."""
        fields = dict(self.others)
        for model in (self.trees, self.linear, self.exact):
            fields |= {} if model is None else model.to_fields()
        optional = {
            "check": None if self.check is None else self.check.to_fields(),
            "estimator": self.estimator,
            "grid": None if self.grid is None else self.grid.to_fields(),
            "offset": self.offset,
            "original": None if self.original is None else self.original.to_fields(),
            "tell": None if self.tell == "scores" else self.tell,
        }
        fields |= {name: value for name, value in optional.items() if value is not None}
        return dict(sorted(fields.items()))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Facts:
        """Raises ValueError where a field that is known is missing, or is not of its kind."""
        rest, kind = dict(fields), fields.get("kind")
        return cls(
            TreeFacts.taken(rest) if kind == TreeFacts.kind else None,
            LinearFacts.taken(rest) if kind == LinearFacts.kind else None,
            ExactFacts.taken(rest) if ExactFacts.keys().keys() & rest.keys() else None,
            CheckFacts.taken(_object(rest.pop("check"))) if "check" in rest else None,
            GridFacts.taken(_object(rest.pop("grid"))) if "grid" in rest else None,
            _tell(rest),
            typed.text(rest.pop("estimator")) if "estimator" in rest else None,
            _number(rest.pop("offset")) if "offset" in rest else None,
            OriginalFacts.taken(_object(rest.pop("original"))) if "original" in rest else None,
            rest,
        )


# --- plain values ----------------------------------------------------------------------------------------------------------------


def _may_be_missing(each: dataclasses.Field[Any]) -> bool:
    return each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING


def _plain(value: Any) -> Any:
    if isinstance(value, _Record):
        return value.to_fields()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _demand(condition: bool, names: str) -> None:
    if not condition:
        raise ValueError(f"facts: expected others than {names}")


def _object(value: Any) -> dict[str, Any]:
    """Returns a copy."""
    _demand(isinstance(value, dict), "a value in place of an object")
    return dict(value)


def _number(value: Any) -> Any:
    """Finite; as it is written, so that a file that is read and written keeps its bytes: 1 is no 1.0."""
    typed.real(value)
    return value


def _measure(value: Any) -> Any:
    _demand(value in get_args(Measure), "measure")
    return value


def _tell(rest: dict[str, Any]) -> Tell:
    """Takes what the client decrypts, which 0.2 wrote as a flag. ValueError: neither scores nor labels."""
    if "tell" in rest:
        tell = rest.pop("tell")
        _demand(tell in get_args(Tell), "tell")
        return "labels" if tell == "labels" else "scores"
    return "labels" if typed.flag(rest.pop("encrypted_argmax", False)) else "scores"


def _told(value: Any) -> Any:
    _demand(value in get_args(Told), "told")
    return value


# By the annotation of a field.
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "Counts": lambda value: {name: typed.integer(each) for name, each in _object(value).items()},
    "Mapping[str, VerdictFacts]": lambda value: {
        name: VerdictFacts.taken(_object(each)) for name, each in _object(value).items()
    },
    "Measure": _measure,
    "Measure | None": lambda value: None if value is None else _measure(value),
    "Numbers": lambda value: {name: _number(each) for name, each in _object(value).items()},
    "Texts": lambda value: tuple(map(typed.text, typed.entries(value))),
    "Texts | None": lambda value: None if value is None else tuple(map(typed.text, typed.entries(value))),
    "Told": _told,
    "float": _number,
    "float | None": lambda value: None if value is None else _number(value),
    "int": typed.integer,
    "int | None": lambda value: None if value is None else typed.integer(value),
    "str": typed.text,
}
