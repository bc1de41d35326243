"""The zoo's MNIST models: test images simulated, some really encrypted."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from requirements import needs

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel
from cloakwork.training.mnist_data import load_mnist

DATA = Path(os.environ.get("CLOAKWORK_DATA", ".")) / "mnist"

pytestmark = pytest.mark.tier("all")


@pytest.fixture(autouse=True)
def data() -> None:
    needs(DATA.is_dir(), "no MNIST: set CLOAKWORK_DATA to the folder that holds mnist/")


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return zoo.load_model("mnist-mlp-1x30")


@pytest.mark.tier("release")
def test_simulated_accuracy_on_the_whole_test_set(model: CompiledModel) -> None:
    images, labels = load_mnist("test")
    card = zoo.card("mnist-mlp-1x30").facts
    clear = model.predict(images).argmax(axis=1)
    simulated = model.predict(images, how="simulate", seed=1).argmax(axis=1)
    assert (clear == labels).mean() == pytest.approx(card["accuracy_clear"], abs=2e-3)
    assert (simulated == labels).mean() == pytest.approx(card["accuracy_simulated"], abs=1e-3)
    assert (simulated == labels).mean() >= 0.968
    assert (simulated == clear).mean() >= 0.99


@pytest.mark.parametrize("name", ["mnist-mlp-1x30", "mnist-mlp-3x1024", "mnist-cnn", "mnist-strided"])
def test_models_do_what_their_cards_say(name: str) -> None:
    """On 1,000 images of the later half, which is the easier one: a lower bound from the card of all 10,000 and four deviations."""
    images, labels = (part[-1000:] for part in load_mnist("test"))
    model, card = zoo.load_model(name), zoo.card(name).facts
    assert card["accuracy_clear"] - card["accuracy_simulated"] < 0.0045
    clear = model.predict(images).argmax(axis=1)
    simulated = model.predict(images, how="simulate", seed=1).argmax(axis=1)
    for found, expected in ((clear, card["accuracy_clear"]), (simulated, card["accuracy_simulated"])):
        assert (found == labels).mean() >= expected - 4 * np.sqrt(expected * (1 - expected) / 1000)
    assert (simulated == clear).mean() >= 0.985


def test_encrypted_images_agree_with_clear(model: CompiledModel) -> None:
    images, _ = load_mnist("test")
    chosen = images[:2]
    key = ClientKey._from_entropy(model.program.parameters, bytes(32))
    packed = model.client.encrypt(key, chosen[:1])
    assert len(packed.to_bytes()) <= 8192
    scores = model.predict(chosen, how="encrypted", key=key, session=Session(key.evaluation_keys(), threads=1))
    clear = model.predict(chosen)
    assert (scores.argmax(axis=1) == clear.argmax(axis=1)).all()
    assert np.abs(scores - clear).max() < 0.5 * np.abs(clear).max()
