"""A model with two samples to a ciphertext, served as any other: it counts rows of ciphertexts, the client counts samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from in_process import serving
from scoring_server import toy_model

from cloakwork.app.client.client import Client
from cloakwork.app.client.keyring import TemporaryKeyring


def test_it_is_served(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "models" / "pairs"
    folder.mkdir(parents=True)
    model = toy_model(set_name="toy_lanes")
    model.save(folder / "1.clkm")
    x = np.random.default_rng(0).uniform(-0.7, 0.7, (7, 4))
    expected = model.predict(x)
    many = np.repeat(x, 50, axis=0)
    bound = 6 * np.std(model.predict(many, "simulate", seed=1) - np.repeat(expected, 50, axis=0))
    with (
        serving(tmp_path / "data", environment={"MAX_SAMPLES": "2"}) as server,
        Client(server.url, keyring=TemporaryKeyring(tmp_path)) as client,
    ):
        facts = client.model("pairs").facts
        assert (facts["samples_per_ciphertext"], facts["largest_batch"]) == (2, 2)
        for count in (1, 2, 7):  # of seven, two requests of two rows each
            scores = client.score("pairs", x[:count])
            assert scores.samples == count
            np.testing.assert_allclose(scores.predictions, expected[:count], atol=bound)
        used = client.call("GET", "/v2/usage")
        assert used["bootstraps_today"] == (1 + 1 + 4) * facts["bootstraps"]
