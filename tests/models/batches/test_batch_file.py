"""The file of a model for batches: the way there and back, damage, what a stranger writes, and what its client's half does not say."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import cloakwork as cw
from cloakwork.fhe_core.errors import FheError, SerializationError
from cloakwork.models.batches.batch_file import batch_from_bytes, read_batch
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.batches.model import BatchModel
from tests.models.json_mutations import mutated

IRIS, WINE = load_iris(return_X_y=True), load_wine(return_X_y=True)
MUTATIONS = 240


def drawn(rng: np.random.Generator, features: int) -> tuple[np.ndarray, np.ndarray]:
    """A table and labels of three classes."""
    x = rng.standard_normal((120, features)) * rng.uniform(0.1, 100, features)
    return x, np.argmax(x[:, :3] / x.std(axis=0)[:3], axis=1)


CASES: list[Any] = [
    pytest.param(lambda: LogisticRegression(max_iter=2000), 500, id="classifier"),
    pytest.param(lambda: make_pipeline(StandardScaler(), LogisticRegression()), 1, id="classifier-of-one-sample"),
    pytest.param(lambda: Ridge(), 500, id="regressor"),
    pytest.param(lambda: make_pipeline(StandardScaler(), SVC(kernel="poly", degree=2)), 500, id="poly"),
    pytest.param(lambda: make_pipeline(StandardScaler(), SVC(kernel="rbf")), 5000, id="rbf-in-coefficients"),
    pytest.param(lambda: make_pipeline(StandardScaler(), SVC(kernel="rbf")), 1, id="rbf-by-queries"),
    pytest.param(lambda: make_pipeline(StandardScaler(), SVR(kernel="poly", degree=3)), 1, id="cubes-of-one-sample"),
]


def compiled(estimator: Any, x: np.ndarray, y: np.ndarray, batch: int) -> BatchModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cw.compile(estimator.fit(x, y), x, batch=batch, accuracy=0)
    assert isinstance(model, BatchModel)
    return model


@pytest.mark.parametrize("make, batch", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_there_and_back(tmp_path: Path, make: Any, batch: int, seed: int) -> None:
    x, y = drawn(np.random.default_rng(seed), 4 + seed)
    made = compiled(make(), x, y, batch)
    made.save(tmp_path / "model")
    found = cw.load(tmp_path / "model")
    assert isinstance(found, BatchModel) and found.client.to_json() == made.client.to_json()
    assert found.report() == made.report() and str(found) == str(made) and found.considered == made.considered
    np.testing.assert_array_equal(found.predict(x), made.predict(x))
    np.testing.assert_array_equal(found.scores(x), made.scores(x))
    key = cw.Key.generate(found)
    np.testing.assert_array_equal(found.predict(x[:3], "encrypted", key=key), made.predict(x[:3]))
    client = BatchClient.from_json(found.client.to_json())
    server = cw.Server(found, key.public(client))
    answer = server.answer(client.encrypt(key, x[:1]))
    np.testing.assert_array_equal(client.decrypt(key, answer, x[:1]), made.predict(x[:1]))
    found.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_both_packings_and_a_program_are_among_them() -> None:
    x, y = drawn(np.random.default_rng(0), 4)
    found = [compiled(case.values[0](), x, y, case.values[1]) for case in CASES]
    assert {"coefficients", "query"} <= {each.client.packing for each in found}
    assert any(each.single is not None for each in found)


@pytest.fixture(scope="module")
def models() -> list[BatchModel]:
    """With powers in slots, kernels by the client and a program."""
    x, y = IRIS
    found = [
        compiled(make_pipeline(StandardScaler(), SVC(kernel="rbf")), x, y, 1),
        compiled(LogisticRegression(max_iter=2000), x, y, 1),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cloakwork.models.batches.build.MOST_MONOMIALS", 0)
        found.append(compiled(SVC(kernel="poly", degree=2), x, y, 500))
    assert [each.client.packing for each in found[::2]] == ["query", "slots"] and found[1].single is not None
    return found


@pytest.fixture(scope="module")
def files(models: list[BatchModel], tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("files") / "model"
    found = []
    for model in models:
        model.save(path)
        found.append(path.read_bytes())
    return found


def test_a_model_of_several_moduli(models: list[BatchModel], files: list[bytes], tmp_path: Path) -> None:
    """Its key is one file too, with a part for each."""
    (tmp_path / "model").write_bytes(files[2])
    model = BatchModel.load(tmp_path / "model")
    key = cw.Key.generate(model)
    key.save(tmp_path / "key", "of this test, and long enough")
    same = cw.Key.load(tmp_path / "key", "of this test, and long enough")
    assert [each.key_id for each in same.parts] == [each.key_id for each in key.parts]
    x = IRIS[0][::40]
    np.testing.assert_array_equal(model.predict(x, "encrypted", key=same), models[2].predict(x))


def sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def with_header(data: bytes, fields: Any) -> bytes:
    (length,) = struct.unpack_from("<Q", data, 8)
    text = json.dumps(fields).encode()
    return sealed(data[:8] + struct.pack("<Q", len(text)) + text + data[16 + length : -32])


def header(data: bytes) -> Any:
    (length,) = struct.unpack_from("<Q", data, 8)
    return json.loads(data[16 : 16 + length])


def test_damage(files: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "model"
    for data in files:
        for wrong in (b"", data[:20], data[:-1], data + b"\0", b"PK" + data[2:], sealed(data[:40]), sealed(data[:-60])):
            path.write_bytes(wrong)
            with pytest.raises(SerializationError, match=str(path)):
                read_batch(path)
        for place in range(0, len(data), max(1, len(data) // 60)):
            changed = bytearray(data)
            changed[place] ^= 4
            path.write_bytes(bytes(changed))
            with pytest.raises(FheError):
                cw.load(path)
        path.write_bytes(data)
        with pytest.raises(SerializationError, match="at most 100 bytes"):
            read_batch(path, max_bytes=100)


@pytest.mark.parametrize(
    "place, form, value", [(4, "<H", 2), (6, "<H", 1), (8, "<Q", 1 << 62), (8, "<Q", 0), (8, "<Q", 5)]
)
def test_hostile_prefixes(files: list[bytes], place: int, form: str, value: int) -> None:
    for data in files:
        changed = bytearray(data[:-32])
        struct.pack_into(form, changed, place, value)
        with pytest.raises(SerializationError, match="batch: expected"):
            batch_from_bytes(sealed(bytes(changed)))


def test_files_by_a_generator_of_mutations(files: list[bytes]) -> None:
    """Headers with right checksums: refused in words, or a model whose sums do not wrap."""
    rng, refused = random.Random(40), 0
    for number in range(MUTATIONS):
        data = files[number % len(files)]
        try:
            found = batch_from_bytes(with_header(data, mutated(header(data), rng)))
        except FheError as error:
            assert len(str(error)) < 400
            refused += 1
            continue
        found.formula.scores(np.zeros((1, found.client.features), dtype=np.int64), found.client.limit)
    assert refused > MUTATIONS // 2


@pytest.mark.parametrize("number", [0, 1, 2])
def test_files_by_a_generator_of_flipped_bits(files: list[bytes], number: int) -> None:
    rng, data = random.Random(number), files[number][:-32]
    for _ in range(100):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 2, 8))):
            changed[rng.randrange(4, len(changed))] ^= 1 << rng.randrange(8)
        try:
            batch_from_bytes(sealed(bytes(changed)))
        except FheError as error:
            assert "\n" not in str(error)


def test_parts_of_different_models(files: list[bytes]) -> None:
    """The client of one beside the formula of another; a program that is not the client's; a limit with which sums would wrap."""
    fields = [header(each) for each in files]
    for other in ({"client": fields[1]["client"]}, {"program_bytes": 7}, {"formula": fields[1]["formula"]}):
        with pytest.raises(SerializationError):
            batch_from_bytes(with_header(files[0], fields[0] | other))
    client = fields[2]["client"]
    client["plaintext_moduli"] = client["plaintext_moduli"][:1]
    with pytest.raises(SerializationError):
        batch_from_bytes(with_header(files[2], fields[2]))
    low = header(files[2])
    low["client"]["level"] = low["client"]["answer_level"] = 1
    with pytest.raises(SerializationError, match="room|level"):
        batch_from_bytes(with_header(files[2], low))


def test_the_clients_half_holds_no_weights(models: list[BatchModel]) -> None:
    """A stranger looks for rows of the formula among the specification's numbers, as integers, as scaled ones, and in any order."""
    for model in models:
        text = model.client.to_json()
        assert BatchClient.from_json(text).to_json() == text
        numbers = np.abs([float(each) for each in _numbers(json.loads(text))])
        formula = model.formula
        matrix = formula.inner if formula.outer is None else formula.outer
        large = np.unique(np.abs(matrix[np.abs(matrix) > 50])).astype(float)
        for scale in (1.0, *np.unique(model.client.unit), *np.unique(model.client.limit * model.client.unit)):
            known = [bool(np.isclose(numbers, each * scale, rtol=1e-9, atol=0).any()) for each in large]
            assert len(known) >= 2 and np.mean(known) < 0.5


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for each in value.values() for n in _numbers(each)]
    if isinstance(value, list):
        return [n for each in value for n in _numbers(each)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []
