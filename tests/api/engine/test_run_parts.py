"""A run of several requests in one engine: each is read, answered, failed and cancelled by itself."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from in_process import LocalLink
from neighbour_user import small_index
from scoring_server import toy_model

from cloakwork.api.engine.messages import (
    Cancel,
    Done,
    End,
    EngineOptions,
    Event,
    Failed,
    KeyPlace,
    ModelPlace,
    Progressed,
    Started,
)
from cloakwork.api.service.scoring.work import Work, run_message
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.models.audit.audit_key import AuditKey
from cloakwork.models.compiled import CompiledModel

SECONDS = 60.0


@dataclass
class Engine:
    """`ends`: the last event of each part; `seen`: all events of each."""

    link: LocalLink
    up: asyncio.Event
    told: asyncio.Event
    ends: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, list[Event]] = field(default_factory=dict)

    async def run(self, works: list[Work], early: Callable[[], None] = lambda: None) -> list[Any]:
        """Returns the ends."""
        self.link.send(run_message(works))
        early()
        while any(work.id not in self.ends for work in works):
            await self.told.wait()
            self.told.clear()
        return [self.ends.pop(work.id) for work in works]


@asynccontextmanager
async def engine() -> Any:
    def heard(event: Event) -> None:
        made.seen.setdefault(event.id, []).append(event)
        if isinstance(event, End):
            made.ends[event.id] = event
        made.told.set()

    options = EngineOptions("cpu", 2)
    link = LocalLink(options, AuditKey(bytes(32)), heard, lambda _: made.up.set(), lambda: None)
    made = Engine(link, asyncio.Event(), asyncio.Event())
    link.start()
    try:
        await made.up.wait()
        yield made
    finally:
        await link.stop()


def in_engine(body: Callable[[Engine], Any]) -> None:
    async def run() -> None:
        async with asyncio.timeout(SECONDS), engine() as made:
            await body(made)

    asyncio.run(run())


@dataclass(frozen=True)
class Place:
    """A model and a key in files, and requests for them."""

    kind: str
    model: Path
    key: Path
    encrypt: Callable[[int, int], bytes]  # samples, number

    def work(self, name: str, body: bytes, samples: int = 1, **own: Any) -> Work:
        digest = hashlib.sha256(self.model.read_bytes()).hexdigest()
        places = ModelPlace(self.kind, digest, self.model), KeyPlace(self.key.name, self.key)
        return Work(name, "tenant", 5, *places, lambda *_: None, 0.1, body=body, samples=samples, **own)


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    return toy_model()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, compiled: CompiledModel) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("program")
    key = ClientKey.generate(compiled.program.parameters)
    compiled.save(folder / "1.clkm")
    key.evaluation_keys().save(folder / "key")

    def encrypt(samples: int, number: int) -> bytes:
        return compiled.client.encrypt(key, [[0.1 * number, -0.2, 0.3, 0.05]] * samples).to_bytes()

    yield Place("program", folder / "1.clkm", folder / "key", encrypt)


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder, index = tmp_path_factory.mktemp("index"), small_index(4200)
    key = LevelledClientKey.generate(index.client.parameters)
    index.save(folder / "1.clkn")
    (folder / "key").write_bytes(index.client.evaluation_keys(key).to_bytes())

    def encrypt(samples: int, number: int) -> bytes:
        return index.client.encrypt(key, [number, 2, -3, 4, -5, 6]).to_bytes()

    yield Place("index", folder / "1.clkn", folder / "key", encrypt)


@pytest.mark.parametrize("which", ["place", "near"])
def test_answers_are_those_of_each_alone(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    where: Place = request.getfixturevalue(which)
    sizes = (1, 3, 1, 2) if where.kind == "program" else (1, 1, 1)
    bodies = [where.encrypt(samples, number) for number, samples in enumerate(sizes)]
    (tmp_path / "input").write_bytes(bodies[1])

    async def body(made: Engine) -> None:
        works = [where.work(str(i), each, sizes[i]) for i, each in enumerate(bodies)]
        alone = [(await made.run([work]))[0] for work in works]
        assert all(end.together == 1 for end in alone)
        files = {"input": str(tmp_path / "input"), "output": str(tmp_path / "output")}
        works[1] = where.work("1", b"", sizes[1], **files)
        ends = await made.run(works)
        answers = [end.body for end in ends]
        assert answers[1] == b"" and ends[1].sha256 == hashlib.sha256(alone[1].body).hexdigest()
        answers[1] = (tmp_path / "output").read_bytes()
        assert answers == [end.body for end in alone]
        assert {end.together for end in ends} == {len(works)}
        # Each has the share of its samples, of one time.
        for name in ("seconds", "busy_seconds"):
            assert {round(getattr(end, name) / size, 9) for end, size in zip(ends, sizes, strict=True)} == {
                round(getattr(ends[0], name), 9)
            }
        assert sum(end.busy_seconds for end in ends) == pytest.approx(ends[0].took_seconds)

    in_engine(body)


def test_what_is_wrong_with_a_part_is_its_own(place: Place, compiled: CompiledModel, tmp_path: Path) -> None:
    good = [place.encrypt(1, 1), place.encrypt(2, 2)]
    stranger = ClientKey.generate(compiled.program.parameters)
    packed = SeededPackedCiphertexts.from_bytes(good[0])
    bad = {
        "damaged": good[0][:-1],
        "no ciphertexts": b"CLKC",
        "another program's": packed.with_purpose(bytes(32)).to_bytes(),
        "another key's": compiled.client.encrypt(stranger, [[0.1, 0.2, 0.3, 0.4]]).to_bytes(),
    }

    async def body(made: Engine) -> None:
        works = [place.work("first", good[0]), *(place.work(name, each) for name, each in bad.items())]
        works += [
            place.work("gone", b"", input=str(tmp_path / "nothing")),
            place.work("nowhere", good[0], output=str(tmp_path / "no folder" / "output")),
            place.work("last", good[1], 2),
        ]
        alone = [(await made.run([work]))[0] for work in works]
        together = await made.run(works)
        assert [getattr(end, "body", b"") for end in together] == [getattr(end, "body", b"") for end in alone]
        assert [end for end in together if isinstance(end, Failed)] == [end for end in alone if isinstance(end, Failed)]
        assert [end.id for end in together if isinstance(end, Done)] == ["first", "last"]

    in_engine(body)


def test_parts_without_what_is_wrong_are_one_evaluation(place: Place) -> None:
    async def body(made: Engine) -> None:
        works = [place.work("a", place.encrypt(1, 1)), place.work("b", b"junk"), place.work("c", place.encrypt(1, 2))]
        assert [getattr(end, "together", None) for end in await made.run(works)] == [2, None, 2]

    in_engine(body)


def test_one_is_cancelled_and_then_all(place: Place, tmp_path: Path) -> None:
    samples = 400
    inputs = [place.encrypt(samples, number) for number in range(3)]

    def works(name: str) -> list[Work]:
        return [place.work(f"{name}{i}", each, samples, progress=True) for i, each in enumerate(inputs)]

    async def body(made: Engine) -> None:
        first, second = works("one"), works("all")
        first[1].output = str(tmp_path / "never")
        ends = await made.run(first, lambda: made.link.send(Cancel("one1")))
        assert [type(end) for end in ends] == [Done, Failed, Done]
        assert ends[1].code == "cancelled" and not (tmp_path / "never").exists()

        def cancel() -> None:
            for work in second:
                made.link.send(Cancel(work.id))

        ends = await made.run(second, cancel)
        assert {end.code for end in ends} == {"cancelled"}
        assert isinstance((await made.run([place.work("after", inputs[0], samples)]))[0], Done)

    in_engine(body)


def test_each_hears_of_its_own_progress(place: Place, compiled: CompiledModel) -> None:
    sizes = (600, 300, 1)

    async def body(made: Engine) -> None:
        works = [place.work(str(i), place.encrypt(size, i), size, progress=i < 2) for i, size in enumerate(sizes)]
        await made.run(works)
        for work in works[:2]:
            first, *reports, last = made.seen[work.id]
            assert isinstance(first, Started) and isinstance(last, Done) and reports
            for report in reports:
                assert isinstance(report, Progressed)
                assert 0 <= report.done <= report.total == work.samples * compiled.program.bootstraps
        assert [type(event) for event in made.seen["2"]] == [Done]

    in_engine(body)
