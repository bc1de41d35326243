"""Single steps in Node and in Python: every character, every function by name, several inputs and outputs; and whole round trips, encrypted."""

from __future__ import annotations

import json
import unicodedata
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from drawn_steps import drawn_samples, drawn_steps, with_steps
from several_tensors import image_and_table, network, samples
from sklearn import ensemble, feature_extraction, linear_model, pipeline, preprocessing, tree
from test_web_agreement import Case, array, asked, check_inputs, check_outputs
from test_web_client import PASSPHRASE, evaluate, values

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.models.client_steps import (
    FUNCTIONS,
    TOKENS,
    Categories,
    Columns,
    Curves,
    Divide,
    Function,
    Impute,
    Members,
    Quantise,
    Round,
    Texts,
)
from cloakwork.models.client_steps.texts import _plain_text
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import ReplacedValuesWarning
from cloakwork.models.graph.functions import FUNCTIONS as OF_A_GRAPH
from cloakwork.models.graph.functions import OPERANDS
from cloakwork.models.graph.last_steps import (
    _NEVER,
    LAST_STEPS,
    ArgMax,
    ArgMin,
    Functions,
    Hardmax,
    L2Normalization,
    LogSoftmax,
    Softmax,
    TopK,
    TopKIndices,
)
from cloakwork.models.graph.steps import Step
from cloakwork.models.program.client_specification import ClientSpecification

pytestmark = pytest.mark.os_entropy
Party = Callable[..., None]
RNG = np.random.default_rng(31)
X = RNG.uniform(0.5, 2, (60, 3))
UNKNOWN_TO_ONE = 40  # characters whose properties changed between the versions of Unicode that Python and Node have


@pytest.fixture(scope="module")
def client() -> ClientSpecification:
    return cw.compile(linear_model.Ridge().fit(X, X), X).client


def with_input(client: ClientSpecification, *steps: Any, width: int) -> ClientSpecification:
    """A specification that encrypts what the steps make."""
    return replace(client, input_steps=steps, input_shape=(width,), input_range=(-1e300, 1e300), input_scale=1e-301)


def with_output(client: ClientSpecification, *steps: Any, width: int) -> ClientSpecification:
    scale = np.full(width, 0.03)
    return replace(client, output_steps=steps, output_scale=scale, output_offset=np.zeros(width), output_unit=0.0)


# --- texts ---


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    ("pattern", "lowercase", "accents"),
    [
        (r"(?u)\b\w\w+\b", True, "unicode"),
        *(
            pytest.param(*each, marks=pytest.mark.tier("release"))
            for each in (
                (r"(?u)\b\w+\b", False, ""),
                (r"\S+", False, ""),
                (r"\S+", True, "ascii"),
                (r"\S+", False, "unicode"),
            )
        ),
    ],
)
def test_every_character(
    pattern: str, lowercase: bool, accents: str, client: ClientSpecification, web: Path, tmp_path: Path
) -> None:
    """Whether it is of a word or a space, its small letter, its parts and accents: "xcy" for every character c, and "xc" at an end."""
    characters = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs")]
    text = " ".join(f"x{c}y x{c}" for c in characters if c != " ")
    open_one = Texts(("x",), pattern=pattern, lowercase=lowercase, accents=accents)
    vocabulary = tuple(sorted(set(open_one._pieces(_plain_text(text, lowercase, accents)))))
    step = replace(open_one, vocabulary=vocabulary)
    assert len(vocabulary) > 100
    found = asked(web, tmp_path, [Case(with_input(client, step, width=len(vocabulary)), [[text]])])[0]
    expected, counts = step([text]), array(found["inputs"][0])
    wrong = np.flatnonzero((expected != counts)[0])
    assert np.abs(expected - counts).sum() <= UNKNOWN_TO_ONE, [vocabulary[i] for i in wrong[:20]]


