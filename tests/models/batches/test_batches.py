"""Batches of encrypted samples: every score is the formula's integer; formulas decide as the models; strangers' input is refused."""

from __future__ import annotations

import json
import random
import warnings
from typing import Any

import numpy as np
import pytest
from cases import in_tiers

from cloakwork.fhe_core.errors import FheError, KeyMismatchError, ShapeError
from cloakwork.fhe_core.levelled.ciphertexts import (
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
)
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.models.batches.build import Model, compile_batch
from cloakwork.models.batches.client import BatchClient, from_residues
from cloakwork.models.batches.decisions import Votes
from cloakwork.models.batches.kernels import PowerModel, RadialModel
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.client_steps import Columns, Project, Standardise
from cloakwork.models.errors import AccuracyWarning, CalibratedRangeWarning, CompileError, NoParameterSetError
from cloakwork.models.linear.linear_model import LinearModel
from tests.models.json_mutations import mutated


def linear(features: int, outputs: int, seed: int = 1, **options: Any) -> LinearModel:
    rng = np.random.default_rng(seed)
    return LinearModel(rng.standard_normal((outputs, features)), rng.standard_normal(outputs), **options)


def powers(features: int, rows: int, degree: int, outputs: int = 1, seed: int = 1) -> PowerModel:
    rng = np.random.default_rng(seed)
    inner, constant = rng.standard_normal((rows, features)), rng.standard_normal(rows)
    return PowerModel(inner, constant, degree, rng.standard_normal((outputs, rows)), rng.standard_normal(outputs))


def radial(features: int, rows: int, outputs: int = 1, seed: int = 1) -> RadialModel:
    rng = np.random.default_rng(seed)
    dual, intercept = rng.standard_normal((outputs, rows)), rng.standard_normal(outputs)
    return RadialModel(rng.standard_normal((rows, features)), 0.3, dual, intercept)


