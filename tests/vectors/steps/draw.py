"""Stored steps of clients: `python tests/vectors/steps/draw.py [FOLDER]` draws drawn.json and page.json and answers kept.json, a case a line.

A case has what differs from the specification `common`, what it is asked, and the answer: of scikit-learn, SciPy or mpmath (`oracle`), or, for
rules of our own such as the replacement of values, of the Python client. Numbers are exact; `within` is how far another C library may be off.
A case by hand is a line of kept.json with `name`, `client` and `samples`, `phases` or neither. A release draws again and compares.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ["CLOAKWORK_ALLOW_TOY"] = "1"

import mpmath
import numpy as np
import page
import pipelines
import scipy.special

from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set
from cloakwork.models import client_steps as kinds
from cloakwork.models.client_steps.unfit import Replaced
from cloakwork.models.errors import CalibratedRangeWarning, CompileError, ReplacedValuesWarning, ShapeError
from cloakwork.models.graph import last_steps as last
from cloakwork.models.graph.functions import FUNCTIONS as OF_A_GRAPH
from cloakwork.models.graph.functions import OPERANDS
from cloakwork.models.graph.last_steps import _NEVER, Functions
from cloakwork.models.graph.steps import Step
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.training.importers.estimator import import_part
from cloakwork.training.importers.preprocessing import input_steps

FOLDER = Path(__file__).parent
WITHIN = 1e-11  # of a value, or of the largest of its column where terms cancel
COMMON: dict[str, Any] = {
    "cloakwork_client": 2,
    "program_digest": "ab" * 32,
    "parameter_set": "toy",
    "parameter_digest": parameter_digest(parameter_set("toy")).hex(),
    "input_range": [-1e300, 1e300],
    "input_scale": 1e-301,
    "input_shape": [3],
    "output_scale": [1.0],
    "output_offset": [0.0],
    "output_unit": 0.0,
    "client_steps": [],
    "input_steps": [],
    "output_steps": [],
}
# Sums of several terms, powers and functions of the C library.
INEXACT = (
    kinds.Project, kinds.Normalise, kinds.Power, kinds.Quantiles, kinds.Splines, kinds.Members, kinds.Curves, kinds.Transform, Functions,
    last.Softmax, last.LogSoftmax, last.L2Normalization,
)  # fmt: skip
EXACT_FUNCTIONS = (
    "absolute", "ceil", "fabs", "floor", "negative", "positive", "rint", "sign", "square", "sqrt", "reciprocal", "trunc", kinds.ZERO_IS_MISSING,
)  # fmt: skip
WIDTH = 3
NUMBERS = (
    np.nan, None, np.inf, -np.inf, 0.0, -0.0, -1.5, 0.5, 3.0, 1e300, -1e300, 5e-324, 1e18, True, sys.float_info.max,
)  # fmt: skip
CELLS = (*NUMBERS, "red", "mauve", "", "1.5", "-inf", "nan", "1_0", "n/a", "é")
ENDS = [[NUMBERS[(i + k) % len(NUMBERS)] for k in (0, 5, 9)] for i in range(len(NUMBERS))]
Rng = np.random.Generator
Case = dict[str, Any]


# --- what the Python client makes of a case ---


def plain(x: Any) -> Any:
    """For JSON, which has no infinite or missing numbers."""
    if isinstance(x, dict):
        return {name: plain(each) for name, each in x.items()}
    if isinstance(x, tuple):
        return {"tuple": [plain(each) for each in x]}
    if isinstance(x, list | np.ndarray):
        return [plain(each) for each in (x.tolist() if isinstance(x, np.ndarray) else x)]
    if isinstance(x, float) and not np.isfinite(x):
        return {"float": "NaN" if np.isnan(x) else "Infinity" if x > 0 else "-Infinity"}
    return x


def marked(fields: dict[str, Any]) -> Any:
    """Read again."""
    if "float" in fields:
        return float(fields["float"])
    return tuple(fields["tuple"]) if "tuple" in fields else fields


def client_of(fields: dict[str, Any]) -> ClientSpecification:
    return ClientSpecification.from_json(json.dumps({**COMMON, **fields}))


def caught(work: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The result, or the error, and warnings."""
    with warnings.catch_warnings(record=True) as lines, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            result = work()
        except FheError as error:
            result = {"error": [type(error).__name__, str(error)]}
    return result, [
        str(line.message) for line in lines if line.category in (CalibratedRangeWarning, ReplacedValuesWarning)
    ]