@pytest.mark.tier("all")
def test_texts_that_are_odd(client: ClientSpecification, web: Path, tmp_path: Path) -> None:
    """Of every pattern and analyzer, hashed: half characters, controls, a capital sigma, long words."""
    odd = [
        "\ud800 half\udfff",
        "\x1c\x1d\x85\u2028a\ufeffb",
        "ΟΔΥΣΣΕΥΣ ΑΣ. Σ",
        "x" * 300,
        "İı ﬁ ǅ",
        "  a  b\t\tc ",
        "😀é́\u0345\u0300",
        "",
    ]
    cases = []
    for i, (pattern, analyzer) in enumerate([*((p, "word") for p in TOKENS), ("\\w+", "char"), ("\\w+", "char_wb")]):
        options = {"pattern": pattern, "analyzer": analyzer, "signed": i % 2 == 0, "lowercase": i % 3 > 0}
        accents = ("", "ascii", "unicode")[i % 3]
        step = Texts((), hashed=257, shortest=1 + i % 2, longest=3, accents=accents, binary=i % 5 == 0, **options)
        cases.append(
            Case(with_input(client, step, width=257), [odd, [[each] for each in odd], ["a", 1.5], [["a", "b"]]])
        )
    taken = 0
    for case, found in zip(cases, asked(web, tmp_path, cases), strict=True):
        for x, each in zip(case.samples, found["inputs"], strict=True):
            taken += check_inputs(case.client, x, each)
            if "error" not in each:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ReplacedValuesWarning)
                    np.testing.assert_array_equal(array(each), case.client.inputs(x))
    assert taken == 3 * len(cases)  # what is no text counts as an empty one


# --- categories ---


def test_categories_with_numbers_and_rules_of_their_own(client: ClientSpecification, web: Path, tmp_path: Path) -> None:
    known = (("a", "b", None), (1, 2.5, False), ("a", "", "é"))
    numbers, others = ((4, 4, 7.5), (0, None, 3), (-2, 5.25, 1e300)), (None, "refuse", -1)
    steps = Categories(3, np.arange(3), known, missing=True, numbers=numbers, others=others), Impute(np.full(3, 0.5))
    rows = [[[a, b, c]] for a in ("a", "c", None, "") for b in (1, True, 0, 2.5, "1", None) for c in ("", None, "é", 1)]
    cases = [Case(with_input(client, *steps, Divide(np.array([0, 0.1, 1]), np.array([3, -7, 1e290])), width=3), rows)]
    (found,) = asked(web, tmp_path, cases)
    taken = [check_inputs(cases[0].client, x, each) for x, each in zip(rows, found["inputs"], strict=True)]
    assert all(taken)


# --- values that do not suit ---


def test_values_that_no_step_takes(client: ClientSpecification, web: Path, tmp_path: Path) -> None:
    """Drawn steps and samples: no request fails for its values, in either language, and what is replaced is replaced by the same."""
    rng = np.random.default_rng(77)
    cases = []
    for i in range(120):
        one = with_steps(client, drawn_steps(rng))
        samples = [[row] for row in drawn_samples(rng, 6, texts=i % 2 > 0)] + [drawn_samples(rng, 4, texts=True)]
        cases.append(Case(one, samples))
    replaced = 0
    for case, found in zip(cases, asked(web, tmp_path, cases), strict=True):
        for x, each in zip(case.samples, found["inputs"], strict=True):
            assert check_inputs(case.client, x, each)
            replaced += any("does not take" in warning for warning in each["warnings"])
    assert replaced > 2 * len(cases)


# --- functions ---


