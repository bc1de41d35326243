"""The pipeline from a network to a program: an ordered list of named steps for approximate look-ups, and one for exact ones.

python -m cloakwork.models.compile.pipeline      # the table of docs/explanation/compiler.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import onnx

from cloakwork.models.calibration import Calibration
from cloakwork.models.compile.compilation import Compilation, CompilerStep
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.compile.stages import (
    bound,
    bring_inputs_to_one_scale,
    calibrate,
    carry,
    choose_approximate,
    choose_exact_set,
    choose_layers,
    equalise,
    give_outputs_room,
    judge,
    keep_the_better,
    leave_input_quantisers,
    leave_last_functions,
    limit_noise,
    lower,
    rewriting,
    widen,
)
from cloakwork.models.criteria.choose_set import bootstrap_cost
from cloakwork.models.criteria.noise_limits import AUTO
from cloakwork.models.errors import AccuracyError, CompileError, NoParameterSetError, PrecisionOverflowError
from cloakwork.models.graph.ir import Graph, check
from cloakwork.models.graph.merge_equal import merge_equal
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.fold_affine import fold_affine, fold_normalisation
from cloakwork.models.passes.fuse_functions import fuse_functions
from cloakwork.models.passes.quantised_ranges import QUANTISERS
from cloakwork.models.passes.separate_levels import separate_levels, separate_outputs

OnStep = Callable[[str, Graph], object]

IMPORT: Final = "import_onnx"
_MOST_LAYERED: Final = (
    4096  # numbers with look-ups of a network that is tried with exact layers, which takes minutes for so many
)

PREPARING: Final[tuple[CompilerStep, ...]] = (
    CompilerStep(
        "leave_input_quantisers",
        leave_input_quantisers,
        "quantisers of the inputs are left to the client",
        {"quantise_ends": "finds quantisers at both ends", "several_inputs": "each of several inputs has its own"},
    ),
    CompilerStep(
        "leave_last_functions",
        leave_last_functions,
        "the quantiser of the output is left to the client, and other functions of single numbers at the end",
        {"quantise_ends": "short functions, before arg-max too"},
    ),
)
RESTRUCTURING: Final[tuple[CompilerStep, ...]] = (
    CompilerStep(
        "fold_normalisation",
        rewriting(fold_normalisation),
        "affine functions (bias, batch normalisation, scaling) into the linear node before",
    ),
    CompilerStep("fuse_functions", rewriting(fuse_functions), "whatever is a function of one wire into one look-up"),
    CompilerStep(
        "lower_products",
        lower,
        "products of several wires into look-ups of squares, choices in exact programs into one",
    ),
    CompilerStep("fold_affine", rewriting(fold_affine), "affine functions that are left into the linear nodes after"),
    CompilerStep(
        "separate_levels",
        rewriting(separate_levels),
        "linear and look-up alternate: linear nodes are composed where wider rows cost less than bootstraps, elsewhere goes a look-up of the "
        "identity",
        {"compose_windows": "one linear node for two"},
    ),
    CompilerStep(
        "separate_outputs",
        rewriting(separate_outputs),
        "rows that the client decrypts and look-ups read too are computed twice, each at its own scale",
    ),
    CompilerStep(
        "merge_equal",
        rewriting(merge_equal),
        "look-ups that give the same ciphertext are done once and their weights added up; again after quantisation",
    ),
)
RANGES: Final[tuple[CompilerStep, ...]] = (
    CompilerStep(
        "judge",
        judge,
        "the graph says what the user's file says, run by ONNX Runtime or onnx.reference on samples and at their edges",
    ),
    CompilerStep(
        "limit_noise", limit_noise, "how much noise every layer may have", {"noise_limits": "profiles, by layers"}
    ),
    CompilerStep(
        "calibrate",
        calibrate,
        "what samples show of every row, and what programs are checked against",
        {"quantised_ranges": "without samples: ranges from the model's own quantisers"},
    ),
    CompilerStep(
        "bring_inputs_to_one_scale",
        bring_inputs_to_one_scale,
        "columns of very different size get an offset and a scale of their own, which the client applies",
        {"rescale_input": "columns of one input", "several_inputs": "each of several inputs to integers or to [-1, 1]"},
    ),
    CompilerStep(
        "bound",
        bound,
        "the range of every wire: by tails fitted to samples, no more than interval arithmetic allows",
        {"bound_ranges": "of rows and of look-ups", "calibration": "where a row's values end that samples do not show"},
    ),
)
APPROXIMATE: Final[tuple[CompilerStep, ...]] = (
    *PREPARING,
    *RESTRUCTURING,
    *RANGES,
    CompilerStep(
        "give_outputs_room",
        give_outputs_room,
        "outputs keep room beyond their range: no table holds them at its end",
        {
            "calibration": "what answers reach for inputs far from all samples, where their terms are at their ends together"
        },
    ),
    CompilerStep(
        "carry",
        carry,
        "the straight part of a function passes beside its look-up, where that takes most of the noise and little work",
        {
            "carry_lines": "which look-ups, how much of a line may pass (values outside a range come out no worse), and the graph with lines",
        },
    ),
    CompilerStep(
        "widen",
        widen,
        "ranges get room beyond them if their look-up would make nonsense of what lies there",
        {"widen_ranges": "roots, logarithms and quotients, which move fast at one end and hardly at the other"},
    ),
    CompilerStep(
        "equalise",
        equalise,
        "results of look-ups get a centre and a factor each: one scale suits a layer, and values beyond the range read about the value of its end",
        {
            "equalise_lookups": "centres and factors",
            "statistics": "moments of the samples, and the effect of every wire on the output",
        },
    ),
    CompilerStep(
        "keep_the_better",
        keep_the_better,
        "of the graph with lines and the one without, that which less error is foreseen for",
    ),
    CompilerStep(
        "choose_approximate",
        choose_approximate,
        "integer weights under one set after the other, the cheapest first, until a program is accurate enough",
        {
            "row_scales": "the scale of every wire, where noise and rounding, weighed by their effect on the output, are least together",
            "quantise_weights": "integer weights of at most 8 bits; later ones of a row make up for the rounding of earlier ones, the bias for the "
            "rest",
            "integer_rows": "weights that are integers already stay what they are",
            "choose_parameters": "one set after the other, the cheapest first",
            "choose_set": "the last check: a value that would wrap for certain is an error with its layer's name",
            "first_accurate": "the first program that decides as the clear model on samples as often as was asked for",
        },
        real=False,
    ),
)
EXACT: Final[tuple[CompilerStep, ...]] = (
    *PREPARING,
    *RESTRUCTURING,
    *RANGES,
    CompilerStep(
        "choose_exact",
        choose_exact_set,
        "integers in more and more bits under the cheapest exact set that has room for them, until a program is accurate enough",
        {
            "exact_integers": "integers and the slots of their look-ups",
            "choose_exact": "the cheapest set at which they do not fail",
        },
        real=False,
    ),
)
BY_LAYERS: Final[tuple[CompilerStep, ...]] = (
    *PREPARING,
    *RESTRUCTURING,
    *RANGES,
    CompilerStep(
        "choose_layers",
        choose_layers,
        "of networks of integers, where no approximate program is accurate enough: as few layers exact as the accuracy asks for",
        {"exact_layers": "those first whose rounding the output feels most, for a look-up"},
        real=False,
    ),
)


def begin(model: onnx.ModelProto, given: Any, options: NetworkOptions, pools_first: bool | None = None) -> Compilation:
    """Begins a compilation.

    Args:
        given: calibration samples, a Calibration, or None.
        pools_first: whether max-pools come before the monotone look-ups that they follow; None: in approximate programs.
    """
    first = not options.is_exact if pools_first is None else pools_first
    graph = import_onnx(model, pools_first=first, outputs=options.outputs, rounding=options.rounding)
    return Compilation(options, given, graph, graph, options.limits, model=model)


def stages(begun: Compilation, steps: tuple[CompilerStep, ...]) -> Iterator[tuple[CompilerStep, Compilation]]:
    """Yields the compilation after one step after the other; every graph is checked."""
    compilation = begun
    for step in steps:
        before, compilation = compilation.graph, step.run(compilation)
        if compilation.graph is not before:
            check(compilation.graph)
        yield step, compilation


def restructure(graph: Graph) -> Graph:
    """Returns an imported graph after the steps that do not need data."""
    compilation = Compilation(NetworkOptions(), None, graph, graph, NetworkOptions().limits)
    for _, each in stages(compilation, RESTRUCTURING):
        compilation = each
    return compilation.graph


def compiled(model: onnx.ModelProto, given: Any, options: NetworkOptions, on_step: OnStep | None = None) -> Compilation:
    """Runs the pipeline of the profile. Args: on_step: is told the name of every step, and the graph after it."""
    begun = begin(model, given, options)
    if options.is_exact:
        return _cheapest_order(model, begun, EXACT, on_step)
    if not _has_layers_to_choose(begun):
        return _finished(begun, APPROXIMATE, on_step)
    try:
        approximate = _finished(begun, APPROXIMATE, on_step)
        refused: CompileError | None = None
    except (AccuracyError, NoParameterSetError, PrecisionOverflowError) as error:
        refused = error
    if refused is None and approximate.loss is None:
        return approximate
    try:
        layered = replace(options, precision="exact", allow_loss=False)
        return _cheapest_order(model, begin(model, given, layered), BY_LAYERS, on_step)
    except CompileError:
        if refused is None:
            return approximate
        raise refused from None


def _has_layers_to_choose(begun: Compilation) -> bool:
    """Whether some layers may be exact where no approximate program is accurate enough: of a network of integers, with samples to check it."""
    options, graph = begun.options, begun.graph
    checked = options.precision == AUTO and options.accuracy > 0 and options.bodies == 1
    sampled = begun.given is not None and not isinstance(begun.given, Calibration)
    return checked and sampled and _requantises(graph) and graph.bootstraps <= _MOST_LAYERED


def _cheapest_order(
    model: onnx.ModelProto, begun: Compilation, steps: tuple[CompilerStep, ...], on_step: OnStep | None
) -> Compilation:
    """Networks of integers with max-pools in either order."""
    if _requantises(begun.graph):
        other = begin(model, begun.given, begun.options, pools_first=True)
        if len(other.graph.nodes) != len(begun.graph.nodes) or other.graph.bootstraps != begun.graph.bootstraps:
            return _cheaper([begun, other], steps, on_step)
    return _finished(begun, steps, on_step)


def _finished(begun: Compilation, steps: tuple[CompilerStep, ...], on_step: OnStep | None) -> Compilation:
    compilation = begun
    if on_step is not None:
        on_step(IMPORT, compilation.graph)
    for step, each in stages(begun, steps):
        compilation = each
        if on_step is not None:
            on_step(step.name, compilation.graph)
    return compilation


def _requantises(graph: Graph) -> bool:
    """Whether it is a network of integers, whose max-pools have few bits before a look-up or after it."""
    return any(step.operator in QUANTISERS for node in graph.lookups for step in node.steps)


def _note(done_steps: list[tuple[str, Graph]], name: str, graph: Graph) -> None:
    done_steps.append((name, graph))


def _cheaper(orders: Sequence[Compilation], steps: tuple[CompilerStep, ...], on_step: OnStep | None) -> Compilation:
    """Returns the cheaper of several that compute the same, first of those that round nothing of the model's integers, then of those that take all
    inputs; `on_step` is told of its steps. What refuses the first, where all are refused."""
    refused: CompileError | None = None
    candidates: list[tuple[tuple[bool, bool, float], Compilation, list[tuple[str, Graph]]]] = []
    for begun in orders:
        done_steps: list[tuple[str, Graph]] = []
        try:
            compilation = _finished(begun, steps, partial(_note, done_steps))
        except CompileError as error:
            refused = refused or error
            continue
        assert compilation.program is not None
        cost = compilation.program.bootstraps * bootstrap_cost(compilation.program.parameters)
        exact = compilation.program.facts.exact
        rounds = exact is not None and exact.results_rounded is not None
        candidates.append(((rounds, compilation.narrowed is not None, cost), compilation, done_steps))
    if not candidates:
        assert refused is not None
        raise refused
    _, compilation, done_steps = min(candidates, key=lambda each: each[0])
    if on_step is not None:
        for name, graph in done_steps:
            on_step(name, graph)
    return compilation


def table() -> str:
    """Returns the steps in Markdown."""
    rows = ["| step | does |", "|---|---|"]
    for step in (*APPROXIMATE, *(step for step in (*EXACT, *BY_LAYERS) if step not in APPROXIMATE)):
        rows.append(f"| `{step.name}` | {step.does} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
