"""Models and keys of sets with structured secrets: refused unless the service is told to take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from in_process import serving
from scoring_server import User, toy_model

from cloakwork.app.client.client import Client
from cloakwork.app.client.keyring import TemporaryKeyring
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.parameters import parameter_digest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A model of a set with a structured secret, and one of another."""
    for name, set_name in (("plain", "toy_two_limb"), ("block", "toy_block_two_limb")):
        folder = tmp_path / "data" / "models" / name
        folder.mkdir(parents=True)
        toy_model(set_name=set_name).save(folder / "1.clkm")
    return tmp_path / "data"


def test_they_are_refused_by_default(data: Path) -> None:
    with serving(data) as server, server.client() as http:
        states = {each["name"]: each["state"] for each in http.post("/v2/repository/index", json={}).json()}
        assert states == {"plain": "READY", "block": "UNAVAILABLE"}
        for path in ("/v2/models/block/client", "/v2/models/block/versions/1/client"):
            answer = http.get(path)
            assert (answer.status_code, answer.json()["code"]) == (409, "structured_refused")
            assert "'toy_block_two_limb'" in answer.json()["error"] and "structured" in answer.json()["error"]
        assert http.post("/v2/repository/models/block/load").json()["code"] == "structured_refused"
        key = ClientKey.generate("toy_block_two_limb")
        keys = key.evaluation_keys().to_bytes()
        announced = {
            "parameter_set_digest": parameter_digest(key.parameters).hex(),
            "bytes": len(keys),
            "sha256": "00" * 32,
        }
        refused = http.post("/v2/keys", json=announced)
        assert (refused.status_code, refused.json()["code"]) == (409, "structured_refused")
        user = User.of(http, "plain")  # others are served as ever
        user.upload()
        assert user.infer(user.encrypt()[1]).status_code == 200


def test_they_are_taken_where_both_sides_agree(data: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(-0.7, 0.7, (2, 4))
    with serving(data, environment={"STRUCTURED": "true"}) as server:
        with Client(server.url, keyring=TemporaryKeyring(tmp_path)) as client:
            assert client.model("block").facts["structured_secret"] is True
            with pytest.raises(ParameterError, match="structured=True"):
                client.predict("block", x)
        with Client(server.url, keyring=TemporaryKeyring(tmp_path), structured=True) as client:
            expected = toy_model(set_name="toy_block_two_limb").predict(x)
            np.testing.assert_allclose(client.predict("block", x), expected, atol=0.1)