def test_every_function_by_name(client: ClientSpecification, web: Path, tmp_path: Path) -> None:
    """On numbers of every size, one by one, so that each has its own warning."""
    numbers = [
        0.0,
        -0.5,
        0.5,
        1.0,
        -1.0,
        1.5,
        2.5,
        -2.5,
        1e-9,
        -3.7,
        700.0,
        12345.678,
        1e15,
        1e-300,
        *RNG.normal(0, 3, 20),
    ]
    rows = [np.array([[each]]) for each in numbers]
    cases = [Case(with_input(client, Columns(1), Function(name), width=1), rows) for name in FUNCTIONS]
    for case, found in zip(cases, asked(web, tmp_path, cases), strict=True):
        with np.errstate(all="ignore"):
            taken = sum(
                check_inputs(case.client, x, each) for x, each in zip(case.samples, found["inputs"], strict=True)
            )
        assert taken >= 8, case.client.input_steps


@pytest.mark.parametrize("step", [Round(), Quantise(0.25, -1e15, 1e15)], ids=["round", "quantise"])
def test_halves_go_to_the_even_integer(step: Any, client: ClientSpecification, web: Path, tmp_path: Path) -> None:
    """Exactly, also where numbers are hardly finer than halves."""
    units = np.concatenate(
        [np.arange(-21, 22) / 2, np.array([-1, 1, 3]) / 2 + 2.0**50, RNG.integers(-(2**40), 2**40, 40) / 2]
    )
    x = (units * getattr(step, "unit", 1.0))[:, None]
    (found,) = asked(web, tmp_path, [Case(with_input(client, Columns(1), step, width=1), [x])])
    np.testing.assert_array_equal(array(found["inputs"][0]), np.rint(units)[:, None] * getattr(step, "unit", 1.0))


def signatures(name: str) -> list[tuple[int, int]]:
    """Operands and parameters that a function takes."""
    if name in OPERANDS:
        least, most, parameters = OPERANDS[name]
        return [(operands, parameters(operands)) for operands in range(least, min(most, 3) + 1)]
    function = OF_A_GRAPH[name]
    return [(1, (function.nin if isinstance(function, np.ufunc) else function.__code__.co_argcount) - 1)]


@pytest.mark.tier("all")
def test_every_function_that_a_network_ends_in(client: ClientSpecification, web: Path, tmp_path: Path) -> None:
    phases = np.concatenate([np.linspace(-0.25, 0.25, 41)[:, None], RNG.normal(0, 0.06, (40, 1))])
    cases = []
    for name in sorted(set(OF_A_GRAPH) - _NEVER):
        for operands, parameters in signatures(name):
            given = tuple(np.array([each]) for each in np.sort(RNG.uniform(0.3, 2, parameters)))
            reads = (1, 2, 1)[:operands]  # what is just before, and the output itself
            steps = (Step("Affine", (np.array([0.9]), np.array([0.05]))), Step(name, given, reads))
            cases.append(Case(with_output(client, Functions((steps,), np.array([0])), width=1), (), [phases]))
    assert len(cases) > 45
    for case, found in zip(cases, asked(web, tmp_path, cases), strict=True):
        assert "error" not in found, (found, case.client.output_steps)
        check_outputs(case.client, phases, found["outputs"][0])


@pytest.mark.tier("all")
def test_every_step_along_an_axis(client: ClientSpecification, web: Path, tmp_path: Path) -> None:
    phases = np.concatenate([RNG.normal(0, 0.06, (40, 4)), np.zeros((1, 4))])
    steps = (
        Softmax(-1),
        LogSoftmax(1),
        Hardmax(1),
        L2Normalization(-1),
        ArgMax(1),
        ArgMin(1, False),
        TopK(1, 2),
        TopKIndices(-1, 3),
    )
    assert {type(step) for step in steps} | {Functions} == set(LAST_STEPS)
    cases = [Case(with_output(client, step, width=4), (), [phases]) for step in steps]
    for case, found in zip(cases, asked(web, tmp_path, cases), strict=True):
        assert "error" not in found, (found, case.client.output_steps)
        check_outputs(case.client, phases, found["outputs"][0])


# --- ensembles and calibration ---


