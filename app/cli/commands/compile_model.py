"""`cloakwork compile`, `inspect`, `zoo`: from an ONNX model to a program, and what a program costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cloakwork.app.cli.shared.compile_options import (
    AccumulatorBitsOption,
    AccumulatorRangesOption,
    AccuracyOption,
    ActivationBitsOption,
    AllowLossOption,
    AllowStructuredOption,
    BodiesOption,
    GridBitsOption,
    GridOption,
    InputBitsOption,
    LeafBitsOption,
    MarginOption,
    OutputOption,
    PFailOption,
    PrecisionOption,
    RangeOption,
    RoundingOption,
    SetsOption,
    TaskOption,
    TellOption,
    ThresholdsOption,
    WeightBitsOption,
    given,
    named_as_options,
    precisions,
    read_ranges,
    tasks,
)
from cloakwork.app.cli.shared.console import (
    JsonOption,
    ProgressCallback,
    WrongCallError,
    progress,
    standard_error,
    write_json,
)
from cloakwork.app.cli.shared.data_sets import as_arrays, load_inputs
from cloakwork.app.cli.shared.failures import of_file, reading
from cloakwork.app.cli.shared.model_files import ModelArgument, find_any_model, is_compiled
from cloakwork.app.cli.shared.output_files import ForceOption, refuse_overwriting
from cloakwork.app.cli.shared.parameter_sets import find_agreed_set
from cloakwork.app.cli.shared.program import shows_first
from cloakwork.app.cli.shared.tables import Column, folded, number, print_rows, print_text
from cloakwork.fhe_core.wire.files import atomic_writer
from cloakwork.models import zoo
from cloakwork.models.calibration import Calibration
from cloakwork.models.compile.pipeline import APPROXIMATE, OnStep
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.compiler import compile_file
from cloakwork.models.graph.ir import Graph
from cloakwork.models.model import Model
from cloakwork.models.options import Options
from cloakwork.models.report import graph_text, summary

ClientOutput = Annotated[
    Path | None,
    typer.Option("--client", help="Write the client specification too: how to encrypt and to read results."),
]
StagesOption = Annotated[
    bool,
    typer.Option("--stages", help="Print the graph to standard error after each step of the compiler that changes it."),
]
DetailsOption = Annotated[
    bool,
    typer.Option(
        "--details", help="Print the whole report: parameter set, look-ups, forecast, risks, noise of each layer."
    ),
]
PictureOutput = Annotated[Path | None, typer.Option("--picture", help="Draw the program into this .svg file.")]


# What `--help` shows of the options below; `--help-all` shows all.
SHOWN_FIRST: Final = (
    "--out",
    "--samples",
    "--accuracy",
    "--precision",
    "--task",
    "--tell",
    "--client",
    "--force",
)


@shows_first(*SHOWN_FIRST)
def compile_model(
    source: Annotated[str, typer.Argument(metavar="MODEL", help="An ONNX file, or a model of the zoo.")],
    output: Annotated[Path, typer.Option("--out", "-o", help="Write the compiled model to this file.")],
    samples: Annotated[
        Path | None,
        typer.Option(
            "--samples",
            help="Learn ranges from a few hundred typical inputs [samples, ..]: .npy, .csv, .npz for several inputs by name, or .json of ranges; "
            "quantised models need none.",
        ),
    ] = None,
    accuracy: AccuracyOption = None,
    precision: PrecisionOption = None,
    task: TaskOption = None,
    tell: TellOption = None,
    ranges: RangeOption = None,
    margin: MarginOption = None,
    p_fail_log2: PFailOption = None,
    allow_loss: AllowLossOption = False,
    outputs: OutputOption = None,
    weight_bits: WeightBitsOption = None,
    input_bits: InputBitsOption = None,
    activation_bits: ActivationBitsOption = None,
    accumulator_bits: AccumulatorBitsOption = None,
    accumulator_ranges: AccumulatorRangesOption = None,
    rounding: RoundingOption = None,
    thresholds: ThresholdsOption = None,
    grid: GridOption = None,
    grid_bits: GridBitsOption = None,
    leaf_bits: LeafBitsOption = None,
    sets: SetsOption = None,
    structured: AllowStructuredOption = False,
    bodies: BodiesOption = None,
    client: ClientOutput = None,
    picture: PictureOutput = None,
    details: DetailsOption = False,
    stages: StagesOption = False,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Compile a model for encrypted inputs, and report its cost."""
    _check_picture(picture)
    refuse_overwriting(force, *(path for path in (output, client, picture) if path is not None))
    options = given(
        accuracy=accuracy,
        precision=precisions(precision),
        task=tasks(task),
        tell=tell,
        ranges=read_ranges(ranges) or None,
        margin=margin,
        p_fail_log2=p_fail_log2,
        allow_loss=allow_loss or None,
        outputs=outputs or None,
        weight_bits=weight_bits,
        input_bits=input_bits,
        activation_bits=activation_bits,
        accumulator_bits=accumulator_bits,
        accumulator_ranges=accumulator_ranges,
        rounding=rounding,
        thresholds=thresholds,
        grid=grid,
        grid_bits=grid_bits,
        leaf_bits=leaf_bits,
        sets=[find_agreed_set(name, structured, bodies == 2) for name in sets] if sets else None,
        structured=structured or None,
        bodies=bodies,
    )
    with progress("compiling") as update, named_as_options():
        model = _compiled(source, samples, options, _Stages() if stages else _Bar(update))
    model.save(output)
    _write_beside(model, client, picture)
    _show(model, details, json_path, {"compiled": str(output), "bytes": output.stat().st_size})


