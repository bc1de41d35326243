"""Models for batches of every packing, and a client of one that does by hand what app.client does."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import cloakwork as cw
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.several import joined_bytes, split_bytes
from cloakwork.fhe_core.levelled.wire import Kind
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.batches.model import BatchModel

FEATURES = 3


def table(seed: int = 0, samples: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Drawn samples, and labels of three classes."""
    x = np.random.default_rng(seed).standard_normal((samples, FEATURES))
    return x, np.array(["low", "middle", "high"])[np.argmax(x, axis=1)]


def models(seed: int = 0) -> dict[str, BatchModel]:
    """Of every packing: sums, powers of two plaintext moduli, queries, a program of look-ups."""
    x, y = table(seed)
    kernel = make_pipeline(StandardScaler(), SVC(kernel="rbf"))
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        found = {
            "sums": cw.compile(LogisticRegression().fit(x, y), x, batch=5000, accuracy=0),
            "queries": cw.compile(kernel.fit(x, y), x, batch=1, accuracy=0),
            "program": cw.compile(LogisticRegression().fit(x, y), x, batch=1, accuracy=0),
        }
        patch.setattr("cloakwork.models.batches.build.MOST_MONOMIALS", 0)
        found["powers"] = cw.compile(SVC(kernel="poly", degree=2).fit(x, y), x, batch=500, accuracy=0)
    packings = {name: "program" if each.single is not None else each.client.packing for name, each in found.items()}
    assert packings == {"sums": "coefficients", "queries": "query", "program": "program", "powers": "slots"}
    assert len(found["powers"].client.parameters) == 2
    return found


@dataclass(frozen=True)
class BatchUser:
    http: httpx.Client
    model: str
    client: BatchClient
    key: cw.Key
    keys: bytes
    facts: dict[str, Any]

    @classmethod
    def of(cls, http: httpx.Client, model: str) -> BatchUser:
        text = http.get(f"/v2/models/{model}/client").raise_for_status().text
        facts = http.get(f"/v2/models/{model}").raise_for_status().json()["parameters"]["fhe"]
        client = BatchClient.from_json(text)
        key = cw.Key.generate(client)
        made = [
            each.evaluation_keys(shape.automorphisms, products=shape.products).to_bytes()
            for each, shape in zip(key.parts, client.key_shapes.shapes, strict=True)
        ]
        return cls(http, model, client, key, joined_bytes(made), facts)

    def announce(self, keys: bytes, **changes: Any) -> httpx.Response:
        content = {"bytes": len(keys), "sha256": hashlib.sha256(keys).hexdigest()}
        return self.http.post(
            "/v2/keys", json={"parameter_set_digest": self.facts["parameter_digest"], **content, **changes}
        )

    def send(self, keys: bytes) -> httpx.Response:
        """Announced and sent whole."""
        identity = self.announce(keys).raise_for_status().json()["id"]
        return self.http.patch(f"/v2/keys/{identity}", content=keys, headers={"Upload-Offset": "0"})

    def upload(self) -> str:
        answer = self.send(self.keys)
        assert answer.status_code == 200 and answer.json()["state"] == "ready", answer.text
        identity: str = answer.json()["id"]
        return identity

    def encrypt(self, samples: np.ndarray) -> bytes:
        return joined_bytes([each.to_bytes() for each in self.client.encrypt(self.key, samples)])

    def infer(self, body: bytes, **options: Any) -> httpx.Response:
        return self.http.post(f"/v2/models/{self.model}/infer", content=body, **options)

    def labels(self, body: bytes, samples: np.ndarray) -> np.ndarray:
        parts = [LevelledCiphertexts.from_bytes(each) for each in split_bytes(body, Kind.CIPHERTEXTS)]
        return self.client.decrypt(self.key, parts, samples)
