"""`cloakwork compile`, `inspect`, `zoo`: from an ONNX model to a program, and what a program costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cloakwork.app.cli.shared.console import (
    JsonOption,
    ProgressCallback,
    WrongCallError,
    progress,
    standard_error,
    write_json,
)
from cloakwork.app.cli.shared.data_sets import load_inputs
from cloakwork.app.cli.shared.failures import of_file, reading
from cloakwork.app.cli.shared.model_files import ModelArgument, find_any_model
from cloakwork.app.cli.shared.output_files import ForceOption, refuse_overwriting
from cloakwork.app.cli.shared.parameter_sets import CommonMaskOption, StructuredKeysOption, find_agreed_set
from cloakwork.app.cli.shared.program import shows_first
from cloakwork.app.cli.shared.tables import Column, emit, folded, number, print_rows, print_text
from cloakwork.fhe_core.files import atomic_writer
from cloakwork.models import zoo
from cloakwork.models.calibration import Calibration
from cloakwork.models.compile.pipeline import APPROXIMATE
from cloakwork.models.compiler import CompiledModel, ExactSettings, TreeComparisons, compile_onnx
from cloakwork.models.criteria.noise_limits import Profile
from cloakwork.models.graph.ir import Graph
from cloakwork.models.model import Model
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.report import graph_text, summary

_EXACT_HELP = "Profile exact: "
InputBits = Annotated[
    int | None, typer.Option("--input-bits", help=f"{_EXACT_HELP}bits of the input, from 4 on by default.")
]
ActivationBits = Annotated[
    int | None,
    typer.Option("--activation-bits", help=f"{_EXACT_HELP}bits of results of look-ups, from 3 on by default."),
]
RoundedBits = Annotated[
    int | None,
    typer.Option(
        "--rounded-bits", help=f"{_EXACT_HELP}round accumulators with more values to this many bits, or refuse them."
    ),
]
RangesOption = Annotated[
    str | None, typer.Option("--ranges", help=f"{_EXACT_HELP}of accumulators, interval (never wrap) or calibrated.")
]
_TREES_HELP = "Trees: "
ComparisonsOption = Annotated[
    str | None,
    typer.Option(
        "--comparisons",
        help=f"{_TREES_HELP}grid (thresholds stay on the server, needs --calibration), server (they do too; small uploads, more bootstraps) or "
        "client (every client is told all thresholds). Default grid.",
    ),
]
GridOption = Annotated[
    str | None,
    typer.Option(
        "--grid",
        help=f"{_TREES_HELP}grid that clients know: auto, integers, categories, uniform, quantiles. Default auto.",
    ),
]
GridBits = Annotated[
    int | None,
    typer.Option(
        "--grid-bits", help=f"{_TREES_HELP}at most 2^BITS - 1 grid points a feature. Without it 6 to 12, by need."
    ),
]
EncryptedArgmax = Annotated[
    bool,
    typer.Option(
        "--encrypted-argmax",
        help="Classifiers: the client decrypts the label and no score. That takes more bootstraps; networks get the profile exact.",
    ),
]
FeatureRange = Annotated[
    list[str] | None,
    typer.Option(
        "--feature-range",
        metavar="NAME=LOW:HIGH",
        help="Range of a feature (or its number), of an input of several, in place of what the samples show; may be repeated.",
    ),
]
RoundingOption = Annotated[
    str | None,
    typer.Option(
        "--rounding",
        help="Quantised networks (QDQ, QOperator): real, or onnxruntime: bit for bit as its integer kernels. Default real.",
    ),
]
ClientOutput = Annotated[
    Path | None,
    typer.Option("--client", help="Write the client specification too: how to encrypt, how to read results."),
]
StagesOption = Annotated[
    bool,
    typer.Option(
        "--stages", help="Print the graph after every step of the compiler that changes it (to standard error)."
    ),
]
PictureOutput = Annotated[Path | None, typer.Option("--picture", help="Draw the program here, as .svg.")]


# What `--help` shows of the options below; `--help-all` shows all.
SHOWN_FIRST: Final = (
    "--out",
    "--calibration",
    "--accuracy",
    "--profile",
    "--task",
    "--encrypted-argmax",
    "--client",
    "--force",
)


@shows_first(*SHOWN_FIRST)
def compile_model(
    source: Annotated[str, typer.Argument(metavar="MODEL", help="An ONNX file, or a model of the zoo.")],
    output: Annotated[Path, typer.Option("--out", "-o", help="The compiled model.")],
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            help="A few hundred typical inputs [samples, ..] (.npy; of several inputs .npz by their names), or ranges (.json); quantised models "
            "need none.",
        ),
    ] = None,
    profiles: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            help="Noise that a look-up may see: auto, fast (2 %), balanced (1 %), a number in per cent, exact, exact_64; LAYER=PROFILE for one.",
        ),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(
            "--accuracy",
            help="Least share of calibration samples decided as in clear (of the variance, for regression); 0: whatever it is. Default 0.97.",
        ),
    ] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Write the most accurate program even when it is below --accuracy.")
    ] = False,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            help="classification, regression or embedding; OUTPUT=TASK for one of several outputs, may be repeated. Seen from the model without it.",
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", help="Compute this output of the model alone; may be repeated. By default all."),
    ] = None,
    weight_bits: Annotated[
        int | None, typer.Option("--weight-bits", help="Least bits of integer weights, 2 to 8.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option("--margin", help="Part of the calibrated range kept free on either side.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Parameter set to choose from; may be repeated.")
    ] = None,
    structured_keys: StructuredKeysOption = False,
    common_mask: CommonMaskOption = False,
    input_bits: InputBits = None,
    activation_bits: ActivationBits = None,
    rounded_bits: RoundedBits = None,
    ranges: RangesOption = None,
    comparisons: ComparisonsOption = None,
    grid: GridOption = None,
    grid_bits: GridBits = None,
    feature_ranges: FeatureRange = None,
    encrypted_argmax: EncryptedArgmax = False,
    rounding: RoundingOption = None,
    client: ClientOutput = None,
    picture: PictureOutput = None,
    stages: StagesOption = False,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Compile a model for encrypted inputs, and report its cost."""
    _check_picture(picture)
    refuse_overwriting(force, *(path for path in (output, client, picture) if path is not None))
    options: dict[str, Any] = {"weight_bits": weight_bits, "margin": margin, "accuracy": accuracy}
    options["task"] = _tasks(tasks) if tasks else None
    options["outputs"] = outputs or None
    options["allow_loss"] = allow_loss or None
    options["profile"] = _profiles(profiles) if profiles else None
    options["structured_keys"] = structured_keys or None
    options["common_mask"] = common_mask or None
    options["candidates"] = [find_agreed_set(name, structured_keys, common_mask) for name in sets] if sets else None
    exact = _given(input_bits=input_bits, activation_bits=activation_bits, rounded_bits=rounded_bits, ranges=ranges)
    options["exact"] = ExactSettings(**exact) if exact else None
    trees = _given(comparisons=comparisons, grid=grid, grid_bits=grid_bits)
    options["trees"] = TreeComparisons(**trees) if trees else None
    options["feature_ranges"] = _feature_ranges(feature_ranges) if feature_ranges else None
    options["encrypted_argmax"] = encrypted_argmax or None
    options["rounding"] = rounding
    with progress("compiling") as update:
        options["on_step"] = _Stages() if stages else _Bar(update)
        model = _compiled(source, calibration, _given(**options))
    model.save(output)
    _write_beside(model, client, picture)
    _show(model, json_path, {"compiled": str(output), "bytes": output.stat().st_size})


