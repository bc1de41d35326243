"""A small index, and a client of it that does by hand what app.client does."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.neighbours.index import NeighbourIndex


def small_index(rows: int = 5000, features: int = 6, seed: int = 0) -> NeighbourIndex:
    """Two clouds of points, more than one ciphertext holds."""
    table = np.random.default_rng(seed).integers(-40, 41, (rows, features))
    return NeighbourIndex.build(table, (table[:, 0] > 0).astype(int), n_neighbors=3)


@dataclass(frozen=True)
class NeighbourUser:
    http: httpx.Client
    model: str
    client: NeighbourClient
    key: LevelledClientKey
    keys: bytes
    facts: dict[str, Any]

    @classmethod
    def of(cls, http: httpx.Client, model: str = "near") -> NeighbourUser:
        text = http.get(f"/v2/models/{model}/client").raise_for_status().text
        facts = http.get(f"/v2/models/{model}").raise_for_status().json()["parameters"]["fhe"]
        client = NeighbourClient.from_json(text)
        key = LevelledClientKey.generate(client.parameters)
        return cls(http, model, client, key, client.evaluation_keys(key).to_bytes(), facts)

    def announce(self, keys: bytes, **changes: Any) -> httpx.Response:
        content = {"bytes": len(keys), "sha256": hashlib.sha256(keys).hexdigest()}
        return self.http.post(
            "/v2/keys", json={"parameter_set_digest": self.facts["parameter_digest"], **content, **changes}
        )

    def send(self, keys: bytes, **changes: Any) -> httpx.Response:
        """Announced and sent whole."""
        identity = self.announce(keys, **changes).raise_for_status().json()["id"]
        return self.http.patch(f"/v2/keys/{identity}", content=keys, headers={"Upload-Offset": "0"})

    def upload(self) -> str:
        answer = self.send(self.keys)
        assert answer.status_code == 200 and answer.json()["state"] == "ready", answer.text
        identity: str = answer.json()["id"]
        return identity

    def encrypt(self, sample: np.ndarray) -> bytes:
        return self.client.encrypt(self.key, sample).to_bytes()

    def infer(self, body: bytes, **options: Any) -> httpx.Response:
        return self.http.post(f"/v2/models/{self.model}/infer", content=body, **options)

    def scores(self, body: bytes) -> np.ndarray:
        return self.client.scores(self.key, LevelledCiphertexts.from_bytes(body, self.client.parameters))