def with_steps(steps: tuple[Any, ...], **fields: Any) -> dict[str, Any]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape = kinds.run_input_steps(steps, kinds.no_samples(steps)).shape[1:]
    return {"input_shape": list(shape), "input_steps": kinds.steps_to_fields(steps), **fields}


def input_case(
    name: str, fields: dict[str, Any], samples: Any, numbers: np.ndarray | None = None, oracle: str = "cloakwork"
) -> Case:
    client = client_of(fields)
    result, lines = caught(partial(client.inputs, samples))
    case = {"name": name, "oracle": oracle, "client": fields, "samples": plain(samples)}
    if isinstance(result, dict):
        return case | result
    expected = result if numbers is None else numbers
    refused, _ = caught(partial(client.inputs, samples, refuse=True))
    case |= {"shape": list(expected.shape), "numbers": plain(expected.ravel())}
    case |= {"refusal": refused["error"][1]} if isinstance(refused, dict) else {}
    case |= {} if is_exact(client.input_steps) and np.array_equal(expected, result) else {"within": WITHIN}
    return case | ({"warnings": lines} if lines else {})


def with_tail(tail: tuple[Any, ...], width: tuple[int, ...]) -> dict[str, Any]:
    numbers = {"output_scale": np.ones(width).tolist(), "output_offset": np.zeros(width).tolist()}
    return {name: value for name, value in (kinds.tail_to_fields(tail) | numbers).items() if value != COMMON[name]}


def answer_case(name: str, fields: dict[str, Any], values: Any, oracle: str = "cloakwork", **known: Any) -> Case:
    """Args: known: stages of an oracle."""
    values, client = np.asarray(values, dtype=np.float64), client_of(fields)
    case, before = {"name": name, "oracle": oracle, "client": fields, "phases": plain(values)}, None
    for stage in ("scores", "probabilities", "labels"):
        answer = written(known[stage] if stage in known else caught(partial(client.output, values, stage))[0])
        if answer != before:
            case[stage] = before = answer
    return case if is_exact(client.output_steps) else case | {"within": WITHIN}


def written(answer: Any) -> Any:
    if isinstance(answer, dict):
        return answer if "error" in answer else {"named": {name: written(each) for name, each in answer.items()}}
    answer = np.asarray(answer)
    return (
        answer.tolist() if answer.dtype.kind in "Ub" else {"shape": list(answer.shape), "data": plain(answer.ravel())}
    )


def is_exact(steps: Any) -> bool:
    """Whether every processor gives the same bits."""
    for step in steps:
        if isinstance(step, INEXACT) or (isinstance(step, kinds.Function) and step.name not in EXACT_FUNCTIONS):
            return False
        if isinstance(step, kinds.Append | kinds.Named) and not is_exact(_inner(step)):
            return False
    return True


def _inner(step: Any) -> Any:
    return itertools.chain(*step.steps) if isinstance(step, kinds.Named) else step.steps


def is_stable(fields: dict[str, Any], samples: Any) -> bool:
    """Whether no sample lies so near to a boundary that another C library could put it on the other side."""
    steps = client_of(fields).input_steps
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = kinds.run_input_steps(steps, samples, unfit=Replaced())
        for k in (k for k in range(1, len(steps) + 1) if not is_exact(steps[:k])):
            values = kinds.run_input_steps(steps[:k], samples, unfit=Replaced())
            if isinstance(steps[k - 1], kinds.Project) and not (np.abs(values) < 1e150).all():
                return False  # sums that overflow depend on their order
            if k == len(steps):
                continue
            size = WITHIN * np.maximum(np.abs(values), np.nanmax(np.abs(values), initial=0, axis=0))
            for column, sign in itertools.product(range(values.shape[1]), (-1, 1)):
                moved = values.copy()
                moved[:, column] += sign * size[:, column]
                again = kinds.run_input_steps(steps[k:], moved, unfit=Replaced())
                if (np.abs(again - expected) > 1e5 * WITHIN * np.maximum(np.abs(expected), 1)).any():
                    return False
    return True


