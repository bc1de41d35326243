"""Transformers that the client does by name: the numbers of scikit-learn to 1e-9, on odd inputs too, and through JSON."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn import (
    compose,
    decomposition,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    pipeline,
    preprocessing,
    random_projection,
)
from sklearn.feature_extraction import text

import cloakwork as cw
from cloakwork.models.client_steps import (
    input_steps_from_fields,
    run_input_steps,
    steps_to_fields,
)
from cloakwork.models.errors import AccuracyWarning, ShapeError, UnsupportedOperatorError
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.training.importers.preprocessing import input_steps, split_pipeline

RNG = np.random.default_rng(9)
make = pipeline.make_pipeline


def table(rows: int = 120) -> np.ndarray:
    """Columns of different size, one constant, one of few values, one with the same value in most samples."""
    columns = [
        RNG.normal(3, 2, rows),
        np.exp(RNG.normal(0, 2, rows)),
        np.full(rows, 4.5),
        RNG.integers(0, 4, rows).astype(float),
        np.where(RNG.random(rows) < 0.7, 0.25, RNG.random(rows)),
    ]
    return np.stack(columns, axis=1)


X = table()
# The training data's own values, values between and far beyond them, zeros, and the ends.
PROBES = np.concatenate(
    [X, X + 1e-9, X[::-1] * 1.7 - 3, np.zeros((1, 5)), [X.min(axis=0)], [X.max(axis=0)], X[:2] * 1e6]
)
POSITIVE = np.abs(PROBES) + 0.01
bins, quantiles, power = (
    preprocessing.KBinsDiscretizer,
    preprocessing.QuantileTransformer,
    preprocessing.PowerTransformer,
)
splines = preprocessing.SplineTransformer

TRANSFORMERS: dict[str, Any] = {
    "pca": decomposition.PCA(3),
    "pca whitened": decomposition.PCA(3, whiten=True, svd_solver="full"),
    "truncated svd": decomposition.TruncatedSVD(3, random_state=0),
    "incremental pca": decomposition.IncrementalPCA(2),
    "projection": random_projection.SparseRandomProjection(3, random_state=0),
    "yeo-johnson": power(),
    "yeo-johnson as it is": power(standardize=False),
    "polynomials": preprocessing.PolynomialFeatures(3),
    "interactions": preprocessing.PolynomialFeatures((2, 3), interaction_only=True, include_bias=False),
    "bins": bins(4, encode="ordinal", quantile_method="averaged_inverted_cdf"),
    "bins one-hot": bins(3, encode="onehot", strategy="uniform"),
    "bins dense": bins(3, encode="onehot-dense", strategy="kmeans", random_state=0),
    "quantiles": quantiles(n_quantiles=20),
    "quantiles normal": quantiles(n_quantiles=50, output_distribution="normal"),
    "one quantile": quantiles(n_quantiles=1),
    "splines": splines(4),
    "splines continued": splines(3, degree=2, extrapolation="continue", include_bias=False),
    "splines periodic": splines(5, knots="quantile", extrapolation="periodic"),
    "binarizer": preprocessing.Binarizer(threshold=0.25),
    "union": pipeline.FeatureUnion([("p", decomposition.PCA(2)), ("s", preprocessing.StandardScaler()), ("x", "passthrough")]),
    "selected": make(feature_selection.VarianceThreshold(), decomposition.PCA(2)),
    "parts": compose.ColumnTransformer(
        [
            ("poly", make(preprocessing.StandardScaler(), preprocessing.PolynomialFeatures(2)), [0, 3]),
            ("pca", decomposition.PCA(2), [0, 1, 3]),
            ("bins", bins(3, strategy="uniform"), [1]),
            ("kind", preprocessing.OneHotEncoder(handle_unknown="ignore"), [2]),
        ],
        remainder="passthrough",
    ),
    "chain": make(power(), preprocessing.PolynomialFeatures(2), preprocessing.MinMaxScaler(), decomposition.PCA(4)),
    "exponential of sizes": preprocessing.FunctionTransformer(np.arcsinh),
}  # fmt: skip


def through_json(steps: Any) -> Any:
    return input_steps_from_fields(json.loads(json.dumps(steps_to_fields(steps))))


def dense(x: Any) -> np.ndarray:
    return np.asarray(x.toarray() if hasattr(x, "toarray") else x)


def agrees(transformer: Any, x: Any, z: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant columns, few samples for the quantiles, unseen values
        fitted = transformer.fit(x, None)
        expected = dense(fitted.transform(z))
    found = run_input_steps(through_json(input_steps([fitted])), z)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * max(1.0, float(np.nanmax(np.abs(X)))))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_the_client_makes_the_numbers_of_scikit_learn(name: str) -> None:
    varying = [0, 1, 3, 4] if name.startswith("splines") else slice(None)  # which give NaN for constant columns
    agrees(TRANSFORMERS[name], X[:, varying], PROBES[:, varying])


def test_components_of_no_deviation_are_whitened_alike() -> None:
    """What is left of a constant column is rounding, divided by next to nothing."""
    x = np.stack([X[:, 0], np.full(len(X), 1.5), X[:, 3]], axis=1)
    agrees(decomposition.PCA(whiten=True), x, x)


def test_polynomials_are_those_of_scikit_learn_to_the_last_bit() -> None:
    """Bins and trees that come after them have edges that are such values."""
    fitted = preprocessing.PolynomialFeatures(4).fit(X)
    np.testing.assert_array_equal(run_input_steps(input_steps([fitted]), PROBES), fitted.transform(PROBES))


def test_box_cox_and_functions_of_positive_numbers() -> None:
    varying = POSITIVE[:, [0, 1, 3, 4]]  # no exponent fits a constant column
    agrees(power(method="box-cox"), varying[:100], varying)
    for function in (np.log, np.log1p, np.sqrt, np.exp, np.cbrt, np.abs, np.reciprocal, np.tanh):
        agrees(preprocessing.FunctionTransformer(function), X, np.minimum(POSITIVE, 300))
    steps = input_steps([power(method="box-cox").fit(varying)])
    with pytest.raises(ShapeError, match="Box-Cox transform takes positive numbers"):
        run_input_steps(steps, -varying)


@pytest.mark.parametrize(
    "transformer",
    [
        preprocessing.FunctionTransformer(np.log),
        preprocessing.FunctionTransformer(np.reciprocal),
        power(method="box-cox"),
        splines(extrapolation="error"),
    ],
    ids=["log", "reciprocal", "box-cox", "splines"],
)
def test_what_refuses_zeros_is_read_again(transformer: Any) -> None:
    """The check of a specification asks for no value of any kind."""
    x = RNG.uniform(1, 5, (60, 3))
    compiled = cw.compile(make(transformer, linear_model.Ridge()).fit(x, x.sum(axis=1)), x)
    client = ClientSpecification.from_json(compiled.client.to_json())
    np.testing.assert_array_equal(client.inputs(x), compiled.client.inputs(x))
    with pytest.raises(ShapeError, match=r"Box-Cox|infinite|beyond its knots"):
        client.inputs(np.zeros((1, 3)), refuse=True)


@pytest.mark.parametrize("degree", [0, 1, 3])
@pytest.mark.parametrize("outside", ["constant", "continue", "periodic", "error"])
def test_splines_of_equal_knots(degree: int, outside: str) -> None:
    """Quantiles of whole numbers fall together; beyond the ends splines of degree 0 are nothing."""
    x = np.stack([np.arange(60) % 3, np.where(np.arange(60) < 35, 0.25, np.arange(60))], axis=1).astype(float)
    above = [[-9.0, 99.0]] if degree or outside != "constant" else [[-9.0, -9.0]]  # scikit-learn cannot, of degree 0
    far = x if outside == "error" else np.concatenate([x, np.minimum(1.5 * x - 1, x), above])
    agrees(splines(6, degree=degree, knots="quantile", extrapolation=outside), x, far)


def test_splines_of_a_constant_column() -> None:
    x = np.stack([np.ones(40), np.arange(40.0)], axis=1)
    agrees(splines(degree=3), x, x)
    with pytest.raises(UnsupportedOperatorError, match="leave out columns that are constant"):
        input_steps([splines(degree=3, extrapolation="periodic").fit(x)])


@pytest.mark.parametrize("name", ["quantiles", "quantiles normal", "yeo-johnson"])
def test_missing_values_stay_until_they_are_filled(name: str) -> None:
    holes = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    agrees(make(TRANSFORMERS[name], impute.SimpleImputer()), holes, np.concatenate([holes, PROBES]))
    agrees(make(impute.SimpleImputer(strategy="median"), TRANSFORMERS[name], decomposition.PCA(2)), holes, holes)


@pytest.mark.parametrize("name", ["pca", "polynomials", "bins", "splines", "binarizer", "bins one-hot"])
def test_missing_values_are_refused_where_scikit_learn_refuses_them(name: str) -> None:
    holes = PROBES.copy()
    holes[3, 1] = np.nan
    varying = X + RNG.normal(0, 1e-3, X.shape)
    plain = input_steps([TRANSFORMERS[name].fit(varying)])
    with pytest.raises(ShapeError, match="missing values"):
        run_input_steps(plain, holes)
    late = make(TRANSFORMERS[name], impute.SimpleImputer()).fit(varying)
    with pytest.raises(ShapeError, match="takes no missing values .* row 3"):
        run_input_steps(input_steps([late]), holes)


def test_trees_take_missing_values_through_the_steps_that_keep_them() -> None:
    # A draw with no value within a step of the grid of a threshold: such a value may go to the other side.
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    y = (np.nan_to_num(holes[:, 0]) > 2).astype(int)
    fitted = make(preprocessing.StandardScaler(), ensemble.HistGradientBoostingClassifier(max_iter=4)).fit(holes, y)
    compiled = cw.compile(fitted, holes)
    assert (compiled.predict(holes) == fitted.predict(holes)).all()
    with pytest.raises(ShapeError, match="missing values"):
        cw.compile(fitted, X).predict(holes)


DOCUMENTS = [
    "The quick brown fox jumps over the lazy dog",
    "Never jump over the lazy dog quickly",
    "Ein Gruß aus Köln, naïve café — déjà vu!",
    "a b c I 42 4242 snake_case don't",
    "   spaces\t\tand\nlines   ",
    "",
    "日本語 テキスト 東京 ﬁne ½",
    "the the the dog dog fox",
]
VECTORIZERS: dict[str, Any] = {
    "counts": text.CountVectorizer(),
    "binary": text.CountVectorizer(binary=True, lowercase=False, strip_accents="unicode"),
    "pairs": text.CountVectorizer(ngram_range=(1, 3), stop_words="english", max_features=30),
    "letters": text.CountVectorizer(token_pattern=r"(?u)\b\w+\b", strip_accents="ascii", ngram_range=(2, 2)),
    "characters": text.CountVectorizer(analyzer="char", ngram_range=(1, 3), max_features=80),
    "in words": text.CountVectorizer(analyzer="char_wb", ngram_range=(2, 6), max_features=80),
    "given": text.CountVectorizer(vocabulary=["fox", "dog", "fox dog"], ngram_range=(1, 2)),
    "tf-idf": text.TfidfVectorizer(),
    "tf-idf sublinear": text.TfidfVectorizer(sublinear_tf=True, norm="l1", smooth_idf=False, min_df=2),
    "tf-idf plain": text.TfidfVectorizer(use_idf=False, norm=None, ngram_range=(1, 2)),
    "two steps": make(text.CountVectorizer(), text.TfidfTransformer()),
    "hashed": text.HashingVectorizer(n_features=64),
    "hashed counts": text.HashingVectorizer(n_features=7, alternate_sign=False, norm=None, analyzer="char", ngram_range=(1, 2)),
    "hashed binary": text.HashingVectorizer(n_features=5, binary=True, norm="l1"),
    "projected": make(text.TfidfVectorizer(), decomposition.TruncatedSVD(4, random_state=0)),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORIZERS)
def test_texts(name: str) -> None:
    unseen = ["unseen words only", "fox " * 50, "THE Fox\r\nDOG", "x" * 200, "é́ combining"]
    agrees(VECTORIZERS[name], DOCUMENTS, [*DOCUMENTS, *unseen])


def test_a_model_of_texts_runs_encrypted() -> None:
    y = np.array([1, 1, 0, 0, 0, 0, 0, 1])
    fitted = make(text.TfidfVectorizer(), linear_model.LogisticRegression(C=50)).fit(DOCUMENTS, y)
    with pytest.warns(AccuracyWarning, match="8 samples show .* give 197 or more") as warned:
        compiled = cw.compile(fitted, DOCUMENTS)
    assert warned[0].filename == __file__  # the user's line, not one of the package
    assert (compiled.predict(DOCUMENTS) == fitted.predict(DOCUMENTS)).all()
    np.testing.assert_array_equal(compiled.predict(DOCUMENTS[:2], how="encrypted"), fitted.predict(DOCUMENTS[:2]))
    column = np.array(DOCUMENTS, dtype=object)[:, None]
    np.testing.assert_array_equal(compiled.predict(column), compiled.predict(DOCUMENTS))
    for wrong in ([["a", "b"]], [1.0, 2.0], ["a", None], np.zeros((2, 3))):
        with pytest.raises(ShapeError, match="expected texts"):
            compiled.predict(wrong)


@pytest.mark.parametrize("name", ["tf-idf", "binary", "hashed", "two steps"])
def test_words_that_no_calibration_sample_has_count(name: str) -> None:
    """Ranges come from the vectoriser, so that other words than those of the samples are no value beyond them."""
    rng = np.random.default_rng(2)
    words = np.array([f"word{i}" for i in range(40)])
    documents = [" ".join(rng.choice(words, 12, replace=False)) for _ in range(120)]
    y = np.array([document.count("word1") for document in documents]) > 3
    vectorizer = (
        make(text.CountVectorizer(binary=True), text.TfidfTransformer()) if name == "two steps" else VECTORIZERS[name]
    )
    fitted = make(vectorizer, linear_model.LogisticRegression(C=10)).fit(documents, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # CalibratedRangeWarning
        compiled = cw.compile(fitted, documents[:4], accuracy=0)
        found = compiled.predict(documents, output="probabilities")
    np.testing.assert_allclose(found, fitted.predict_proba(documents), atol=0.02)


@pytest.mark.parametrize(
    ("transformer", "message"),
    [
        (preprocessing.FunctionTransformer(lambda x: x), "func = .*use a function of numpy .* log1p"),
        (preprocessing.FunctionTransformer(np.clip, kw_args={"a_min": 0, "a_max": 1}), "func = "),
        (splines(extrapolation="linear"), "extrapolation = 'linear'"),
        (
            decomposition.KernelPCA(),
            "KernelPCA has no counterpart at the client; nearest: .*PCA.*docs/howto/scikit-learn.md",
        ),
    ],
    ids=["lambda", "arguments", "splines", "kernel"],
)
def test_what_the_client_cannot_do_is_named(transformer: Any, message: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=message):
        split_pipeline(make(transformer, linear_model.Ridge()).fit(X, X[:, 0]))


@pytest.mark.filterwarnings("ignore:divide by zero")  # of scikit-learn: a word that no text has
@pytest.mark.parametrize(
    ("vectorizer", "message"),
    [
        (text.CountVectorizer(token_pattern=r"(a+)+$"), "token_pattern = .*a client runs no pattern of others"),
        (text.TfidfVectorizer(tokenizer=str.split, token_pattern=None), "tokenizer = "),
        (text.CountVectorizer(analyzer=str.split), "analyzer = "),
        (text.TfidfVectorizer(vocabulary=["dog", "whale"], smooth_idf=False), "idf_ = 'infinite' .* smooth_idf=True"),
        (
            pipeline.FeatureUnion([("a", text.CountVectorizer()), ("b", text.TfidfVectorizer())]),
            "several vectorizers side by side",
        ),
    ],
    ids=["pattern", "tokenizer", "analyzer", "infinite", "union"],
)
def test_vectorizers_with_code_of_their_own_are_refused(vectorizer: Any, message: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=message):
        split_pipeline(make(vectorizer, linear_model.Ridge()).fit([*DOCUMENTS, "aaa"], np.arange(9)))


def test_nested_steps_cannot_ask_for_much_memory() -> None:
    """Each doubles the table; a step may not make more than a bounded number of columns."""
    columns = {"step": "Columns", "count": 5, "names": None, "missing": False}
    doubling = [{"step": "Append", "columns": [0], "steps": [{"step": "OneHot", "sizes": [1 << 19]}]}] * 4
    with pytest.raises(ValueError, match="at most 1048576 columns"):
        run_input_steps(input_steps_from_fields([columns, *doubling]), np.zeros((1, 5)))
