"""`import cloakwork`: compile, load, Key and Server; judged by the user's own object, by ONNX Runtime, and by the two parties apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import cloakwork as cw
from cloakwork.errors import CompileError, ImportFaultError, SerializationError
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts

ROOT = Path(__file__).resolve().parents[1]
X, Y = load_iris(return_X_y=True)
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.os_entropy
def test_importing_imports_nothing_else() -> None:
    code = "import sys, cloakwork; print(sorted(n for n in sys.modules if n.startswith(('cloakwork.', 'numpy', 'onnx', 'torch'))))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout == "[]\n", result.stderr


@pytest.mark.os_entropy
def test_the_checkout_takes_the_installed_engine() -> None:
    code = "from cloakwork.fhe_core import _engine, parameters; print(parameters.__file__, parameters.parameter_set('toy').name)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.stdout.split() == [str(ROOT / "cloakwork" / "fhe_core" / "parameters.py"), "toy"], result.stderr


def test_every_name_is_there() -> None:
    for name in dir(cw):
        assert getattr(cw, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'complie'"):
        cw.complie  # noqa: B018


def test_two_parties_apart(tmp_path: Path) -> None:
    forest = RandomForestClassifier(4, max_depth=3, random_state=0).fit(X, Y)
    cw.compile(forest, X, sets="toy_two_limb", accuracy=0).save(tmp_path / "m.clkm")
    model = cw.load(tmp_path / "m.clkm")
    assert isinstance(model, cw.Model)
    key = cw.Key.generate(model.client)
    key.save(tmp_path / "k.key", "of this test, and long enough")
    same = cw.Key.load(tmp_path / "k.key", "of this test, and long enough")
    request = model.client.encrypt(key, X[::30])
    public = key.public().to_bytes()
    assert same.only.key_id == key.only.key_id and request.to_bytes() not in public
    answer = cw.Server(model, public).answer(request.to_bytes())
    np.testing.assert_array_equal(model.client.decrypt(same, answer), model.predict(X[::30]))
    assert (model.predict(X) == forest.predict(X)).mean() > 0.9
    assert SeededPackedCiphertexts.from_bytes(request.to_bytes()).purpose == model.program.digest


@pytest.mark.parametrize("kind", ["program", "batch", "index"])
def test_a_client_elsewhere(kind: str) -> None:
    fitted = KNeighborsClassifier(3) if kind == "index" else LogisticRegression(max_iter=1000)
    model = cw.compile(fitted.fit(X, Y), X, **({"batch": 50} if kind == "batch" else {}))
    client = cw.load_client(model.client.to_json().encode())
    assert type(client) is type(model.client) and client.to_json() == model.client.to_json()


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, b"\xff", '{"packing": 1}', '{"n_neighbors": 1}'])
def test_another_text_is_no_client(text: str | bytes) -> None:
    with pytest.raises((SerializationError, CompileError)):
        cw.load_client(text)


def test_nearest_neighbours_and_their_file(tmp_path: Path) -> None:
    fitted = KNeighborsClassifier(3).fit(X, Y)
    cw.compile(fitted, X).save(tmp_path / "near")
    index = cw.load(tmp_path / "near")
    key = cw.Key.generate(index)
    server = cw.Server(index, key.public(index).to_bytes())
    answer = server.answer(index.client.encrypt(key, X[70]).to_bytes())
    assert index.client.decrypt(key, answer, X[70]) == fitted.predict(X[70:71])[0]


@pytest.mark.parametrize("batch", [None, 50])
def test_a_pipeline_of_unlike_scales(batch: int | None) -> None:
    x, y = load_wine(return_X_y=True)
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    model = cw.compile(fitted, x, batch=batch)
    assert (np.asarray(model.predict(x)) == fitted.predict(x)).mean() > 0.97
    key = cw.Key.generate(model)
    np.testing.assert_array_equal(model.predict(x[::60], "encrypted", key=key), model.predict(x[::60]))


def test_kernel_machines_are_batches() -> None:
    fitted = SVC(kernel="poly", degree=2).fit(X, Y)
    assert (cw.compile(fitted, X).predict(X) == fitted.predict(X)).mean() > 0.97


class TwoInputs(torch.nn.Module):
    """Double precision, two inputs, a dropout that only training has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.left, self.right = torch.nn.Linear(3, 8).double(), torch.nn.Linear(2, 8).double()
        self.last, self.drop = torch.nn.Linear(8, 2).double(), torch.nn.Dropout(0.5)

    def forward(self, a: Any, b: Any) -> Any:
        return self.last(self.drop(torch.relu(self.left(a) + self.right(b))))