def test_members_and_curves_of_any_numbers(client: ClientSpecification, web: Path, tmp_path: Path) -> None:
    transforms = ("none", "sigmoid", "softmax", "shares", "exp", "modified_huber", "isolation", "decision")
    sizes = np.array([1, 2, 3, 3, 1, 2, 1, 2])
    cases = []
    for classes in (False, True):
        for votes in (False, True):
            step = Members(sizes, transforms, RNG.uniform(0.5, 2, len(sizes)), classes, votes)
            cases.append(Case(with_output(client, step, width=15), (), [RNG.uniform(-0.2, 0.2, (30, 15))]))
    x = np.round(np.sort(RNG.normal(0, 2, 12)), 0)  # with steps
    curves = Curves(np.array([0, 1, 5, 12]), np.concatenate([[0.0], np.sort(x[:4]), np.sort(x[4:11])]), RNG.random(12))
    points = np.concatenate([np.repeat(curves.x[:, None] * 0.03, 3, axis=1), RNG.uniform(-0.25, 0.25, (40, 3))])
    cases.append(Case(with_output(client, curves, width=3), (), [points]))
    for case, found in zip(cases, asked(web, tmp_path, cases), strict=True):
        check_outputs(case.client, case.phases[0], found["outputs"][0])


# --- several inputs and outputs ---


@pytest.fixture(scope="module")
def several() -> CompiledModel:
    return cw.compile(image_and_table(np.random.default_rng(2)), samples(np.random.default_rng(3), 300), accuracy=0.8)


@pytest.mark.tier("all")
def test_several_inputs_and_outputs(several: CompiledModel, web: Path, tmp_path: Path) -> None:
    x = samples(np.random.default_rng(4), 5)
    beyond = {"image": 3 * x["image"], "table": 50 * x["table"]}
    wrong = [
        {"image": x["image"]},
        {**x, "other": x["table"]},
        {**x, "table": x["table"][:3]},
        {**x, "table": x["image"]},
        x["table"],
    ]
    batches = [x, tuple(x.values()), beyond, *wrong]
    phases = several.client.phases(x)
    outputs = RNG.uniform(-0.2, 0.2, (4, several.client.output_scale.size))
    found = asked(web, tmp_path, [Case(several.client, batches, [outputs])])[0]
    assert len(phases) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        taken = [
            check_inputs(several.client, each, answer) for each, answer in zip(batches, found["inputs"], strict=True)
        ]
    assert taken == [True] * 3 + [False] * 5
    assert "'table[0]'" in found["inputs"][2]["warnings"][0]
    assert list(found["outputs"][0]["labels"]["named"]) == ["probabilities", "embedding"]
    check_outputs(several.client, outputs, found["outputs"][0])


@pytest.mark.tier("all")
def test_names_that_are_properties_of_objects(client: ClientSpecification, web: Path, tmp_path: Path) -> None:
    """Outputs called as what every object of JavaScript has."""
    w = RNG.normal(size=(3, 2))
    made = cw.compile(
        network([("MatMul", "x w", "__proto__"), ("Relu", "x", "data")], {"x": [3]}, ["__proto__", "data"], {"w": w}),
        X,
        accuracy=0,
    )
    phases = RNG.uniform(-0.1, 0.1, (3, made.client.output_scale.size))
    found = asked(web, tmp_path, [Case(made.client, [X], [phases])])[0]
    check_inputs(made.client, X, found["inputs"][0])
    check_outputs(made.client, phases, found["outputs"][0])


# --- encrypted ---