# --- before encryption ---


def of_pipelines(count: int) -> Iterator[Case]:
    """Transformers of scikit-learn: rows that it takes, and the first that it refuses."""
    drawn = filter(None, map(pipelines.draw, itertools.count()))
    while count:
        one = next(drawn)
        try:
            fields = with_steps(input_steps(one.transformers))
        except (CompileError, ShapeError):
            continue
        taken, numbers, refused = [], [], []
        for row in one.samples if isinstance(one.samples, list) else one.samples.tolist():
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    transformed = one.transform(
                        [row] if one.kind == "texts" else np.array([row], dtype=one.samples.dtype)
                    )
            except ValueError:
                transformed = np.array(np.nan)
            if np.isfinite(transformed).all():
                taken.append(row)
                numbers.append(transformed)
            else:
                refused.append(row)
        sizes = np.abs(np.concatenate(numbers)).max(axis=0) if numbers else np.zeros(1)
        if (sizes < 1e-9).all() or ((sizes > 0) & (sizes < 1e-9)).any() or not is_stable(fields, [*taken, *refused]):
            continue  # or nothing but what rounding leaves of a column
        name = f"{one.kind}: {' '.join(type(each).__name__ for each in one.transformers)}"
        yield input_case(name, fields, taken, np.concatenate(numbers), "scikit-learn")
        if refused:
            yield input_case(f"{name}, refused", fields, refused[:2])
        count -= 1


def _reals(rng: Rng, *shape: int) -> np.ndarray:
    return rng.choice([-1e300, -2.0, -0.5, 0.5, 1.0, 3.0, 1e300], shape)


def _knots(rng: Rng, rows: int) -> np.ndarray:
    return np.sort(rng.normal(0, 2, (rows, WIDTH)).round(3), axis=0)


def _flags(rng: Rng, count: int) -> list[bool]:
    return [bool(each) for each in rng.integers(2, size=count)]


def _grid(rng: Rng) -> dict[str, Any]:
    even = {"feature": np.array([0, 2, 1]), "count": np.array([9, 3, 300]), "low": np.array([-1.5, 0, 0.1])}
    uneven = {"spacing": np.array([0.5, 0, 0.1]), "points": np.array([-1.5, 0.0, 3.0])}
    return even | uneven | dict(zip(("missing", "strict", "single"), _flags(rng, 3), strict=True))


