"""Residency of evaluation keys: on disk always, in memory and expanded on the device while there is room, and beside them tables of indices.

Least recently used go first.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar, cast

from cloakwork.api.engine.messages import KeyPlace
from cloakwork.api.errors import DamagedKeyError
from cloakwork.fhe_core.errors import DeviceError, FheError
from cloakwork.fhe_core.levelled.ciphertexts import ExpandedLevelledKeys, LevelledEvaluationKeys
from cloakwork.fhe_core.levelled.several import split_bytes
from cloakwork.fhe_core.levelled.wire import Kind
from cloakwork.fhe_core.parameters import (
    ParameterSet,
    expanded_bootstrap_key_bytes,
    expanded_keyswitch_key_bytes,
)
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys, ExpandedKey
from cloakwork.models.program import Program
from cloakwork.models.runtime import Runtime

_KINDS_KEPT: Final = 16
_TABLE: Final = "table "  # before the digest, so that no key has such a name
T = TypeVar("T")


class ResidentKey:
    """A session computes one thing at a time, so that runs which overlap get runtimes of their own; idle ones are kept."""

    def __init__(self, key: ExpandedKey, sha256: bytes) -> None:
        self._key = key
        self.sha256 = sha256  # of the object that it was expanded from
        self._idle: OrderedDict[tuple[str, int], list[Runtime]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return int(self._key.nbytes)

    @contextmanager
    def runtime(self, digest: str, program: Program, threads: int) -> Iterator[Runtime]:
        kind = (digest, threads)
        with self._lock:
            idle = self._idle.get(kind)
            runtime = idle.pop() if idle else None
        if runtime is None or runtime.program is not program:  # of a program that was dropped, and read again
            runtime = Runtime(program, Session(self._key, threads=threads))
        try:
            yield runtime
        finally:
            with self._lock:
                self._idle.setdefault(kind, []).append(runtime)
                self._idle.move_to_end(kind)
                while len(self._idle) > _KINDS_KEPT:
                    self._idle.popitem(last=False)

    def forget_program(self, digest: str) -> None:
        """Drops runtimes of a program, which would keep it in memory while idle."""
        with self._lock:
            for kind in [kind for kind in self._idle if kind[0] == digest]:
                del self._idle[kind]


class _Entry(Generic[T]):
    def __init__(self) -> None:
        self.lock = threading.Lock()  # held while the value is made, so that two runs make it once
        self.value: T | None = None
        self.nbytes = 0


class LeastRecentlyUsed(Generic[T]):
    """Values made on demand; the least recently used are dropped while all together exceed `limit` bytes.

    The value just asked for stays, whatever its size, and so does what the same run needs beside it: the limit bounds what is kept for later.
    Dropping forgets the cache's reference; a run that still uses the value keeps it until it ends.
    """

    def __init__(self, limit: int, dropped: Callable[[str], None] = lambda _: None) -> None:
        """`dropped`: what made room, by name."""
        self._limit, self._dropped = limit, dropped
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    def get(self, name: str, make: Callable[[], T], size: Callable[[T], int], beside: str | None = None) -> T:
        with self._lock:
            entry = self._entries.setdefault(name, _Entry())
            self._entries.move_to_end(name)
        with entry.lock:
            if entry.value is not None:
                self.hits += 1
                return entry.value
            self.misses += 1
            try:
                value = make()
            except BaseException:
                self.drop(name)
                raise
            entry.value, entry.nbytes = value, size(value)
        self._evict((name, beside))
        return value

    def reserve(self, name: str, nbytes: int, beside: str | None = None) -> None:
        """Makes room room for a value that is being made, before it takes it."""
        with self._lock:
            if name in self._entries:
                self._entries[name].nbytes = nbytes
        self._evict((name, beside))

    def drop_others(self, name: str) -> None:
        """Drops all that is kept for later."""
        with self._lock:
            others = [each for each, entry in self._entries.items() if each != name and entry.value is not None]
            for each in others:
                del self._entries[each]
        for each in others:
            self._dropped(each)

    def __contains__(self, name: str) -> bool:
        with self._lock:
            entry = self._entries.get(name)
            return entry is not None and entry.value is not None

    def drop(self, name: str) -> None:
        with self._lock:
            self._entries.pop(name, None)

    def names(self) -> set[str]:
        with self._lock:
            return set(self._entries)

    def nbytes(self) -> int:
        with self._lock:
            return sum(entry.nbytes for entry in self._entries.values())

    def values(self) -> list[T]:
        with self._lock:
            return [entry.value for entry in self._entries.values() if entry.value is not None]

    def _evict(self, keep: tuple[str | None, ...]) -> None:
        dropped: list[str] = []
        with self._lock:
            total = sum(entry.nbytes for entry in self._entries.values())
            for name in [name for name, entry in self._entries.items() if name not in keep and entry.value is not None]:
                if total <= self._limit:
                    break
                total -= self._entries.pop(name).nbytes
                dropped.append(name)
        for name in dropped:
            self._dropped(name)


@dataclass(frozen=True)
class LoadedLevelledKeys:
    """Levelled evaluation keys for each plaintext modulus."""

    parts: tuple[LevelledEvaluationKeys, ...]

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.parts)


@dataclass(frozen=True)
class ResidentLevelledKeys:
    """The same on the device."""

    parts: tuple[ExpandedLevelledKeys, ...]

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.parts)


@dataclass(frozen=True)
class LoadedKey:
    """Evaluation keys and the SHA-256 of their object."""

    keys: EvaluationKeys | LoadedLevelledKeys
    sha256: bytes


class Resident(Protocol):
    """Objects that are kept on the device."""

    @property
    def nbytes(self) -> int: ...


Table = TypeVar("Table", bound=Resident)


class Residency:
    """Evaluation keys in memory and, expanded, on the device, with the prepared tables of indices and batches under one limit there."""

    def __init__(self, device: str, memory_bytes: int, device_bytes: int) -> None:
        self.device = device
        self._memory: LeastRecentlyUsed[LoadedKey] = LeastRecentlyUsed(memory_bytes)
        self._expanded: LeastRecentlyUsed[Resident] = LeastRecentlyUsed(device_bytes)

    def expanded(self, place: KeyPlace) -> ResidentKey:
        """Returns the key on the device; reads and expands it when it is not there."""

        def expand() -> ResidentKey:
            loaded = self._loaded(place, EvaluationKeys.load)
            assert isinstance(loaded.keys, EvaluationKeys)
            self._expanded.reserve(place.name, _expanded_bytes(loaded.keys.parameters))
            return ResidentKey(self._expand(place.name, loaded.keys), loaded.sha256)

        resident_key = self._expanded.get(place.name, expand, _nbytes)
        assert isinstance(resident_key, ResidentKey)
        return resident_key

    def _expand(self, name: str, keys: EvaluationKeys) -> ExpandedKey:
        """With all room there is, when what is kept for later leaves too little of it."""
        try:
            return keys.expand(self.device)
        except (DeviceError, MemoryError):
            self._expanded.drop_others(name)
            self._memory.drop_others(name)
        return keys.expand(self.device)

    def table_and_keys(
        self, digest: str, prepare: Callable[[], Table], place: KeyPlace, threads: int
    ) -> tuple[Table, tuple[ExpandedLevelledKeys, ...]]:
        """Returns what is prepared of the model with this digest, and levelled keys for each plaintext modulus, on the device.

        Neither makes room for the other.
        """
        cache, table_name = self._expanded, _TABLE + digest

        def load(path: Path) -> LoadedLevelledKeys:
            parts = split_bytes(path.read_bytes(), Kind.EVALUATION_KEYS)
            return LoadedLevelledKeys(tuple(map(LevelledEvaluationKeys.from_bytes, parts)))

        def expand() -> ResidentLevelledKeys:
            keys = self._loaded(place, load).keys
            assert isinstance(keys, LoadedLevelledKeys)
            device = one_device(self.device)
            return ResidentLevelledKeys(tuple(ExpandedLevelledKeys.of(each, device, threads) for each in keys.parts))

        table = cache.get(table_name, prepare, _nbytes, beside=place.name)
        keys = cache.get(place.name, expand, _nbytes, beside=table_name)
        assert isinstance(keys, ResidentLevelledKeys)
        return cast(Table, table), keys.parts

    def _loaded(self, place: KeyPlace, read: Callable[[Path], EvaluationKeys | LoadedLevelledKeys]) -> LoadedKey:
        def load() -> LoadedKey:
            with place.path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").digest()
            try:
                return LoadedKey(read(place.path), digest)
            except FheError as error:  # it was checked when it came
                raise DamagedKeyError(f"the stored evaluation keys '{place.name}' are damaged: {error}") from None

        return self._memory.get(place.name, load, lambda loaded: loaded.keys.nbytes)

    def forget(self, name: str) -> None:
        self._memory.drop(name)
        self._expanded.drop(name)

    def forget_program(self, digest: str) -> None:
        """Drops what keys on the device keep of it: it is not in memory any more, or not needed there."""
        for value in self._expanded.values():
            if isinstance(value, ResidentKey):
                value.forget_program(digest)

    def names(self) -> list[str]:
        """Lists the keys that are in memory or on the device."""
        every = self._memory.names() | self._expanded.names()
        return sorted(name for name in every if not name.startswith(_TABLE))

    def facts(self) -> dict[str, int]:
        """Returns bytes in each tier, and how often a run found its key (or table) on the device."""
        return {
            "memory_bytes": self._memory.nbytes(),
            "device_bytes": self._expanded.nbytes(),
            "hits": self._expanded.hits,
            "misses": self._expanded.misses,
        }


def one_device(device: str) -> str:
    """Names the device of levelled arithmetic: the first of several GPUs that count as one device."""
    return device.split(",")[0]


def _nbytes(resident: Resident) -> int:
    return resident.nbytes


def _expanded_bytes(parameters: ParameterSet) -> int:
    """About: a back end has its own layout."""
    return expanded_bootstrap_key_bytes(parameters) + expanded_keyswitch_key_bytes(parameters)
