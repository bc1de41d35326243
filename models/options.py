"""`Options`: everything that can be asked of `cloakwork.compile`, and which kind of model each option is for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.criteria.feature_ranges import FeatureRanges
from cloakwork.models.criteria.noise_limits import AUTO, Profile
from cloakwork.models.criteria.verdicts import Comparisons, Grids, Task
from cloakwork.models.errors import CompileError
from cloakwork.models.onnx_import.context import Rounding

DEFAULT_ACCURACY: Final = 0.97
AccumulatorRanges: TypeAlias = Literal["interval", "calibrated"]
T = TypeVar("T")
ModelKind: TypeAlias = Literal["network", "trees", "linear", "batch", "neighbours"]

KINDS: Final[Mapping[ModelKind, str]] = {
    "network": "a network",
    "trees": "trees",
    "linear": "a linear model",
    "batch": "a model for batches",
    "neighbours": "nearest neighbours",
}

_EVERY: Final = frozenset(KINDS)
_NETWORK: Final = frozenset({"network"})
_TREES: Final = frozenset({"trees"})
_LOOKUPS: Final = frozenset({"network", "trees", "linear"})

APPLIES: Final[Mapping[str, frozenset[str]]] = {
    "accuracy": _EVERY,
    "allow_loss": _NETWORK,
    "task": _NETWORK,
    "outputs": _NETWORK,
    "batch": frozenset({"batch"}),
    "precision": _NETWORK,
    "weight_bits": _NETWORK,
    "input_bits": _NETWORK | {"linear", "batch", "neighbours"},
    "activation_bits": _NETWORK,
    "accumulator_bits": _NETWORK,
    "accumulator_ranges": _NETWORK,
    "rounding": _NETWORK,
    "margin": _NETWORK | {"linear", "batch"},
    "leaf_bits": _TREES,
    "grid": _TREES,
    "grid_bits": _TREES,
    "p_fail_log2": _TREES | {"linear"},
    "tell": _LOOKUPS,
    "thresholds": _TREES,
    "ranges": _LOOKUPS | {"batch"},
    "sets": _LOOKUPS,
    "structured": _LOOKUPS,
    "bodies": _NETWORK,
    "device": _EVERY,
    "packing": frozenset({"batch"}),
    "cells": frozenset({"neighbours"}),
    "probes": frozenset({"neighbours"}),
}
"""The kinds of model that take each option."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `cloakwork.compile`. An option that the model's kind does not have is refused.

    Goal:
        accuracy: minimum agreement with the clear model on the samples: the share of equal labels, or of the values' spread that is kept. It has to
            hold at the lower end of a 95 % confidence interval. 0: not checked.
        allow_loss: (networks) return the most accurate program with a warning if none reaches the accuracy.
        task: (networks) "classification", "regression" or "embedding", or one of them by the name of each output. None: inferred from the model.
        outputs: (networks) names of the outputs to compute. None: all.
        batch: (linear models, support vector machines) compile for this many samples at once.

    Precision:
        precision: (networks) noise that a look-up may have: "auto" as the accuracy allows, "fast" 2 %, "balanced" 1 %, or a number in per cent of
            the half torus; "exact" or "exact_64": integers that fail with a probability of at most 2^-128 or 2^-64. Or by the names of layers,
            with "*" for the others.
        weight_bits: (networks) minimum bits of the largest weight of each layer, 2 to 8. None: as the accuracy needs.
        input_bits: bits of an encrypted feature. None: as the accuracy needs. Of networks with exact precision only.
        activation_bits: (networks, exact) bits of the results of look-ups. None: from 3 on, as the accuracy needs.
        accumulator_bits: (networks, exact) round accumulators with more values to this many bits. None: never.
        accumulator_ranges: (networks, exact) "interval": no accumulator can wrap; "calibrated": as large as the samples showed.
        rounding: (quantised networks) "real", or "onnxruntime" for the integers of ONNX Runtime's kernels.
        margin: share of the calibrated half range that stays free on either side, 0 to 1. None: chosen for the kind.
        leaf_bits: (trees) bits of leaf values. None: 8, or what the noise allows.
        grid, grid_bits: (trees) the public grid of thresholds: "auto", "integers", "categories", "uniform", "quantiles" or points, for all
            features or by name; and bits of points, 1 to 16. None: as the accuracy needs.
        p_fail_log2: (trees, linear models) log2 of the largest failure probability of a look-up or an output.

    Disclosure:
        tell: what the client decrypts of a classifier: "scores", or "labels" only, which takes more bootstraps.
        thresholds: (trees) "grid": thresholds stay on the server, clients know a grid; "server": likewise, with small uploads and more bootstraps;
            "client": every client learns all thresholds, at no cost.
        ranges: lowest and highest value of features by name or number, instead of what the samples show.

    Keys and device:
        sets: parameter sets to choose from, by name. None: every standard one.
        structured: take sets with a block-binary key too: faster, with a further assumption (docs/reference/parameters.md).
        bodies: (networks) samples in one ciphertext, 1 or 2.
        device: computes `predict(how="encrypted")` of the compiled model: "cpu", "cuda" or "cuda:N". Programs are the same for every device;
            files do not keep it.
        packing: (batches) "slots", one sample a slot, or "ciphertexts", one ciphertext a sample. None: the cheaper.
        cells, probes: (nearest neighbours) minimum number of cells of the table, or "auto", and cells that a query asks for. None: no cells.
    """

    accuracy: float = DEFAULT_ACCURACY
    allow_loss: bool = False
    task: Task | Mapping[str, Task] | None = None
    outputs: Sequence[str] | None = None
    batch: int | None = None
    precision: Profile | Mapping[str, Profile] = AUTO
    weight_bits: int | None = None
    input_bits: int | None = None
    activation_bits: int | None = None
    accumulator_bits: int | None = None
    accumulator_ranges: AccumulatorRanges = "interval"
    rounding: Rounding = "real"
    margin: float | None = None
    leaf_bits: int | None = None
    grid: Grids = "auto"
    grid_bits: int | None = None
    p_fail_log2: float = -128.0
    tell: Literal["scores", "labels"] = "scores"
    thresholds: Comparisons = "grid"
    ranges: FeatureRanges | None = None
    sets: Sequence[str | ParameterSet] | None = None
    structured: bool = False
    bodies: int = 1
    device: str = "cpu"
    packing: Literal["slots", "ciphertexts"] | None = None
    cells: int | Literal["auto"] | None = None
    probes: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.sets, str | ParameterSet):
            object.__setattr__(self, "sets", (self.sets,))
        for name in _SHARES:
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise CompileError(f"{name}: expected a share from 0 to 1, got {share!r}")
        for task in self.task.values() if isinstance(self.task, Mapping) else (self.task,):
            if task is not None and task not in get_args(Task):
                raise CompileError(f"task: expected one of {', '.join(map(repr, get_args(Task)))}, got {task!r}")
        if _DEVICE.fullmatch(str(self.device)) is None:
            raise CompileError(f"device: expected 'cpu', 'cuda' or 'cuda:N', got {self.device!r}")
        for name, values in _WORDS.items():
            if getattr(self, name) not in values:
                listed = ", ".join(map(repr, values))
                raise CompileError(f"{name}: expected one of {listed}, got {getattr(self, name)!r}")

    @classmethod
    def of(cls, options: Options | None, named: Mapping[str, Any]) -> Options:
        """Returns the options that are given, or those of keywords. CompileError: both, or a name that no option has."""
        known = [each.name for each in fields(cls)]
        for name in named:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(known)}"
                raise CompileError(f"options: there is no option '{name}'; {hint}")
        if options is None:
            return cls(**named)
        if named:
            raise CompileError(f"options: got an Options and {', '.join(named)} beside it; expected one or the other")
        return options

    def given(self) -> dict[str, Any]:
        """Returns options that are not at their default."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default}

    def check(self, kind: ModelKind) -> None:
        """Raises CompileError for an option that this kind of model does not have."""
        strange = [name for name in self.given() if kind not in APPLIES[name]]
        if strange:
            owners = " and ".join(KINDS[each] for each in KINDS if each in APPLIES[strange[0]])
            applicable = ", ".join(name for name in APPLIES if kind in APPLIES[name])
            raise CompileError(
                f"{', '.join(strange)}: no option of {KINDS[kind]} (but of {owners}); expected {applicable}, or none of them"
            )


def on_device(model: T, options: Options) -> T:
    """Returns a compiled model that computes on the device of the options."""
    return model if options.device == "cpu" else replace(model, device=options.device)  # type: ignore[type-var]


_DEVICE: Final = re.compile(r"cpu|cuda(?::\d+(?:,\d+)*)?")
_SHARES: Final = ("accuracy", "margin")
_WORDS: Final[Mapping[str, tuple[Any, ...]]] = {
    "tell": ("scores", "labels"),
    "thresholds": get_args(Comparisons),
    "rounding": get_args(Rounding),
    "accumulator_ranges": get_args(AccumulatorRanges),
    "bodies": (1, 2),
    "packing": (None, "slots", "ciphertexts"),
}