_EDGES = np.array([-1.5, 0.0, 0.1, 0.5, 3.0])
_THREE = np.array([-1.5, 0.0, 0.5]), np.array([2.0, 0.0, 3.0])
# Each kind on WIDTH columns.
STEPS: dict[str, Callable[[Rng], Any]] = {
    "standardise": lambda rng: kinds.Standardise(_reals(rng, WIDTH), _reals(rng, WIDTH)),
    "divide": lambda rng: kinds.Divide(_reals(rng, WIDTH), _reals(rng, WIDTH)),
    "normalise": lambda rng: kinds.Normalise(str(rng.choice(["l1", "l2", "max"]))),
    "complete": lambda rng: kinds.Complete(("a", "c"), np.array([0, 2])),
    "present": lambda rng: kinds.Present(),
    "binarise": lambda rng: kinds.Binarise(rng.choice([-1.5, 0.0, 0.5], WIDTH)),
    "project": lambda rng: kinds.Project(rng.normal(0, 1, WIDTH).round(3), rng.normal(0, 1, (WIDTH, WIDTH)).round(3)),
    "polynomials": lambda rng: kinds.Polynomials(rng.integers(0, 5, (WIDTH, WIDTH))),
    "box-cox": lambda rng: kinds.Power("box-cox", rng.choice([-2.0, 0.0, 0.5, 9.0], WIDTH)),
    "yeo-johnson": lambda rng: kinds.Power("yeo-johnson", rng.choice([-2.0, 0.0, 0.5, 2.0, 9.0], WIDTH)),
    "function": lambda rng: kinds.Function(str(rng.choice(sorted(kinds.FUNCTIONS)))),
    "zeros": lambda rng: kinds.Function(kinds.ZERO_IS_MISSING),
    "quantiles": lambda rng: kinds.Quantiles(_knots(rng, 4), np.linspace(0, 1, 4), str(rng.choice(["uniform", "normal"]))),
    "splines": lambda rng: kinds.Splines(_knots(rng, 6), 2, str(rng.choice(["constant", "continue", "periodic"])), True),
    "bounded splines": lambda rng: kinds.Splines(_knots(rng, 6), 2, "error", bool(rng.integers(2))),
    "append": lambda rng: kinds.Append(np.array([2, 0, 1]), (kinds.Power("box-cox", np.ones(WIDTH)), STEPS["bounded splines"](rng))),
    "impute": lambda rng: kinds.Impute(_reals(rng, WIDTH)),
    "one-hot": lambda rng: kinds.OneHot(rng.integers(0, 4, WIDTH)),
    "equal": lambda rng: kinds.Equal(np.array([0, 1, 2, 0]), rng.choice([-1.5, 0.0, 3.0], 4)),
    "select": lambda rng: kinds.Select(np.array([2, 0, 0])),
    "saturate": lambda rng: kinds.Saturate(*_THREE),
    "rescale": lambda rng: kinds.Rescale(*_THREE, np.array([0.0, 0.1, -1e300]), np.array([1e-300, 0.1, 7.0])),
    "round": lambda rng: kinds.Round(),
    "quantise": lambda rng: kinds.Quantise(float(rng.choice([0.1, 0.25, 3.0])), -2.0, 2.0, bool(rng.integers(2))),
    "compare": lambda rng: kinds.Compare(np.array([0, 1, 2, 0]), rng.choice(_EDGES, 4), np.array([0, 1, 1, 0]), *_flags(rng, 2)),
    "bins": lambda rng: kinds.Bins(
        np.array([0, 0, 1]), np.array([0, 5, 10, 13]), np.tile(_EDGES, 3)[:13], np.array([0, 1, 0]), 3, *_flags(rng, 2)
    ),
    "thermometer": lambda rng: kinds.Thermometer(**_grid(rng), digit=np.array([0, 1, 5])),
    "positions": lambda rng: kinds.Positions(**_grid(rng), bits=int(rng.integers(1, 5))),
}  # fmt: skip


def of_kinds() -> Iterator[Case]:
    """Each kind of step, on both ends of everything."""
    for name, make in STEPS.items():
        for turn in range(4 if name in ("normalise", "splines", "compare", "bins", "thermometer", "positions") else 2):
            rng = np.random.default_rng([turn, len(name)])
            steps = (kinds.Columns(WIDTH, ("a", "b", "c"), missing=True), make(rng))
            rows = [[each, each, each] for each in np.arange(-3.0, 3.5, 0.5)] if name in ("round", "quantise") else []
            fields = with_steps(steps)
            yield input_case(f"{name} {turn}", fields, [row for row in [*ENDS, *rows] if is_stable(fields, [row])])


