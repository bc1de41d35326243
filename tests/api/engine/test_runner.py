"""The engine's half of an index: one table for all keys, several runs at once, cancelling, files that are damaged."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from neighbour_user import small_index

from cloakwork.api.engine.messages import EngineOptions, KeyPlace, ModelPlace
from cloakwork.api.engine.runner import Outcome, Progress, Runner, RunRequest
from cloakwork.api.errors import DamagedKeyError, UnavailableError
from cloakwork.fhe_core.errors import CancelledError, KeyMismatchError, SerializationError, ShapeError
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.models.neighbours.index import NeighbourIndex

QUERY = np.array([1, 2, -3, 4, -5, 6])


class Owner:
    """Of a key, in a folder of the service."""

    def __init__(self, index: NeighbourIndex, folder: Path, name: str) -> None:
        self.client = index.client
        self.key = LevelledClientKey.generate(index.client.parameters)
        self.place = KeyPlace(name, folder / name)
        self.place.path.write_bytes(index.client.evaluation_keys(self.key).to_bytes())

    def request(self, model: ModelPlace, body: bytes | None = None) -> RunRequest:
        return RunRequest(model, self.place, 1, body or self.client.encrypt(self.key, QUERY).to_bytes())

    def scores(self, answer: bytes) -> np.ndarray:
        return self.client.scores(self.key, LevelledCiphertexts.from_bytes(answer))


@pytest.fixture(scope="module")
def index() -> NeighbourIndex:
    return small_index(4200)


@pytest.fixture
def model(index: NeighbourIndex, tmp_path: Path) -> ModelPlace:
    index.save(tmp_path / "1.clkn")
    digest = hashlib.sha256((tmp_path / "1.clkn").read_bytes()).hexdigest()
    return ModelPlace("index", digest, tmp_path / "1.clkn")


def runner(**options: int) -> Runner:
    return Runner(EngineOptions("cpu", threads=2, **options))


def scored(engine: Runner, request: RunRequest, progress: Progress | None = None) -> Outcome:
    (outcome,) = engine.run([request], [engine.read(request)], progress)
    return outcome


def test_runs_of_several_clients_at_once(index: NeighbourIndex, model: ModelPlace, tmp_path: Path) -> None:
    engine, owners = runner(), [Owner(index, tmp_path, f"key{i}") for i in range(4)]
    expected = list(index.scores(QUERY[None])[0])
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda each: scored(engine, each.request(model)), owners * 2))
    for owner, outcome in zip(owners * 2, outcomes, strict=True):
        assert list(owner.scores(outcome.body)) == expected and outcome.device == "cpu"
    facts = engine.residency.facts()
    assert engine.residency.names() == [f"key{i}" for i in range(4)], "the table is no key"
    table_bytes = index.report()["table_bytes"]
    expanded = index.client.key_shape.rounds * 2 * index.client.parameters.switch_key_bytes
    assert facts["device_bytes"] == table_bytes + 4 * expanded
    assert (facts["misses"], facts["hits"]) == (5, 11), "a table, and a key of each"
    for owner in owners:
        engine.residency.forget(owner.place.name)
    assert engine.residency.names() == [] and engine.residency.facts()["device_bytes"] == table_bytes


def test_a_table_and_its_key_do_not_push_each_other_out(
    index: NeighbourIndex, model: ModelPlace, tmp_path: Path
) -> None:
    engine, owner = runner(device_key_bytes=1), Owner(index, tmp_path, "key")
    for _ in range(3):
        scored(engine, owner.request(model))
    assert (engine.residency.facts()["misses"], engine.residency.facts()["hits"]) == (2, 4)


def test_progress_and_cancelling(index: NeighbourIndex, model: ModelPlace, tmp_path: Path) -> None:
    """Cancelled while the table is prepared, which the next run does then."""
    engine, owner = runner(), Owner(index, tmp_path, "key")
    with pytest.raises(CancelledError):
        scored(engine, owner.request(model), lambda done, total: False)
    seen: list[tuple[int, int]] = []

    def watch(done: int, total: int) -> bool:
        seen.append((done, total))
        return True

    assert list(owner.scores(scored(engine, owner.request(model), watch).body)) == list(index.scores(QUERY[None])[0])
    assert seen and all(0 < done <= total for done, total in seen)


def test_what_the_web_process_would_have_refused(index: NeighbourIndex, model: ModelPlace, tmp_path: Path) -> None:
    """The engine checks again: it believes no header."""
    engine, owner, other = runner(), Owner(index, tmp_path, "key"), Owner(index, tmp_path, "other")
    size = index.client.parameters.polynomial_size
    with pytest.raises(SerializationError):
        scored(engine, owner.request(model, b"CLKL"))
    with pytest.raises(KeyMismatchError):
        scored(engine, owner.request(model, other.client.encrypt(other.key, QUERY).to_bytes()))
    for polynomials, level in ((2, index.client.level), (1, index.client.level - 1)):
        wrong = owner.key.encrypt_seeded(np.zeros((polynomials, size), dtype=int), level).to_bytes()
        with pytest.raises(ShapeError):
            scored(engine, owner.request(model, wrong))
    foreign = small_index(300, seed=3)
    assert foreign.client.parameters != index.client.parameters
    stranger = Owner(foreign, tmp_path, "foreign")
    with pytest.raises(KeyMismatchError):
        scored(engine, stranger.request(model))


def test_damaged_files(index: NeighbourIndex, model: ModelPlace, tmp_path: Path) -> None:
    engine, owner = runner(), Owner(index, tmp_path, "key")
    whole = owner.place.path.read_bytes()
    owner.place.path.write_bytes(whole[:-1])
    with pytest.raises(DamagedKeyError):
        scored(engine, owner.request(model))
    owner.place.path.write_bytes(whole)
    damaged = ModelPlace("index", "cd" * 32, tmp_path / "2.clkn")
    damaged.path.write_bytes(model.path.read_bytes()[:-1])
    with pytest.raises(UnavailableError) as told:
        scored(engine, owner.request(damaged))
    assert str(tmp_path) not in str(told.value), "where the service keeps things is nobody's business"


@pytest.mark.gpu
def test_answers_of_a_gpu_are_those_of_the_cpu(index: NeighbourIndex, model: ModelPlace, tmp_path: Path) -> None:
    """Byte for byte."""
    owner = Owner(index, tmp_path, "key")
    asked = owner.request(model)
    answers = [scored(Runner(EngineOptions(device, threads=2)), asked) for device in ("cpu", "cuda:0")]
    assert answers[0].body == answers[1].body and answers[1].device == "cuda:0"
    several = Runner(EngineOptions("cuda:0", threads=2))
    with ThreadPoolExecutor(4) as pool:
        assert {outcome.body for outcome in pool.map(lambda _: scored(several, asked), range(8))} == {answers[0].body}