def inspect(
    model_name: ModelArgument,
    client: ClientOutput = None,
    picture: PictureOutput = None,
    details: DetailsOption = False,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Report what a compiled model costs and what it tells."""
    _check_picture(picture)
    refuse_overwriting(force, *(path for path in (client, picture) if path is not None))
    model = find_any_model(model_name)
    _write_beside(model, client, picture)
    _show(model, details, json_path, {"model": model_name})


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
    """A progress bar of the compiler's steps."""

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


def _compiled(source: str, samples: Path | None, options: dict[str, Any], on_step: OnStep) -> CompiledModel:
    """Of a file; a model of the zoo is compiled already, and comes as it is."""
    Options(**options)
    path = Path(source)
    if path.is_dir():
        raise WrongCallError(f"{source}: expected an ONNX file, got a folder; name a file in it")
    if not path.is_file():
        if source not in zoo.names():
            raise WrongCallError(
                f"there is no file '{source}', nor a model of that name in the zoo, which has {', '.join(zoo.names())}"
            )
        if not options and samples is None:
            return zoo.load_model(source)
        path = zoo.card(source).path
    if path.name.removesuffix(".xz").endswith(zoo.PROGRAM) or is_compiled(path):
        raise WrongCallError(f"{source} is compiled already; expected an ONNX file")
    if not path.stat().st_size:
        raise WrongCallError(f"{source}: expected an ONNX file, got an empty file")
    where = samples or "--samples"
    with of_file(source), of_file(where, "samples"), of_file(where, "input"):
        return compile_file(path, None if samples is None else _samples(samples), Options(**options), on_step)


def _samples(path: Path) -> Any:
    if path.suffix == ".json":
        with reading(path, "ranges that 'cloakwork train' wrote"):
            return Calibration.from_json(path.read_bytes())
    return as_arrays(load_inputs(path))


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


def _show(model: Model, details: bool, json_path: str | None, facts: dict[str, Any]) -> None:
    if json_path != "-":
        print_text(model.details if details else str(model))
    if json_path is not None:
        write_json(json.loads(json.dumps({**facts, **model.report()})), json_path)
