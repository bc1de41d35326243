"""The zoo's MNIST model: the whole test set simulated, some images really encrypted. Skipped without the data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiler import CompiledModel, compile_onnx
from cloakwork.models.zoo import zoo_model
from cloakwork.training.mnist_data import load_mnist

DATA = Path(os.environ.get("CLOAKWORK_DATA", ".")) / "mnist"

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="no MNIST: set CLOAKWORK_DATA to the folder that holds mnist/"
)


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compile_onnx(zoo_model("mnist-mlp-1x30"), load_mnist("train")[0][:3000], profile="balanced")


def test_simulated_accuracy_on_the_whole_test_set(model: CompiledModel) -> None:
    images, labels = load_mnist("test")
    clear = model.predict_float(images).argmax(axis=1)
    simulated = model.predict(images, fhe="simulate", seed=1).argmax(axis=1)
    assert (clear == labels).mean() >= 0.973
    assert (simulated == labels).mean() >= 0.968
    assert (simulated == clear).mean() >= 0.99


def test_encrypted_images_agree_with_clear(model: CompiledModel) -> None:
    images, _ = load_mnist("test")
    chosen = images[:4]
    key = ClientKey._from_entropy(model.program.parameters, bytes(32))
    packed = model.client.encrypt(key, chosen[:1])
    assert len(packed.to_bytes()) <= 8192
    scores = model.predict(chosen, fhe="execute", key=key, session=Session(key.evaluation_keys(), threads=1))
    clear = model.predict_float(chosen)
    assert (scores.argmax(axis=1) == clear.argmax(axis=1)).all()
    assert np.abs(scores - clear).max() < 0.5 * np.abs(clear).max()
