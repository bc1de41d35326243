"""One protocol for every kind of compiled model: signatures, files, keys, servers and reports are alike."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import cloakwork as cw

RNG = np.random.default_rng(11)
X = RNG.standard_normal((100, 3))
Y = np.argmax(X, axis=1)
OF_ALL = {"parameter_set", "security_bits", "original"}
OF_LEVELLED = {"client_learns", "server_learns", "agreement"}


@pytest.fixture(scope="module", params=["tree", "index", "sums", "kernel", "program"])
def model(request: pytest.FixtureRequest) -> Any:
    chosen: dict[str, tuple[Any, dict[str, Any]]] = {
        "tree": (DecisionTreeClassifier(max_depth=2, random_state=0), {"sets": "toy_two_limb"}),
        "index": (KNeighborsClassifier(3), {}),
        "sums": (LogisticRegression(), {"batch": 500}),
        "kernel": (SVC(), {"batch": 1}),
        "program": (LogisticRegression(), {"batch": 1}),
    }
    estimator, options = chosen[request.param]
    return cw.compile(estimator.fit(X, Y), X, accuracy=0, **options)


def test_it_is_a_model(model: Any) -> None:
    assert isinstance(model, cw.Model)
    parameters = list(inspect.signature(model.predict).parameters.values())
    assert [each.name for each in parameters[:3]] == ["x", "how", "key"] and parameters[1].default == "clear"
    assert all(each.kind is each.KEYWORD_ONLY for each in parameters[2:]) and parameters[2].default is None
    for method in ("encrypt", "decrypt"):
        names = list(inspect.signature(getattr(model.client, method)).parameters)
        assert (
            names[: 2 + (method == "decrypt")] == {"encrypt": ["key", "x"], "decrypt": ["key", "answer", "x"]}[method]
        )
    assert json.loads(model.client.to_json())


def test_reports_say_the_same_by_the_same_names(model: Any) -> None:
    report = model.report()
    assert OF_ALL <= set(report) and (hasattr(model, "program") or OF_LEVELLED <= set(report))
    assert isinstance(json.loads(json.dumps(report)), dict) and str(model)


def test_encrypted_predictions_make_a_key_where_none_is_given(model: Any) -> None:
    assert model.predict(X[:1], "encrypted")[0] == model.predict(X[:1])[0]


def test_files_keep_how_it_answers_as_the_users_own(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    served = cw.load(tmp_path / "model")
    assert served.report() == model.report() and served.report()["original"]["samples"] > 0
    assert str(served) == str(model)


def test_a_file_and_two_parties(model: Any, tmp_path: Path) -> None:
    """The client has its specification's text alone, the server a file and public keys."""
    model.save(tmp_path / "model")
    served = cw.load(tmp_path / "model")
    assert type(served) is type(model)
    client = cw.load_client(served.client.to_json())
    key = cw.Key.generate(client)
    key.save(tmp_path / "key", "of this test, and long enough")
    key = cw.Key.load(tmp_path / "key", "of this test, and long enough")
    server = cw.Server(served, key.public(served))
    x = X[: min(3, getattr(client, "samples_at_once", 3))]
    found = client.decrypt(key, server.answer(client.encrypt(key, x)), x)
    np.testing.assert_array_equal(found, model.predict(x))
    np.testing.assert_array_equal(served.predict(x, "encrypted", key=key), found)


@pytest.mark.os_entropy
def test_a_server_never_loads_the_secret_side() -> None:
    """Though a model that it imports makes a key if it is asked to predict encrypted without one."""
    code = "import sys, cloakwork.models.server, cloakwork.api.engine.process as _; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "cloakwork.models.neighbours.index" in done.stdout.split()
    assert not {"fhe_core.client", "fhe_core.levelled.client", "fhe_core.wire.keystore"}.intersection(
        name.removeprefix("cloakwork.") for name in done.stdout.split()
    )
