"""Messages between the web process and the engine process, over a socket pair.

    JSON bytes u32 | body bytes u64 | JSON (UTF-8) | body

little-endian. The JSON holds the message's type and its fields but for `body`. To the engine: `AuditKeySecret` once and first, then `StartRun` with
one part or several, `Cancel` of a part, `ForgetKey`, `Ping`. From it: `Hello` and `Pong`; of each part `Started` and `Progressed` where it wants
them, then `Done` or `Failed`.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeAlias

_PREFIX: Final = struct.Struct("<IQ")


@dataclass(frozen=True)
class EngineOptions:
    """`device` as in `EvaluationKeys.expand`: `cuda:0,1` is one device of several GPUs."""

    device: str = "cpu"
    threads: int = 1  # CPU threads of all runs together
    memory_key_bytes: int = 1 << 30  # keys as they travel, kept in memory
    device_key_bytes: int = 4 << 30  # expanded keys on the device
    log_level: str = "info"
    cpu_key_bytes: int | None = None  # expanded keys of all engines on CPUs; None: `device_key_bytes` is each one's
    program_bytes: int = 1 << 30  # programs that were read
    data_bytes: int = 0  # that the kernel gives an engine on a CPU, at most; 0: no limit but the machine's

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> EngineOptions:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class ModelPlace:
    """A model's file and its SHA-256."""

    kind: str
    digest: str
    path: Path


@dataclass(frozen=True)
class KeyPlace:
    """A key's name and its file."""

    name: str
    path: Path


@dataclass(frozen=True)
class Message:
    """A message, as its fields and a body of bytes."""

    def facts(self) -> dict[str, Any]:
        """Returns the fields that JSON holds."""
        return {name: value for name, value in vars(self).items() if name != "body"}

    @classmethod
    def of(cls, facts: Mapping[str, Any], body: bytes) -> Self:
        """Returns the message with these fields."""
        return cls(**facts, **({"body": body} if body else {}))

    def to_bytes(self) -> bytes:
        text = json.dumps({"type": type(self).__name__, **self.facts()}, separators=(",", ":")).encode()
        body: bytes = getattr(self, "body", b"")
        return _PREFIX.pack(len(text), len(body)) + text + body

    @staticmethod
    def from_bytes(text: bytes, body: bytes) -> Message:
        """Reads what stands behind the lengths."""
        facts = json.loads(text)
        return _NAMED[facts.pop("type")].of(facts, body)


# --- to the engine ---


@dataclass(frozen=True)
class AuditKeySecret(Message):
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class RequestPart:
    """A request of a run. Its ciphertexts come with the message or lie in the file `input`; its answer goes the same way."""

    id: str
    samples: int
    body: bytes = field(default=b"", repr=False)
    input: str | None = None
    output: str | None = None
    progress: bool = False  # wanted


@dataclass(frozen=True)
class StartRun(Message):
    """Requests of one key to one model, computed as one and answered each by itself. `beside`: a long run, on a thread of its own."""

    beside: bool
    model: ModelPlace
    key: KeyPlace
    parts: tuple[RequestPart, ...]

    @property
    def body(self) -> bytes:
        """Joins the bodies of the parts."""
        return b"".join(part.body for part in self.parts)

    def facts(self) -> dict[str, Any]:
        return {
            "beside": self.beside,
            "model": {**vars(self.model), "path": str(self.model.path)},
            "key": {**vars(self.key), "path": str(self.key.path)},
            "parts": [{**vars(part), "body": len(part.body)} for part in self.parts],
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any], body: bytes) -> Self:
        parts: list[RequestPart] = []
        first = 0
        for each in facts["parts"]:
            parts.append(RequestPart(**{**each, "body": body[first : first + each["body"]]}))
            first += each["body"]
        model, key = ({**facts[name], "path": Path(facts[name]["path"])} for name in ("model", "key"))
        return cls(facts["beside"], ModelPlace(**model), KeyPlace(**key), tuple(parts))


@dataclass(frozen=True)
class Cancel(Message):
    id: str


@dataclass(frozen=True)
class ForgetKey(Message):
    key: str


@dataclass(frozen=True)
class Ping(Message):
    id: str


# --- from the engine ---


@dataclass(frozen=True)
class Hello(Message):
    pid: int
    device: str
    workers: int
    spread: int
    build: dict[str, str]


@dataclass(frozen=True)
class Pong(Message):
    """Keys and tables that are resident, and the parts that run: `runs` since how many seconds, `quiet` for how many without a report."""

    id: str
    device: str
    memory_bytes: int
    device_bytes: int
    hits: int
    misses: int
    keys: list[str]
    runs: dict[str, float]
    quiet: dict[str, float]


@dataclass(frozen=True)
class Started(Message):
    id: str


@dataclass(frozen=True)
class Progressed(Message):
    id: str
    done: int
    total: int


@dataclass(frozen=True)
class Done(Message):
    """An answer, in `body` or in the part's file. Requests of earlier releases' workers have no times but `seconds`, and are alone in their runs."""

    id: str
    seconds: float  # of computing alone; its share of a run
    device: str
    answer_bytes: int
    sha256: str | None = None  # of an answer in a file
    busy_seconds: float | None = None  # with reading, its share of a run
    took_seconds: float | None = None  # of its whole run
    together: int = 1  # requests of the run
    worker: str = ""  # of a fleet; none: an engine of this process
    body: bytes = field(default=b"", repr=False)

    def beyond(self, estimate: float) -> float:
        """Returns the seconds that it took beyond an estimate."""
        return 0.0 if self.busy_seconds is None else self.busy_seconds - estimate


@dataclass(frozen=True)
class Failed(Message):
    id: str
    code: str
    http_status: int
    message: str
    key_damaged: bool = False
    model_damaged: bool = False
    worker: str = ""

    def beyond(self, estimate: float) -> float:
        """Returns 0: what failed is charged as estimated."""
        return 0.0


@dataclass(frozen=True)
class Lost(Message):
    """Says that an engine died with the part, which is run again; no engine sends it."""

    id: str


End: TypeAlias = Done | Failed
Event: TypeAlias = Started | Progressed | Done | Failed | Lost

_NAMED: Final[dict[str, type[Message]]] = {
    kind.__name__: kind
    for kind in (AuditKeySecret, StartRun, Cancel, ForgetKey, Ping, Hello, Pong, Started, Progressed, Done, Failed)
}


async def receive(reader: asyncio.StreamReader) -> Message:
    """Receives a message.

    Raises:
        asyncio.IncompleteReadError: the other side is gone.
    """
    text_bytes, body_bytes = _PREFIX.unpack(await reader.readexactly(_PREFIX.size))
    text = await reader.readexactly(text_bytes)
    return Message.from_bytes(text, await reader.readexactly(body_bytes) if body_bytes else b"")


def receive_blocking(stream: BinaryIO) -> Message | None:
    """Returns None when the other side is gone."""
    prefix = stream.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size:
        return None
    text_bytes, body_bytes = _PREFIX.unpack(prefix)
    text, body = stream.read(text_bytes), stream.read(body_bytes)
    if len(text) + len(body) < text_bytes + body_bytes:
        return None
    return Message.from_bytes(text, body)
