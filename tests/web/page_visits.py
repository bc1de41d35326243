"""People at the page in a real Chromium: they draw, fill in, ask, and wait for an answer or for what went wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import cloakwork as cw
from cloakwork.app.cli.shared.sample_digits import STROKES
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.repository import describe

NETWORK, TREE, BITMAPS, PHOTOGRAPHS = "mnist-mlp-1x30", "iris-tree", "digits-logistic", "cifar10-vgg"
MODELS = (
    NETWORK,
    TREE,
    "wine-boosting",
    "breast-cancer-forest",
    BITMAPS,
)  # of the server that most tests of the page share
BROWSER = pytest.mark.xdist_group("browser")  # one worker has the browser and its servers
PATIENCE_MS = 60_000

Opened = Callable[..., Any]


def colour_reader() -> CompiledModel:
    """[3, 32, 32] to ten scores: the mean of each colour is the score of one of the first three classes."""
    mix = np.zeros((10, 3), np.float32)
    mix[:3] = 4 * np.eye(3)
    nodes = [
        helper.make_node("AveragePool", ["x"], ["means"], kernel_shape=[32, 32]),
        helper.make_node("Flatten", ["means"], ["flat"]),
        helper.make_node("Relu", ["flat"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "mix"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 10])],
        [onnx.numpy_helper.from_array(mix, "mix")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    samples = np.random.default_rng(5).uniform(0, 1, (256, 3, 1, 1)) * np.ones((1, 1, 32, 32))
    return cw.compile(proto, samples, precision="fast", sets=[parameter_set("nn05_block")], structured=True, accuracy=0)


def with_models(data: Path, *names: str) -> Path:
    """A data folder with models of the zoo."""
    for name in names or (NETWORK, TREE):
        (data / "models" / name).mkdir(parents=True)
        zoo.load_model(name).save(data / "models" / name / "1.clkm")
        describe(data / "models" / name / "1.clkm")
    return data


def answer_of(page: Any) -> str:
    """Waits for it, or for what went wrong."""
    page.locator("#answer:not([hidden]), #error:not([hidden])").first.wait_for()
    assert page.locator("#error").is_hidden(), page.locator("#error").inner_text()
    return str(page.locator("#label").inner_text())


def ask(page: Any) -> str:
    page.get_by_role("button", name="Encrypt and ask").click()
    return answer_of(page)


def draw(page: Any, digit: int) -> None:
    """With the mouse, through the points of our own strokes (x to 9, y to 12)."""
    page.locator(".board").scroll_into_view_if_needed()
    box = page.locator(".board").bounding_box()
    scale = box["height"] / 18

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return box["x"] + (point[0] + 5) * scale, box["y"] + (point[1] + 3) * scale

    for stroke in STROKES[digit]:
        page.mouse.move(*place(stroke[0]))
        page.mouse.down()
        for point in stroke[1:]:
            page.mouse.move(*place(point), steps=6)
        page.mouse.up()


def choose(page: Any, model: str) -> None:
    """Waits until its form is there."""
    page.get_by_label("Ask the model").select_option(model)
    page.locator("#ask:enabled").wait_for()


def with_passphrase(page: Any, word: str) -> None:
    page.get_by_text("Keys", exact=True).click()
    page.get_by_label("Passphrase").fill(word)


def costs_of(page: Any) -> str:
    return str(page.locator("#costs").inner_text())


def overheard(page: Any) -> None:
    """From the next load on: `asked`, the numbers that the page sends to its worker, and `answered`, what comes back for them."""
    page.add_init_script("""
        window.asked = []; window.answered = [];
        const post = Worker.prototype.postMessage;
        Worker.prototype.postMessage = function (message) {
          if (!this.isOverheard) {
            this.isOverheard = true;
            this.addEventListener("message", ({ data }) => data.answer?.sent && window.answered.push(data.answer));
          }
          if (message.question?.kind === "score") window.asked.push(message.question.numbers);
          return post.call(this, message);
        };
    """)


def listening(page: Any) -> None:
    """`said`: every sentence of the status from now on."""
    page.evaluate("""() => {
        window.said = [];
        const status = document.querySelector("#status");
        new MutationObserver(() => window.said.push(status.textContent)).observe(status, { childList: true, characterData: true, subtree: true });
    }""")