def test_a_module_of_two_inputs_stays_as_it_is() -> None:
    rng, module = np.random.default_rng(0), TwoInputs().train()
    samples = (rng.uniform(-1, 1, (300, 3)), rng.uniform(-1, 1, (300, 2)))
    model = cw.compile(module, samples, precision="balanced")
    assert module.training and module.drop.training
    with torch.no_grad():
        expected = module.eval()(*map(torch.tensor, samples)).numpy()
    np.testing.assert_allclose(model.predict(samples), expected, atol=0.1 * expected.std())


def test_an_image_module_by_tensors() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(2 * 16, 3)
    )
    images = torch.rand(200, 1, 6, 6)
    with torch.no_grad():
        expected = module(images).numpy()
    found = cw.compile(module, images, accuracy=0.85).predict(images.numpy())
    error = np.sqrt(np.square(found - expected).mean()) / expected.std(axis=0).mean()
    assert error < 0.15


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((9, 64), np.float32), r"Conv2d itself refuses the first one, \[1, 64\] of float32 \("),
        (np.zeros((9, 1, 8, 8), np.uint8), r"refuses the first one, \[1, 1, 8, 8\] of uint8 .* as it was trained on"),
        (
            torch.utils.data.DataLoader(torch.zeros(9, 1, 8, 8)),
            r"an array or a tensor \[samples, \.\.\], got DataLoader",
        ),
    ],
    ids=["flat", "bytes", "loader"],
)
def test_samples_that_a_module_does_not_take(samples: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        cw.compile(torch.nn.Conv2d(1, 2, 3), samples)


class Branching(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 if float(x.sum()) > 0 else x * 3


def test_a_branch_on_values_is_refused() -> None:
    samples = np.concatenate([np.ones((1, 4)), -np.ones((20, 4))]).astype(np.float32)
    with pytest.raises((ImportFaultError, CompileError), match="Branching"):
        cw.compile(Branching(), samples)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the exporter
@pytest.mark.parametrize("form", [lambda path: path, str, Path.read_bytes], ids=["path", "text", "bytes"])
def test_onnx_in_every_form(form: Any, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    torch.manual_seed(1)
    torch.onnx.export(torch.nn.Linear(4, 2), (torch.zeros(1, 4),), str(tmp_path / "m.onnx"), dynamo=False,
                      input_names=["x"], dynamic_axes={"x": {0: "n"}})  # fmt: skip
    x = X.astype(np.float32)
    (expected,) = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x})
    found = cw.compile(form(tmp_path / "m.onnx"), x, task="regression").predict(x)
    np.testing.assert_allclose(found, expected, atol=0.1 * expected.std())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"threshold": "client"}, "no option 'threshold'; did you mean 'thresholds'"),
        ({"bodies": 2, "rounding": "onnxruntime"}, "rounding, bodies: no option of trees"),
        ({"accuracy": 1.5}, "accuracy: expected a share from 0 to 1, got 1.5"),
        ({"margin": 7}, "margin: expected a share from 0 to 1, got 7"),
        ({"task": {"y": "x"}}, "task: expected one of 'classification', 'regression', 'embedding', got 'x'"),
        ({"tell": "classes"}, "tell: expected one of 'scores', 'labels', got 'classes'"),
        ({"options": cw.Options(), "task": "regression"}, "got an Options and task beside it"),
    ],
)
def test_options_that_are_wrong(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CompileError, match=said):
        cw.compile(RandomForestClassifier(2, random_state=0).fit(X, Y), X, **options)


@pytest.mark.parametrize("model", [3, None, [1, 2], b"no model", Path("nowhere.onnx")])
def test_what_is_no_model(model: Any) -> None:
    with pytest.raises((CompileError, OSError), match="model: expected|nowhere"):
        cw.compile(model, X)
