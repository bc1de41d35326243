"""Answers of every kind of model as labels, scores or probabilities: those of the user's own estimator, or a refusal before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import cloakwork as cw
from cloakwork.app.client.remote_models import (
    RemoteBatch,
    RemoteBatchProgram,
    RemoteIndex,
    RemoteModel,
    RemoteProgram,
)
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.client_steps.checks import STAGES
from cloakwork.models.messages import message_bytes
from cloakwork.models.neighbours.client import NeighbourClient

RNG = np.random.default_rng(12)
X = RNG.standard_normal((100, 3))
Y = np.argmax(X, axis=1)
TOY = {"sets": "toy_two_limb"}
# By name: an estimator, options, the outputs that a client can ask for, and the estimator's method for the last of them.
KINDS: dict[str, tuple[Any, dict[str, Any], tuple[str, ...], str]] = {
    "tree": (DecisionTreeClassifier(max_depth=2, random_state=0), TOY, STAGES, "predict_proba"),
    "labels only": (DecisionTreeClassifier(max_depth=2, random_state=0), {"tell": "labels"}, ("labels",), "predict"),
    "decisions": (RidgeClassifier(), {}, ("labels", "scores"), "decision_function"),
    "sums": (LogisticRegression(), {"batch": 500}, STAGES, "predict_proba"),
    "program of a batch": (LogisticRegression(), {"batch": 1}, STAGES, "predict_proba"),
    "votes": (SVC(), {"batch": 1}, ("labels", "scores"), "decision_function"),
    "regression": (Ridge(), {"batch": 500}, ("labels", "scores"), "predict"),
    "index": (KNeighborsClassifier(3), {}, ("labels",), "predict"),
}


def remote(client: Any) -> RemoteModel:
    given = ("m", "1", {}, "")
    if isinstance(client, NeighbourClient):
        return RemoteIndex(*given, client)
    if not isinstance(client, BatchClient):
        return RemoteProgram(*given, client)
    return RemoteBatch(*given, client) if client.program is None else RemoteBatchProgram(*given, client.program, client)


@pytest.mark.parametrize("name", KINDS)
def test_outputs_are_those_of_the_estimator(name: str) -> None:
    estimator, options, told, method = KINDS[name]
    fitted = estimator.fit(X, X @ [1.0, 2.0, 3.0] if name == "regression" else Y)
    model = cw.compile(fitted, X, accuracy=0, **options)
    asked = remote(model.client)
    assert set(asked.outputs()) == set(told)
    key = cw.Key.generate(model)
    rows = asked.rows(X[:1])
    engine_key = key if isinstance(asked, RemoteBatch) else key.only
    answer = message_bytes(cw.Server(model, key.public(model)).answer(asked.encrypt(engine_key, rows)))
    decrypt: Callable[[Any], Any] = lambda output: asked.decrypt(engine_key, answer, rows, output)  # noqa: E731
    if name == "regression":
        np.testing.assert_allclose(decrypt("labels"), fitted.predict(X[:1]), atol=0.2)
    else:
        assert decrypt("labels")[0] == fitted.predict(X[:1])[0]
    if method != "predict":
        np.testing.assert_allclose(
            decrypt("probabilities" if method == "predict_proba" else "scores"),
            getattr(fitted, method)(X[:1]),
            atol=0.1,
        )
    for output in {*STAGES, "nonsense"} - set(told):
        with pytest.raises(ParameterError, match="which is what it tells"):
            asked.require_output(output)  # type: ignore[arg-type]
