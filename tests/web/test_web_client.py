"""Browser's client and Python's are one client: keys and ciphertexts of one work with the other, and answers are the same."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from several_tensors import image_and_table, samples

import cloakwork as cw
from cloakwork.app.cli.shared.sample_digits import sample_digits
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.runtime.encrypted import Runtime

PASSPHRASE = "of the test"
NODE_KEYS = ("mnist-mlp-1x30", "wine-boosting", "digits-logistic")
pytestmark = pytest.mark.os_entropy
Party = Callable[..., None]


@pytest.mark.parametrize(
    "files",
    [
        ("vectors", "steps", "page", "client", "consent"),
        pytest.param(("audit", "hostile", "upload", "wiped", "worker"), marks=pytest.mark.tier("all")),
    ],
    ids=["known answers", "others"],
)
def test_in_node(web: Path, files: tuple[str, ...]) -> None:
    """The tests of the package itself."""
    paths = [str(web / "test" / f"{file}.test.mjs") for file in files]
    done = subprocess.run(["node", "--test", *paths], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.tier("all")
def test_shipped_sets_have_the_same_words(party: Party, tmp_path: Path) -> None:
    """Evaluation keys from one entropy: of one limb and two, with several keys to a step, raised, of two lanes."""
    sets = ["lut2", "lut3", "lut4_fft", "gate_64_block_cm2", "nn05_raised", "nn2_wide"]
    (tmp_path / "sets.json").write_text(json.dumps(sets))
    (tmp_path / "toy").touch()  # lets the step take its entropy from here
    party("entropy", tmp_path)
    found = json.loads((tmp_path / "digests.json").read_text())
    for name in sets:
        keys = ClientKey._from_entropy(name, bytes(range(32))).evaluation_keys()
        assert found[name] == hashlib.sha256(keys.to_bytes()).hexdigest(), name


def samples_of(name: str) -> np.ndarray:
    """Of networks for photographs, which have no samples here, noise."""
    data = zoo.card(name).data
    if data == "cifar10":
        return np.random.default_rng(8).uniform(0, 1, (2, 3, 32, 32))
    return sample_digits()[0][:4] if data == "mnist" else zoo.held_out(name).x[:5]


def write(folder: Path, model: CompiledModel, x: np.ndarray) -> None:
    (folder / "client.json").write_text(model.client.to_json())
    (folder / "samples.json").write_text(json.dumps(x.tolist()))


def evaluate(folder: Path, model: CompiledModel) -> None:
    """The server's step, without the secret key."""
    session = Session(EvaluationKeys.load(folder / "evaluation.keys"))
    encrypted = SeededPackedCiphertexts.from_bytes((folder / "input.bin").read_bytes())
    (folder / "result.bin").write_bytes(Runtime(model.program, session).answer(encrypted).to_bytes())


def check_answers(folder: Path, model: CompiledModel, key: ClientKey, x: np.ndarray) -> None:
    """Node's answers are Python's for the same ciphertexts, and its labels those of the model."""
    result = load_results((folder / "result.bin").read_bytes())
    answers = json.loads((folder / "answers.json").read_text())
    for until in ("scores", "probabilities", "labels"):
        try:
            expected = np.asarray(model.client.decrypt(key, result, x, until))
        except ParameterError:  # of a network, whose scores Node gives then
            expected = np.asarray(model.client.decrypt(key, result, x, "scores"))
        if expected.dtype.kind == "U":  # names of classes
            np.testing.assert_array_equal(values(answers[until]), expected)
        else:
            np.testing.assert_allclose(values(answers[until]), expected, rtol=1e-12, atol=1e-12)
    labels, clear = values(answers["labels"]), np.asarray(model.predict(x))
    if labels.ndim > 1:  # scores of a network
        labels, clear = labels.argmax(axis=1), clear.argmax(axis=1)
    np.testing.assert_array_equal(labels, clear)


def values(answer: Any) -> np.ndarray:
    return np.asarray(answer["data"]).reshape(answer["shape"]) if isinstance(answer, dict) else np.asarray(answer)


@pytest.mark.parametrize(
    "name", ["iris-tree", *(pytest.param(name, marks=pytest.mark.tier("all")) for name in NODE_KEYS)]
)
def test_keys_of_node_work_in_python(name: str, party: Party, tmp_path: Path) -> None:
    model, x = zoo.load_model(name), samples_of(name)
    write(tmp_path, model, x)
    party("keys+encrypt", tmp_path)
    evaluate(tmp_path, model)
    party("decrypt", tmp_path)
    key = ClientKey.load(tmp_path / "secret.key", PASSPHRASE)
    check_answers(tmp_path, model, key, x)
    encrypted = SeededPackedCiphertexts.from_bytes((tmp_path / "input.bin").read_bytes())
    expected = model.client.phases(x)
    np.testing.assert_allclose(
        key.decrypt(encrypted), expected, atol=64 * key.parameters.glwe_sigma / key.parameters.modulus
    )


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", ["mnist-mlp-1x30", "iris-tree"])
def test_keys_of_python_work_in_node(name: str, party: Party, tmp_path: Path) -> None:
    model, x = zoo.load_model(name), samples_of(name)
    write(tmp_path, model, x)
    key = ClientKey.generate(model.client.parameters)
    key.save(tmp_path / "secret.key", PASSPHRASE)
    key.evaluation_keys().save(tmp_path / "evaluation.keys")
    party("encrypt", tmp_path)
    evaluate(tmp_path, model)
    party("decrypt", tmp_path)
    check_answers(tmp_path, model, key, x)


@pytest.mark.tier("all")
def test_several_inputs_and_outputs(party: Party, tmp_path: Path) -> None:
    model = cw.compile(image_and_table(np.random.default_rng(2)), samples(np.random.default_rng(3), 300), accuracy=0.8)
    x = samples(np.random.default_rng(5), 2)
    (tmp_path / "client.json").write_text(model.client.to_json())
    (tmp_path / "samples.json").write_text(json.dumps({name: each.tolist() for name, each in x.items()}))
    party("keys+encrypt", tmp_path)
    evaluate(tmp_path, model)
    party("decrypt", tmp_path)
    labels = json.loads((tmp_path / "answers.json").read_text())["labels"]
    for name, clear in model.predict(x).items():
        np.testing.assert_allclose(values(labels[name]), clear, atol=0.2 * np.abs(clear).max())