def of_functions() -> Iterator[Case]:
    """Each function of numpy by name, number by number, by mpmath where it has it."""
    numbers = [0.0, -0.5, 0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 1e-9, -3.7, 700.0, 12345.678, 1e15, 1e-300]
    same = ("cos", "cosh", "exp", "expm1", "log", "log10", "log1p", "sin", "sinh", "sqrt", "tan", "tanh")
    slow: dict[str, Any] = {name: getattr(mpmath, name) for name in same}
    slow |= {f"arc{name}": getattr(mpmath, f"a{name}") for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh")}
    slow |= {"exp2": partial(mpmath.power, 2), "log2": lambda x: mpmath.log(x, 2)}
    for name in kinds.FUNCTIONS:
        fields = with_steps((kinds.Columns(1), kinds.Function(name)))
        inside = [x for x in numbers if name in slow and not caught(partial(client_of(fields).inputs, [[x]]))[1]]
        if inside:
            with mpmath.workdps(40):
                values = np.array([[float(slow[name](mpmath.mpf(x)))] for x in inside])
            yield input_case(name, fields, [[x] for x in inside], values, "mpmath")
        yield input_case(f"{name} of every number", fields, [[x] for x in numbers])


def drawn_steps(rng: Rng) -> tuple[Any, ...]:
    """A table of numbers, or of numbers and categories, and up to four steps, each on the first columns of what comes before."""
    names, missing = ("a", "b", "c"), bool(rng.integers(2))
    first: Any = kinds.Columns(WIDTH, names, missing)
    if rng.integers(2):
        known = (("red", "blue", None),) if rng.integers(2) else (("red", 1, 2.5),)
        first = kinds.Categories(WIDTH, np.array([1]), known, str(rng.choice(["refuse", "ignore"])), names, missing)
    steps: tuple[Any, ...] = (first,)
    for name in rng.choice(list(STEPS)[:16], rng.integers(0, 5)):
        steps = (*steps, STEPS[name](rng), kinds.Select(np.arange(WIDTH)))
    ends = np.full(WIDTH, 4.0)
    return (*steps, kinds.Rescale(-ends, ends, np.zeros(WIDTH), np.full(WIDTH, 0.25))) if rng.integers(2) else steps


def of_values(count: int) -> Iterator[Case]:
    """Values that no step takes: replaced, and no request fails for them."""
    for seed in itertools.count():
        rng = np.random.default_rng([77, seed])
        fields = with_steps(drawn_steps(rng), input_range=[-4.0, 4.0], input_scale=0.0625)
        cells = NUMBERS if seed % 2 else CELLS
        samples = [[cells[i] for i in rng.integers(0, len(cells), WIDTH)] for _ in range(5)]
        if is_stable(fields, samples):
            yield input_case(f"replaced {seed}", fields, samples)
            count -= 1
        if not count:
            return


# --- after decryption ---

VALUES: dict[str, np.ndarray] = {
    "random": np.random.default_rng(31).normal(size=(6, 5)).round(6),
    "ties": np.random.default_rng(32).integers(-1, 2, (8, 5)).astype(np.float64),
    "large": np.random.default_rng(33).normal(size=(3, 5)).round(3) * 1e300,
    "far apart": np.random.default_rng(34).normal(size=(4, 5)).round(3) * 400,
    "tiny": np.random.default_rng(35).normal(size=(3, 5)).round(3) * 1e-300,
    "infinite": np.array([[np.inf, 0, 1, 2, 3], [-np.inf, 0, 1, 2, 3], [np.inf, np.inf, 0, 0, 0], [-np.inf] * 5]),
    "not numbers": np.array([[np.nan, 0, 1, 2, 3], [4, 0, 1, np.nan, np.nan], [np.nan] * 5]),
}


def along(x: np.ndarray) -> dict[Any, np.ndarray]:
    """Steps along the last axis, by the formulas written out; softmax by SciPy."""
    best = np.argmax(x, axis=-1)
    with np.errstate(all="ignore"):
        scaled = x / np.maximum(np.abs(x).max(axis=-1, keepdims=True), 1e-305)
        length = np.linalg.norm(scaled, axis=-1, keepdims=True)
        largest, least = (np.argsort(sign * x, axis=-1, kind="stable").take(range(3), axis=-1) for sign in (-1, 1))
        return {
            last.Softmax(-1): scipy.special.softmax(x, axis=-1),
            last.LogSoftmax(-1): scipy.special.log_softmax(x, axis=-1),
            last.Hardmax(-1): (np.arange(x.shape[-1]) == best[..., None]) * 1.0,
            last.ArgMax(-1): best[..., None],
            last.ArgMax(-1, False): best,
            last.ArgMin(-1): np.argmin(x, axis=-1, keepdims=True),
            last.ArgMin(-1, False): np.argmin(x, axis=-1),
            last.TopK(-1, 3): np.take_along_axis(x, largest, axis=-1),
            last.TopK(-1, 3, False): np.take_along_axis(x, least, axis=-1),
            last.TopKIndices(-1, 3): largest,
            last.TopKIndices(-1, 3, False): least,
            last.L2Normalization(-1): scaled / np.where(length > 0, length, 1.0),
        }


def of_last_steps() -> Iterator[Case]:
    for name, x in VALUES.items():
        for step, expected in along(x).items():
            ours = name in ("infinite", "not numbers") and isinstance(step, INEXACT)
            known = ("cloakwork", {}) if ours else ("scipy", {"scores": expected})
            yield answer_case(f"{step.title}: {name}", with_tail((step,), (5,)), x, known[0], **known[1])
    x = VALUES["random"][:, :, None] * np.array([1.0, -2.0])
    for step, expected in along(x.swapaxes(1, 2)).items():
        turned = type(step)(**{**vars(step), "axis": 1})
        moved = expected.swapaxes(1, 2) if expected.ndim == 3 else expected
        yield answer_case(f"{step.title}: of columns", with_tail((turned,), (5, 2)), x, "scipy", scores=moved)


def of_graph_functions() -> Iterator[Case]:
    drawn = np.random.default_rng(5).normal(0, 0.6, 8).round(6)
    values = np.concatenate([np.linspace(-2.5, 2.5, 11), drawn, [40.0, -40.0]])[:, None]
    for name in sorted(set(OF_A_GRAPH) - _NEVER):
        if name in OPERANDS:
            least, most, count = OPERANDS[name]
            signatures = [(operands, count(operands)) for operands in range(least, min(most, 3) + 1)]
        else:
            function = OF_A_GRAPH[name]
            signatures = [(1, (function.nin if isinstance(function, np.ufunc) else function.__code__.co_argcount) - 1)]
        for operands, parameters in signatures:
            rng = np.random.default_rng(len(name))
            given = tuple(np.sort(rng.uniform(0.3, 2, (parameters, 1)).round(3), axis=0))
            steps = (Step("Affine", (np.array([0.9]), np.array([0.05]))), Step(name, given, (1, 2, 1)[:operands]))
            yield answer_case(f"{name} of {operands}", with_tail((Functions((steps,), np.array([0])),), (1,)), values)


def of_estimators() -> Iterator[Case]:
    """Scores of fitted estimators; what scikit-learn answers of them."""
    for name, several in itertools.product(pipelines.ESTIMATORS, (False, True)):
        if several and name not in pipelines.CLASSIFIERS:
            continue
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            estimator, x = pipelines.fitted(name, several)
            part = import_part(estimator)
            scores = part.model.scores(kinds.run_input_steps((kinds.Columns(3), *part.steps), x))
            known = {"labels": estimator.predict(x)}
            if hasattr(estimator, "predict_proba") and isinstance(known["labels"][0], str) and name != "vote":
                known["probabilities"] = estimator.predict_proba(x)
        fields = with_tail(part.model.output_steps, scores.shape[1:])
        yield answer_case(f"{name} {several}", fields, scores, "scikit-learn", **known)


def kept() -> Iterator[Case]:
    """Cases by hand: what they ask stays, what is answered is filled in."""
    for case in stored("kept")["cases"]:
        name, fields = case["name"], case["client"]
        if "samples" in case:
            yield input_case(name, fields, case["samples"])
        elif "phases" in case:
            yield answer_case(name, fields, case["phases"])
        else:
            answer, _ = caught(partial(client_of, fields))
            yield {"name": name, "client": fields, **answer}


def stored(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"), object_hook=marked)


def drawn() -> Iterator[Case]:
    before = of_pipelines(70), of_kinds(), of_functions(), of_values(60)
    return itertools.chain(*before, of_last_steps(), of_graph_functions(), of_estimators())


def main(folder: Path) -> None:
    files = {"drawn": (COMMON, drawn()), "kept": (COMMON, kept()), "page": ({}, page.cases())}
    for name, (common, cases) in files.items():
        lines = ",\n".join(json.dumps(case, ensure_ascii=False, allow_nan=False) for case in cases)
        text = f'{{"common": {json.dumps(common)},\n"cases": [\n{lines}\n]}}\n'
        text = re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