def table(samples: int, features: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((samples, features))


def through_bytes(model: BatchModel, samples: np.ndarray, threads: int = 2) -> np.ndarray:
    """The server's integers by a client that has its specification alone, everything sent as bytes."""
    client = BatchClient.from_json(model.client.to_json())
    keys = [LevelledClientKey.generate(each) for each in client.parameters]
    sent = [each.to_bytes() for each in client.evaluation_keys(keys)]
    received = [LevelledEvaluationKeys.from_bytes(a, b) for a, b in zip(sent, client.parameters, strict=bool(sent))]
    scorer = model.scorer(received, threads)
    integers, found = client.integers(samples), []
    for first in range(0, len(integers), client.samples_at_once):
        part = integers[first : first + client.samples_at_once]
        queries = [
            SeededLevelledCiphertexts.from_bytes(each.to_bytes(), own)
            for each, own in zip(client.encrypt_integers(keys, part), client.parameters, strict=True)
        ]
        answers = [
            LevelledCiphertexts.from_bytes(each.to_bytes(), own)
            for each, own in zip(scorer.score(queries), client.parameters, strict=True)
        ]
        assert all(each.failure_log2 <= -128 for each in answers)
        found.append(client.outputs(keys, answers, len(part)))
    return np.concatenate(found)


LABELS = np.array(["a", "b", "c", "d"])
MODELS: list[Any] = [
    pytest.param(linear(7, 4, labels=LABELS, transform="softmax"), {}, id="linear"),
    pytest.param(linear(1, 1), {}, id="one-feature", marks=pytest.mark.tier("all")),
    pytest.param(linear(300, 2), {}, id="many-features", marks=pytest.mark.tier("all")),
    pytest.param(linear(5, 40), {"packing": "slots"}, id="many-outputs", marks=pytest.mark.tier("all")),
    pytest.param(powers(3, 20, 2), {"packing": "slots"}, id="products"),
    pytest.param(powers(2, 9, 3, 2), {"packing": "slots"}, id="cubes", marks=pytest.mark.tier("all")),
    pytest.param(radial(4, 30, 3), {"packing": "slots"}, id="radial", marks=pytest.mark.tier("all")),
    pytest.param(radial(4, 30, 3), {"packing": "ciphertexts"}, id="radial-queries"),
]


@pytest.mark.parametrize(("model", "options"), MODELS)
def test_encrypted_scores_are_the_formulas(model: Model, options: dict[str, Any]) -> None:
    x = table(20, model.features)
    made = compile_batch(model, x, batch=4000, **options)
    integers = made.client.integers(x)
    np.testing.assert_array_equal(through_bytes(made, x[:5]), made.outputs(integers[:5]))
    scores = made.scores(x)
    spread = np.abs(model.scores(x)).max()
    np.testing.assert_allclose(scores, model.scores(x), atol=0.01 * spread)


@pytest.mark.parametrize(("degree", "rows"), in_tiers([(2, 3), (2, 70), (3, 5), (5, 2)], quick=[(2, 3)]))
@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")
def test_powers_of_the_server(monkeypatch: pytest.MonkeyPatch, degree: int, rows: int) -> None:
    """Without products of the client's: of one and several moduli, in slots, at the ends of the range."""
    monkeypatch.setattr("cloakwork.models.batches.build.MOST_MONOMIALS", 0)
    model = powers(2, rows, degree, 2)
    x = table(50, 2)
    made = compile_batch(model, x, batch=4000, packing="slots")
    assert made.client.products and made.client.packing == "slots"
    client = made.client
    rng = np.random.default_rng(3)
    integers = rng.integers(-client.limit, client.limit + 1, (30, 2))
    integers[:4] = client.limit * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    keys = tuple(LevelledClientKey.generate(each) for each in client.parameters)
    expected = made.outputs(integers)
    np.testing.assert_array_equal(made.encrypted_outputs(keys, integers, 2), expected)
    assert (np.abs(expected.astype(object)) <= made.formula.largest(client.limit)).all()


@pytest.mark.tier("all")
def test_several_moduli(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers beyond 64 bits, put together of three residues."""
    monkeypatch.setattr("cloakwork.models.batches.build.MOST_MONOMIALS", 0)
    monkeypatch.setattr("cloakwork.models.batches.build.GOOD_AGREEMENT", 2.0)
    made = compile_batch(powers(2, 4, 3), table(50, 2), batch=10000, packing="slots")
    assert len(made.client.parameters) == 3 and made.formula.largest(made.client.limit) > 1 << 62
    x = table(6, 2, seed=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibratedRangeWarning)
        np.testing.assert_array_equal(through_bytes(made, x), made.outputs(made.client.integers(x)))


@pytest.mark.tier("all")
@pytest.mark.parametrize("packing", ["slots", "ciphertexts"])
def test_stiff_kernels_get_finer_inner_products(packing: Any) -> None:
    """Weights of 10^5 that nearly cancel: two plaintext moduli, in which a score is the same beside any other samples."""
    rng = np.random.default_rng(12)
    vectors = rng.standard_normal((40, 2))
    signs = np.where(np.arange(40) % 2, 1e5, -1e5)
    model = RadialModel(
        np.repeat(vectors[:20], 2, axis=0) + 1e-3 * rng.standard_normal((40, 2)), 0.5, signs[None], np.zeros(1)
    )
    made = compile_batch(model, vectors, batch=5000, packing=packing)
    assert len(made.client.parameters) == 2 and made.report()["agreement"] >= 0.99
    x = vectors[:3]
    np.testing.assert_array_equal(through_bytes(made, x), made.outputs(made.client.integers(x)))
    keys = tuple(LevelledClientKey.generate(each) for each in made.client.parameters)
    np.testing.assert_array_equal(made.predict(x, "encrypted", key=keys), made.predict(vectors)[:3])


def test_residues() -> None:
    moduli, rng = [65537, 786433, 67043329], random.Random(5)
    for count in (1, 2, 3):
        whole = int(np.prod([int(t) for t in moduli[:count]], dtype=object))
        numbers = [rng.randint(-(whole // 2), whole // 2) for _ in range(50)] + [0, whole // 2, -(whole // 2)]
        residues = [np.array([n % t for n in numbers], dtype=np.int64)[:, None] for t in moduli[:count]]
        assert from_residues(residues, moduli[:count])[:, 0].tolist() == numbers


def test_more_samples_than_a_ciphertext_holds() -> None:
    made = compile_batch(linear(3, 2), table(30, 3), batch=9000)
    rng = np.random.default_rng(6)
    integers = rng.integers(-made.client.limit, made.client.limit + 1, (9000, 3))
    keys = tuple(LevelledClientKey.generate(each) for each in made.client.parameters)
    np.testing.assert_array_equal(made.encrypted_outputs(keys, integers), made.outputs(integers))
    assert made.encrypted_outputs(keys, integers[:0]).shape == (0, 2)


def test_sums_never_wrap() -> None:
    """The largest scores of any input are within the plaintext modulus."""
    for model in (linear(2, 3), linear(64, 10, transform="softmax", labels=np.arange(10))):
        made = compile_batch(model, table(20, model.features), batch=5000)
        ends = made.client.limit * np.sign(made.formula.inner)
        most = np.abs(made.outputs(ends)).max()
        assert most <= made.formula.largest(made.client.limit) <= made.client.parameters[0].plaintext_modulus // 2
        keys = tuple(LevelledClientKey.generate(each) for each in made.client.parameters)
        np.testing.assert_array_equal(made.encrypted_outputs(keys, ends), made.outputs(ends))


def test_scales_and_projections_become_weights() -> None:
    """They leave the client's steps; scores stay."""
    rng = np.random.default_rng(7)
    x = 100 + 30 * rng.standard_normal((60, 5))
    scaling = Standardise(x.mean(axis=0), 1 / x.std(axis=0))
    components = Project(np.zeros(5), np.linalg.qr(rng.standard_normal((5, 5)))[0][:, :2])
    steps = (Columns(5, None), scaling, components)
    reduced = components(scaling(x))
    model = linear(2, 3)
    made = compile_batch(model, x, batch=5000, preprocessing=steps)
    assert [type(step).__name__ for step in made.client.input_steps] == ["Columns", "Rescale", "Round"]
    np.testing.assert_allclose(made.scores(x), model.scores(reduced), atol=0.01)
    kernel = powers(2, 6, 2)
    made = compile_batch(kernel, x, batch=5000, preprocessing=steps, packing="slots")
    assert [type(step).__name__ for step in made.client.input_steps][:3] == ["Columns", "Standardise", "Project"]
    np.testing.assert_allclose(made.scores(x), kernel.scores(reduced), atol=0.01 * np.abs(kernel.scores(reduced)).max())
    square = powers(5, 6, 2)
    made = compile_batch(square, x, batch=5000, preprocessing=steps[:2], packing="slots")
    assert not any(isinstance(step, Standardise) for step in made.client.input_steps)


def test_the_quadratic_form_is_the_kernel() -> None:
    model = powers(4, 50, 2, 3)
    squares, x = model.squares(), table(30, 4)
    assert squares is not None and len(squares.inner) <= 15
    np.testing.assert_allclose(squares.scores(x), model.scores(x), rtol=1e-8, atol=1e-8)
    polynomials, expanded = model.expanded()
    np.testing.assert_allclose(expanded.scores(polynomials(x)), model.scores(x), rtol=1e-8, atol=1e-8)
    cubic = powers(3, 8, 3)
    polynomials, expanded = cubic.expanded()
    assert cubic.squares() is None and len(polynomials.powers) <= cubic.monomials
    np.testing.assert_allclose(expanded.scores(polynomials(x[:, :3])), cubic.scores(x[:, :3]), rtol=1e-8, atol=1e-8)


@pytest.mark.gpu
@pytest.mark.parametrize("model", [linear(20, 3), powers(30, 40, 2), radial(4, 30)], ids=["sums", "squares", "radial"])
def test_devices_give_the_same(model: Model) -> None:
    made = compile_batch(model, table(60, model.features), batch=9000, packing="slots")
    rng = np.random.default_rng(9)
    integers = rng.integers(-made.client.limit, made.client.limit + 1, (9000, made.formula.features))
    keys = tuple(LevelledClientKey.generate(each) for each in made.client.parameters)
    found = made.encrypted_outputs(keys, integers, device="cuda")
    np.testing.assert_array_equal(found, made.outputs(integers))


def test_the_choice_follows_the_number_of_samples() -> None:
    model, x = linear(30, 1), table(50, 30)
    few, many = (compile_batch(model, x, batch=count) for count in (1, 5000))
    assert few.packing == "ciphertexts" and many.packing == "slots"
    for made in (few, many):
        report = made.report()
        packings = {each["packing"] for each in report["considered"]}
        assert packings == {"slots", "ciphertexts"}
        assert report["considered"][0]["packing"] == report["packing"] == made.packing
        assert report["batch"] == made.batch and "ms a sample" in report["reason"]
        assert report["failure_log2"] <= -128 and report["security_bits"] >= 128
        assert ("one sample a slot" in made.details) and ("one ciphertext a sample" in made.details)
    assert not many.report()["evaluation_keys"]
    np.testing.assert_allclose(few.scores(x[:3]), many.scores(x[:3]), atol=0.01)
    kernel = radial(3, 20)
    assert compile_batch(kernel, x[:, :3], batch=1).client.packing == "query"
    assert compile_batch(kernel, x[:, :3], batch=5000).client.packing == "coefficients"


def test_radial_reports_tell_that_vectors_are_learnt() -> None:
    report = compile_batch(radial(3, 20), table(30, 3), batch=5000).report()
    assert "support vectors themselves" in report["client_learns"]
    assert compile_batch(linear(3, 2), table(30, 3), batch=5000).report()["client_learns"] == "the decision scores"


def test_coarse_integers_are_told() -> None:
    x = np.random.default_rng(8).standard_normal((400, 30))
    x[0] *= 20  # one sample widens every range
    model = LinearModel(np.ones((1, 30)), np.zeros(1), "decision", labels=np.arange(2))
    with pytest.warns(AccuracyWarning, match="less than 97 %"):
        made = compile_batch(model, x, batch=5000, input_bits=4, packing="slots")
    assert made.report()["agreement"] < 0.97


def test_values_beyond_the_range_count_as_its_end() -> None:
    made = compile_batch(linear(2, 1), table(30, 2), batch=5000)
    with pytest.warns(CalibratedRangeWarning, match="1 of 2 samples"):
        found = made.client.integers(np.array([[0.0, 0.0], [1e9, -1e9]]))
    np.testing.assert_array_equal(found[1], made.client.limit * np.array([1, -1]))


def test_wrong_models_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    x = table(20, 2)
    model = linear(2, 1)
    for options in (
        {"batch": 0},
        {"batch": 1, "packing": "rows"},
        {"batch": 1, "margin": -1},
        {"batch": 1, "input_bits": 99},
    ):
        with pytest.raises(CompileError):
            compile_batch(model, x, **options)
    with pytest.raises(FheError):
        compile_batch(model, np.zeros((5, 3)), batch=1)
    with pytest.raises(FheError):
        compile_batch(model, np.full((5, 2), np.nan), batch=1)
    with pytest.raises(CompileError, match="finite"):
        PowerModel(np.full((1, 2), np.inf), np.zeros(1), 2, np.ones((1, 1)), np.zeros(1))
    for degree in (1, 17):
        with pytest.raises(CompileError, match="degree"):
            powers(2, 3, degree)
    with pytest.raises(CompileError, match="gamma"):
        RadialModel(np.ones((1, 2)), 0.0, np.ones((1, 1)), np.zeros(1))
    with pytest.raises(CompileError, match="no program"):
        compile_batch(powers(40, 5, 12), table(50, 40), batch=1, packing="ciphertexts")
    monkeypatch.setattr("cloakwork.models.batches.build.slot_room", lambda moduli: 10)
    with pytest.raises(NoParameterSetError, match="no set"):
        compile_batch(powers(40, 5, 12), table(50, 40), batch=5000)


def test_wrong_samples_keys_and_ciphertexts() -> None:
    made = compile_batch(linear(3, 2), table(30, 3), batch=5000)
    client = made.client
    key, stranger = (LevelledClientKey.generate(client.parameters[0]) for _ in range(2))
    for wrong in (np.zeros((2, 4)), np.full((1, 3), np.inf), np.zeros(3)):
        with pytest.raises(ShapeError):
            made.predict(wrong)
    with pytest.raises(CompileError, match="how"):
        made.predict(np.zeros((1, 3)), "execute")  # type: ignore[arg-type]
    with pytest.raises(CompileError, match="keys"):
        made.predict(np.zeros((1, 3)), "encrypted", key=[key, stranger])
    scorer = made.scorer()
    query = client.encrypt_integers([key], np.zeros((1, 3), dtype=int))
    answers = scorer.score(query)
    with pytest.raises(KeyMismatchError):
        client.outputs([stranger], answers, 1)
    with pytest.raises(CompileError, match="answers"):
        client.outputs([key], [*answers, *answers], 1)
    with pytest.raises(CompileError, match="answers"):
        client.outputs([key], query and [query[0].expand()], 1)
    with pytest.raises(ShapeError, match="moduli"):
        scorer.score([*query, *query])
    zeros = np.zeros((3, client.parameters[0].polynomial_size), dtype=int)
    for other in (key.encrypt(zeros[:2], client.level), key.encrypt(zeros, 1)):
        with pytest.raises(ShapeError, match="query"):
            scorer.score([other])
    with pytest.raises(ShapeError, match="scale 7"):
        scorer.score(
            [LevelledCiphertexts(client.parameters[0], key.key_id, query[0].expand().words, 7, query[0].expand().noise)]
        )
    with pytest.raises(CompileError, match="integers"):
        client.encrypt_integers([key], np.zeros((0, 3), dtype=int))
    with pytest.raises(CompileError, match="evaluation keys"):
        made.scorer([key.evaluation_keys()])


def test_strangers_keys_are_refused_where_there_are_products() -> None:
    made = compile_batch(radial(3, 10), table(30, 3), batch=1, packing="ciphertexts")
    key, stranger = (LevelledClientKey.generate(made.client.parameters[0]) for _ in range(2))
    scorer = made.scorer(made.client.evaluation_keys([key]))
    with pytest.raises(KeyMismatchError):
        scorer.score(made.client.encrypt_integers([stranger], np.zeros((1, 3), dtype=int)))
    with pytest.raises(CompileError, match="evaluation keys"):
        made.scorer()


def test_hostile_specifications() -> None:
    votes = Votes(np.array(["a", "b", "c"]))
    texts = [
        compile_batch(linear(3, 2), table(30, 3), batch=5000).client.to_json(),
        compile_batch(radial(3, 10, 3), table(30, 3), batch=5000, after=votes).client.to_json(),
    ]
    rng = random.Random(10)
    for text in texts:
        fields = json.loads(text)
        assert BatchClient.from_json(text).to_json() == text
        for name in fields:
            with pytest.raises(CompileError):
                BatchClient.from_json(json.dumps({k: v for k, v in fields.items() if k != name}))
        for change in (
            {"format": "x"}, {"set": "bgv99"}, {"plaintext_moduli": []}, {"plaintext_moduli": [65537, 65537]}, {"packing": "rows"}, {"level": 9},
            {"answer_level": 3}, {"limit": 1}, {"features": 4}, {"unit": []}, {"unit": [0.0, 1.0]}, {"told": [1.0]}, {"input_steps": []},
            {"packing": "slots"}, {"votes": {"labels": [1, 2, 3, 4], "break_ties": False, "pairs": False}},
        ):  # fmt: skip
            with pytest.raises(CompileError):
                BatchClient.from_json(json.dumps(fields | change))
        for _ in range(150):
            try:
                BatchClient.from_json(json.dumps(mutated(fields, rng)))
            except CompileError:
                continue
    for wrong in ("", "[]", "3", "{", texts[0][:-2]):
        with pytest.raises(CompileError):
            BatchClient.from_json(wrong)
