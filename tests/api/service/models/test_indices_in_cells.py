"""An index in cells is served as one without: messages of sizes that were said, keys with the one for products, what does not fit refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from in_process import serving
from neighbour_user import NeighbourUser
from scoring_server import Server

from cloakwork.app.client import Client
from cloakwork.app.client.keyring import Keyring
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts, SeededLevelledCiphertexts
from cloakwork.models.neighbours.cells import UNSEEN
from cloakwork.models.neighbours.index import NeighbourIndex


@pytest.fixture(scope="module")
def index() -> NeighbourIndex:
    """Sixty clusters in two blocks of four cells each, of which a query asks for four."""
    rng = np.random.default_rng(3)
    labels = np.arange(9000) % 60
    table = rng.integers(-90, 91, (60, 5))[labels] + rng.integers(-6, 7, (9000, 5))
    return NeighbourIndex.build(table, labels, n_neighbors=3, cells=8, probes=4)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, index: NeighbourIndex, fill: Any) -> Iterator[Server]:
    data: Path = fill(tmp_path_factory.mktemp("cells") / "data")
    (data / "models" / "near").mkdir(parents=True)
    index.save(data / "models" / "near" / "1.clkn")
    with serving(data) as started:
        yield started


@pytest.fixture
def user(http: httpx.Client) -> NeighbourUser:
    return NeighbourUser.of(http)


def test_the_scores_of_the_cells_that_are_asked_for(user: NeighbourUser, index: NeighbourIndex) -> None:
    assert user.client.cells is not None and user.facts["report"]["probes"] == 4
    assert len(user.keys) == user.facts["evaluation_key_bytes"]
    user.upload()
    for query in index.integers[[0, 17, 8999]].astype(np.int64):
        body = user.client.encrypt_integers(user.key, query).to_bytes()
        answer = user.infer(body)
        assert answer.status_code == 200, answer.text
        sizes = (user.facts["input_bytes_one_sample"], user.facts["output_bytes_one_sample"])
        assert (len(body), len(answer.content)) == sizes and max(sizes) <= 100_000
        found = LevelledCiphertexts.from_bytes(answer.content, user.client.parameters)
        scores = user.client.scores(user.key, found, query)
        assert (scores == index.scores(query[None])[0]).all() and UNSEEN in scores


def test_what_does_not_fit_is_refused(user: NeighbourUser, index: NeighbourIndex) -> None:
    query = index.integers[0].astype(np.int64)
    without = user.client.evaluation_keys(user.key)
    few = type(without)(without.parameters, without.key_id, {g: k for g, k in without.keys.items() if g}).to_bytes()
    assert user.announce(few).status_code in (413, 422)
    user.upload()
    full = SeededLevelledCiphertexts.from_bytes(user.client.encrypt_integers(user.key, query).to_bytes())
    whole = user.key.encrypt_seeded(np.zeros(user.client.parameters.polynomial_size, dtype=int), user.client.level)
    assert user.infer(whole.to_bytes()).status_code == 413
    assert user.infer(full.to_bytes()[:-1]).status_code == 422


def test_labels_by_the_client(server: Server, tmp_path: Path, index: NeighbourIndex) -> None:
    samples = index.client.centre + index.client.step * index.integers[:4]
    with Client(server.url, keyring=Keyring(tmp_path / "keys", "word")) as client:
        assert list(client.predict("near", samples)) == list(index.predict(samples)) == [0, 1, 2, 3]