def inspect(
    model_name: ModelArgument,
    client: ClientOutput = None,
    picture: PictureOutput = None,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Report what a compiled model costs and what it tells."""
    _check_picture(picture)
    refuse_overwriting(force, *(path for path in (client, picture) if path is not None))
    model = find_any_model(model_name)
    _write_beside(model, client, picture)
    if isinstance(model, NeighbourIndex):
        emit({"model": model_name, **model.report()}, json_path, "Index")
    else:
        _show(model, json_path, {"model": model_name})


_ACCURACY = "Accuracy on held-out samples, in clear and encrypted."


def _zoo_row(card: zoo.Card) -> tuple[str, ...]:
    encrypted = card.facts.get("accuracy_simulated", card.facts.get("accuracy_quantised"))
    shares = (card.facts.get("accuracy_clear"), encrypted)
    return (
        card.name,
        card.data,
        *("" if share is None else f"{100 * share:.2f}" for share in shares),
        card.description,
    )


def list_zoo(json_path: JsonOption = None) -> None:
    """List the trained models that come with cloakwork."""
    cards = [zoo.card(name) for name in zoo.names()]
    if json_path != "-":
        columns = (Column("name"), Column("data"), number("clear, %"), number("encrypted, %"), folded("what it is"))
        print_rows("Models of the zoo", columns, [_zoo_row(each) for each in cards], [_ACCURACY])
    if json_path is not None:
        records = [
            {"name": c.name, "description": c.description, "data": c.data, "sha256": c.sha256, **c.facts} for c in cards
        ]
        write_json({"models": records}, json_path)


class _Bar:
    """How many steps of the compiler are done."""

    def __init__(self, update: ProgressCallback) -> None:
        self._update, self._done = update, 0

    def __call__(self, step: str, graph: Graph) -> None:
        self._done += 1
        self._update(self._done, max(1 + len(APPROXIMATE), self._done))


class _Stages:
    """Shows steps of the compiler, with the graph where one has changed it."""

    def __init__(self) -> None:
        self._before: list[str] = []

    def __call__(self, step: str, graph: Graph) -> None:
        lines, err = graph_text(graph), standard_error()
        changed = lines != self._before
        err.print(f"{step}: {summary(graph) if changed else 'nothing to do'}", markup=False, style="bold")
        for line in lines if changed else ():
            err.print(f"  {line}", markup=False, highlight=False)
        self._before = lines


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _profiles(texts: list[str]) -> Profile | dict[str, Profile]:
    """Those of layers as LAYER=PROFILE, one for all the others by itself."""
    named = {layer: _profile(value) for layer, _, value in (text.rpartition("=") for text in texts)}
    if len(named) < len(texts):
        raise WrongCallError("--profile: expected at most one for each layer, and one for all the others")
    if "" in named:
        named["*"] = named.pop("")
    return named["*"] if named.keys() == {"*"} else named


def _tasks(texts: list[str]) -> str | dict[str, str]:
    """One for all outputs, or OUTPUT=TASK for some."""
    named = {name: task for name, _, task in (text.rpartition("=") for text in texts)}
    if len(named) < len(texts) or ("" in named and len(named) > 1):
        raise WrongCallError("--task: expected one for all outputs, or one OUTPUT=TASK for each of some")
    return named.get("", named)


def _feature_ranges(texts: list[str]) -> dict[str | int, tuple[float, float]]:
    """Of NAME=LOW:HIGH, where a name of digits is a number."""
    found: dict[str | int, tuple[float, float]] = {}
    for text in texts:
        name, _, ends = text.rpartition("=")
        low, _, high = ends.partition(":")
        try:
            ends_of_range = float(low), float(high)
        except ValueError:
            name = ""
        key = int(name) if name.isdecimal() and len(name) < 10 else name
        if not name or key in found:
            raise WrongCallError(
                f"--feature-range: expected one NAME=LOW:HIGH for each of some features, such as age=0:120, got '{text}'"
            )
        found[key] = ends_of_range
    return found


def _profile(text: str) -> Profile:
    try:
        return float(text)
    except ValueError:
        return text


def _compiled(source: str, calibration: Path | None, options: dict[str, Any]) -> CompiledModel:
    """Calibrated by the file; a model of the zoo, which is not a file here, by the ranges that it brings."""
    path = Path(source)
    if not path.is_file():
        if source not in zoo.names():
            raise WrongCallError(
                f"there is no file '{source}', nor a model of that name in the zoo, which has {', '.join(zoo.names())}"
            )
        path = zoo.zoo_model(source)
        is_program = zoo.card(source).is_program
        if is_program and isinstance(options.get("on_step"), _Bar):  # it takes no options
            del options["on_step"]
        if calibration is None:
            return zoo.load_model(source, **options)
    else:
        is_program = path.suffix == zoo.PROGRAM
    if is_program:
        raise WrongCallError(f"{source} is compiled already; expected an ONNX file")
    samples = None if calibration is None else _calibration(calibration)
    with of_file(source):
        return compile_onnx(path, samples, **options)


def _calibration(path: Path) -> Any:
    if path.suffix == ".json":
        with reading(path, "ranges that calibrate a model"):
            return Calibration.from_json(path.read_bytes())
    return load_inputs(path)


def _check_picture(path: Path | None) -> None:
    if path is not None and path.suffix.lower() != ".svg":
        raise WrongCallError(f"--picture: the program is drawn as SVG; expected a name that ends in .svg, got '{path}'")


def _write_beside(model: Model, client: Path | None, picture: Path | None) -> None:
    if picture is not None and not isinstance(model, CompiledModel):
        raise WrongCallError("--picture: only programs of look-ups have a picture")
    if client is not None:
        with atomic_writer(client) as stream:
            stream.write(model.client.to_json().encode())
    if picture is not None and isinstance(model, CompiledModel):
        model.save_picture(picture)


def _show(model: Model, json_path: str | None, facts: dict[str, Any]) -> None:
    if json_path != "-":
        print_text(str(model))
    if json_path is not None:
        write_json(json.loads(json.dumps({**facts, **model.report()})), json_path)
