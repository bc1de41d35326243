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

from cloakwork.api.engine.messages import Message
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.service.scoring.work import Work, run_message
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.models.audit.audit_key import AuditKey
from cloakwork.models.compiled import CompiledModel

SECONDS = 60.0


@dataclass
class Engine:
    """`ends`: the last message of each part, with its body; `seen`: all events of each."""

    link: LocalLink
    up: asyncio.Event
    told: asyncio.Event
    ends: dict[str, tuple[Message, bytes]] = field(default_factory=dict)
    seen: dict[str, list[Message]] = field(default_factory=dict)

    async def run(self, works: list[Work], early: Callable[[], None] = lambda: None) -> list[tuple[Message, bytes]]:
        self.link.send(*run_message(works))
        early()
        while any(work.id not in self.ends for work in works):
            await self.told.wait()
            self.told.clear()
        return [self.ends.pop(work.id) for work in works]


@asynccontextmanager
async def engine() -> Any:
    def heard(message: Message, body: bytes) -> None:
        made.seen.setdefault(message["id"], []).append(message)
        if message["event"] in ("done", "failed"):
            made.ends[message["id"]] = message, body
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
        message = {
            "model": {"kind": self.kind, "digest": digest, "path": str(self.model)},
            "key": {"name": self.key.name, "path": str(self.key)},
            **own,
        }
        return Work(name, "tenant", 5, message, lambda *_: None, 0.1, body=body, samples=samples)


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
        assert all(message["together"] == 1 for message, _ in alone)
        files = {"input": str(tmp_path / "input"), "output": str(tmp_path / "output")}
        works[1] = where.work("1", b"", sizes[1], **files)
        found = await made.run(works)
        answers = [answer for _, answer in found]
        assert answers[1] == b"" and found[1][0]["sha256"] == hashlib.sha256(alone[1][1]).hexdigest()
        answers[1] = (tmp_path / "output").read_bytes()
        assert answers == [answer for _, answer in alone]
        messages = [message for message, _ in found]
        assert {message["together"] for message in messages} == {len(works)}
        # Each has the share of its samples, of one time.
        for name in ("seconds", "busy_seconds"):
            assert {round(message[name] / size, 9) for message, size in zip(messages, sizes, strict=True)} == {
                round(messages[0][name], 9)
            }
        assert sum(message["busy_seconds"] for message in messages) == pytest.approx(messages[0]["took_seconds"])

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
        assert [answer for _, answer in together] == [answer for _, answer in alone]
        for (one, _), (other, _) in zip(alone, together, strict=True):
            told = ("event", "code", "http_status", "message")
            assert [one.get(name) for name in told] == [other.get(name) for name in told]
        ends = {work.id: message["event"] for work, (message, _) in zip(works, together, strict=True)}
        assert [name for name, event in ends.items() if event == "done"] == ["first", "last"]

    in_engine(body)


def test_parts_without_what_is_wrong_are_one_evaluation(place: Place) -> None:
    async def body(made: Engine) -> None:
        works = [place.work("a", place.encrypt(1, 1)), place.work("b", b"junk"), place.work("c", place.encrypt(1, 2))]
        messages = [message for message, _ in await made.run(works)]
        assert [message.get("together") for message in messages] == [2, None, 2]

    in_engine(body)


def test_one_is_cancelled_and_then_all(place: Place, tmp_path: Path) -> None:
    samples = 400
    inputs = [place.encrypt(samples, number) for number in range(3)]

    def works(name: str) -> list[Work]:
        return [place.work(f"{name}{i}", each, samples, progress=True) for i, each in enumerate(inputs)]

    async def body(made: Engine) -> None:
        first, second = works("one"), works("all")
        first[1].message["output"] = str(tmp_path / "never")
        ends = await made.run(first, lambda: made.link.send({"op": "cancel", "id": "one1"}))
        assert [message["event"] for message, _ in ends] == ["done", "failed", "done"]
        assert ends[1][0]["code"] == "cancelled" and not (tmp_path / "never").exists()

        def cancel() -> None:
            for work in second:
                made.link.send({"op": "cancel", "id": work.id})

        ends = await made.run(second, cancel)
        assert {message["code"] for message, _ in ends} == {"cancelled"}
        assert (await made.run([place.work("after", inputs[0], samples)]))[0][0]["event"] == "done"

    in_engine(body)


def test_each_hears_of_its_own_progress(place: Place, compiled: CompiledModel) -> None:
    sizes = (600, 300, 1)

    async def body(made: Engine) -> None:
        works = [place.work(str(i), place.encrypt(size, i), size, progress=i < 2) for i, size in enumerate(sizes)]
        await made.run(works)
        for work in works[:2]:
            names = [message["event"] for message in made.seen[work.id]]
            assert names[0] == "started" and names[-1] == "done" and set(names[1:-1]) == {"progress"}
            for message in made.seen[work.id][1:-1]:
                assert 0 <= message["done"] <= message["total"] == work.samples * compiled.program.bootstraps
        assert [message["event"] for message in made.seen["2"]] == ["done"]

    in_engine(body)