WORDS = ["red dog barks", "Blue cat", "red cat sleeps", "dog dog", "the bird sings", "a blue bird"]
make = pipeline.make_pipeline
voters = [("l", linear_model.LogisticRegression()), ("r", linear_model.RidgeClassifier())]
normal = preprocessing.QuantileTransformer(n_quantiles=15, output_distribution="normal")
PIPELINES: dict[str, tuple[Any, Any]] = {
    "quantiles": (make(normal, tree.DecisionTreeClassifier(max_depth=2)), X),
    "texts": (make(feature_extraction.text.TfidfVectorizer(), linear_model.LogisticRegression()), WORDS * 5),
    "members": (make(preprocessing.SplineTransformer(4), ensemble.VotingClassifier(voters)), X),
}


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", [*PIPELINES, "several"])
def test_encrypted_in_node_and_answered(name: str, several: CompiledModel, party: Party, tmp_path: Path) -> None:
    """Keys, encryption and decryption in Node, the evaluation here: the answers of the model in clear."""
    if name == "several":
        model, x = several, samples(np.random.default_rng(5), 2)
        lists: Any = {each: numbers.tolist() for each, numbers in x.items()}
    else:
        estimator, data = PIPELINES[name]
        y = np.arange(len(data)) % 2 if isinstance(data, list) else (data.sum(axis=1) > 3.7).astype(int)
        options: dict[str, Any] = {"thresholds": "client"} if name == "quantiles" else {}
        model = cw.compile(estimator.fit(data, y), data, accuracy=0.9, **options)
        x = data[:5]
        lists = x if isinstance(x, list) else x.tolist()
    (tmp_path / "client.json").write_text(model.client.to_json())
    (tmp_path / "samples.json").write_text(json.dumps(lists))
    party("keys+encrypt", tmp_path)
    evaluate(tmp_path, model)
    party("decrypt", tmp_path)
    answers = json.loads((tmp_path / "answers.json").read_text())
    key = ClientKey.load(tmp_path / "secret.key", PASSPHRASE)
    assert key.parameters.name == model.client.parameters
    if name == "several":
        clear = model.predict(x)
        for output, each in answers["labels"].items():
            np.testing.assert_allclose(values(each), clear[output], atol=0.2 * np.abs(clear[output]).max())
    else:
        np.testing.assert_array_equal(values(answers["labels"]), model.predict(x))


# --- answers of odd fits ---


def odd_fits() -> list[tuple[Any, Any]]:
    """Fitted estimators and samples: zeros that are missing, one class alone, a column of targets, networks of counts."""
    rng = np.random.default_rng(3)
    kinds = rng.choice(list("pqr"), (60, 2)).astype(object)
    labels = (kinds[:, 0] == "p").astype(int)
    fits: list[tuple[Any, Any]] = [
        (tree.DecisionTreeClassifier().fit(X, np.full(60, "only")), X),
        (ensemble.HistGradientBoostingClassifier(max_iter=2).fit(X, np.full(60, True)), X),
        (linear_model.LinearRegression().fit(X, X[:, :1]), X),
        (ensemble.GradientBoostingClassifier(n_estimators=3, loss="exponential").fit(X, X[:, 0] > 1), X),
        (ensemble.IsolationForest(n_estimators=3, max_samples=1, random_state=0).fit(X), X),
    ]
    try:
        import xgboost
    except ImportError:
        return fits
    boosted = xgboost.XGBClassifier(n_estimators=3, max_depth=2)
    return [*fits, (pipeline.make_pipeline(preprocessing.OneHotEncoder(), boosted).fit(kinds, labels), kinds)]


def test_answers_of_odd_fits(web: Path, tmp_path: Path) -> None:
    models = [(cw.compile(fitted, x, accuracy=0.9), x) for fitted, x in odd_fits()]
    cases = []
    for model, x in models:
        odd = np.random.default_rng(1).uniform(-0.25, 0.25, (5, model.client.output_scale.size))
        cases.append(Case(model.client, [x], [odd]))
    for case, answer in zip(cases, asked(web, tmp_path, cases), strict=True):
        assert "error" not in answer, answer
        assert check_inputs(case.client, case.samples[0], answer["inputs"][0])
        check_outputs(case.client, case.phases[0], answer["outputs"][0])
