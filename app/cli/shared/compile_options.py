"""Options of `cloakwork compile`: the fields of `cloakwork.Options`, by the same names with dashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Annotated, Any, Final

import typer

from cloakwork.app.cli.shared.console import WrongCallError
from cloakwork.app.cli.shared.parameter_sets import STRUCTURED_HELP
from cloakwork.models.criteria.noise_limits import Profile
from cloakwork.models.errors import CompileError
from cloakwork.models.options import Options

_NETWORKS, _TREES, _KEYS = "Options of networks", "Options of trees", "Options of keys"

AccuracyOption = Annotated[
    float | None,
    typer.Option(
        "--accuracy",
        help="Require this agreement with the clear model on the samples, from 0 to 1; 0 accepts any (default: 0.97).",
    ),
]
PrecisionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--precision",
        metavar="[LAYER=]VALUE",
        help="Allow look-ups this much noise: auto, fast (2 %), balanced (1 %), a number in per cent, exact, or exact_64; may be repeated "
        "for layers (default: auto).",
    ),
]
TaskOption = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="[OUTPUT=]TASK",
        help="Keep what matters in classification, regression or embedding; may be repeated for outputs (default: inferred from the model).",
    ),
]
TellOption = Annotated[
    str | None,
    typer.Option(
        "--tell",
        metavar="scores|labels",
        help="Let clients of a classifier decrypt its scores, or only labels, which takes more bootstraps (default: scores).",
    ),
]
RangeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="NAME=LOW:HIGH",
        help="Give the range of a feature (by name or number) or an input, instead of what the samples show; may be repeated.",
    ),
]
MarginOption = Annotated[
    float | None,
    typer.Option(
        "--margin",
        help="Keep this share of half the samples' range free on either side, 0 to 1 (default: as the samples suggest).",
    ),
]
PFailOption = Annotated[
    float | None,
    typer.Option(
        "--p-fail-log2",
        help="Limit the probability of a wrong look-up of trees or linear models to 2^NUMBER (default: -128).",
    ),
]

AllowLossOption = Annotated[
    bool,
    typer.Option(
        "--allow-loss",
        rich_help_panel=_NETWORKS,
        help="Write the most accurate program even if it is below --accuracy.",
    ),
]
OutputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        metavar="NAME",
        rich_help_panel=_NETWORKS,
        help="Compute only this output; may be repeated (default: all).",
    ),
]
WeightBitsOption = Annotated[
    int | None,
    typer.Option(
        "--weight-bits",
        rich_help_panel=_NETWORKS,
        help="Quantise weights to at least N bits, 2 to 8 (default: as the accuracy needs).",
    ),
]
InputBitsOption = Annotated[
    int | None,
    typer.Option(
        "--input-bits",
        rich_help_panel=_NETWORKS,
        help="Quantise inputs to N bits: of linear models and exact networks (default: as the accuracy needs).",
    ),
]
ActivationBitsOption = Annotated[
    int | None,
    typer.Option(
        "--activation-bits",
        rich_help_panel=_NETWORKS,
        help="Quantise results of look-ups to N bits, with exact precision (default: as the accuracy needs).",
    ),
]
AccumulatorBitsOption = Annotated[
    int | None,
    typer.Option(
        "--accumulator-bits",
        rich_help_panel=_NETWORKS,
        help="Round larger accumulators to N bits, with exact precision (default: they are refused).",
    ),
]
AccumulatorRangesOption = Annotated[
    str | None,
    typer.Option(
        "--accumulator-ranges",
        metavar="interval|calibrated",
        rich_help_panel=_NETWORKS,
        help="Size exact accumulators so that none can wrap, or as the samples show (default: interval).",
    ),
]
RoundingOption = Annotated[
    str | None,
    typer.Option(
        "--rounding",
        metavar="real|onnxruntime",
        rich_help_panel=_NETWORKS,
        help="Round quantised networks as real numbers do, or bit for bit as ONNX Runtime (default: real).",
    ),
]

ThresholdsOption = Annotated[
    str | None,
    typer.Option(
        "--thresholds",
        metavar="grid|server|client",
        rich_help_panel=_TREES,
        help="Keep thresholds on the server: with a public grid from --samples, or with small uploads and more bootstraps (server); or tell "
        "every client all of them, at no cost (default: grid).",
    ),
]
GridOption = Annotated[
    str | None,
    typer.Option(
        "--grid",
        metavar="KIND",
        rich_help_panel=_TREES,
        help="Place the points of the public grid: auto, integers, categories, uniform or quantiles (default: auto).",
    ),
]
GridBitsOption = Annotated[
    int | None,
    typer.Option(
        "--grid-bits",
        rich_help_panel=_TREES,
        help="Use at most 2^N - 1 points for each feature, N from 1 to 16 (default: as the accuracy needs).",
    ),
]
LeafBitsOption = Annotated[
    int | None,
    typer.Option(
        "--leaf-bits", rich_help_panel=_TREES, help="Quantise leaves to N bits (default: 8, or as the noise allows)."
    ),
]

SetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SET",
        rich_help_panel=_KEYS,
        help="Choose from this parameter set; may be repeated (default: all ordinary sets).",
    ),
]
AllowStructuredOption = Annotated[bool, typer.Option("--structured", rich_help_panel=_KEYS, help=STRUCTURED_HELP)]
BodiesOption = Annotated[
    int | None,
    typer.Option(
        "--bodies",
        metavar="1|2",
        rich_help_panel=_KEYS,
        help="Put one or two samples of a network into a ciphertext; with 2 batches take less time, a single sample costs as much as two "
        "(default: 1).",
    ),
]

_FLAGS: Final = {"sets": "--set", "outputs": "--output", "ranges": "--range"}
_NAMES: Final = frozenset(each.name for each in fields(Options))
_WORD: Final = re.compile(r"\w+")


def given(**options: Any) -> dict[str, Any]:
    """Keep the options that the call has."""
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def named_as_options() -> Iterator[None]:
    """Errors about fields of `Options` become wrong calls, with the names of the command line."""
    try:
        yield
    except CompileError as error:
        names, colon, rest = str(error).partition(": ")
        words = names.split(", ")
        if type(error) is not CompileError or not colon or not _NAMES.issuperset(words):
            raise
        if rest.startswith("no option of"):
            rest = _WORD.sub(lambda word: _flag(word[0]) if word[0] in _NAMES else word[0], rest)
        raise WrongCallError(f"{', '.join(map(_flag, words))}: {rest}") from error


def _flag(name: str) -> str:
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def precisions(texts: list[str] | None) -> Profile | dict[str, Profile] | None:
    """Read LAYER=VALUE for some layers, and one VALUE for all others."""
    named = {layer: _precision(value) for layer, _, value in (text.rpartition("=") for text in texts or ())}
    if len(named) < len(texts or ()):
        raise WrongCallError("--precision: expected at most one for each layer, and one for all the others")
    if "" in named:
        named["*"] = named.pop("")
    return named.get("*") if named.keys() <= {"*"} else named


def _precision(text: str) -> Profile:
    try:
        return float(text)
    except ValueError:
        return text


def tasks(texts: list[str] | None) -> Any:
    """Read one task for all outputs, or OUTPUT=TASK for some."""
    named = {name: task for name, _, task in (text.rpartition("=") for text in texts or ())}
    if len(named) < len(texts or ()) or ("" in named and len(named) > 1):
        raise WrongCallError("--task: expected one for all outputs, or one OUTPUT=TASK for each of some")
    return named.get("", named) or None


def read_ranges(texts: list[str] | None) -> dict[str | int, tuple[float, float]]:
    """Read NAME=LOW:HIGH, in which a name of digits is a number."""
    ends: dict[str | int, tuple[float, float]] = {}
    for text in texts or ():
        name, _, values = text.rpartition("=")
        key = int(name) if name.isdecimal() and len(name) < 10 else name
        pair = _pair(values)
        if not name or pair is None or key in ends:
            raise WrongCallError(
                f"--range: expected one NAME=LOW:HIGH for each of some features, such as age=0:120, got '{text}'"
            )
        ends[key] = pair
    return ends


def _pair(text: str) -> tuple[float, float] | None:
    low, _, high = text.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        return None
