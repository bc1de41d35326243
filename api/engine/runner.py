"""Runs requests, each kind of model by its scorer: bytes of ciphertexts in, bytes of ciphertexts out."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from cloakwork.api.engine.devices import run_spread, worker_count
from cloakwork.api.engine.messages import EngineOptions, KeyPlace, ModelPlace
from cloakwork.api.engine.residency import LeastRecentlyUsed, Residency, one_device
from cloakwork.api.errors import DamagedModelError, UnavailableError
from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.ciphertexts import SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.neighbours.inner_products import InnerProductTable
from cloakwork.fhe_core.levelled.several import joined_bytes, split_bytes
from cloakwork.fhe_core.session.evaluation_keys import device_ordinals
from cloakwork.models.audit.audit_key import AuditKey, Transcript
from cloakwork.models.batches.batch_file import batch_from_bytes, embedded_program
from cloakwork.models.batches.batch_format import MAGIC, BatchContents
from cloakwork.models.batches.scorer import BatchScorer, prepared_tables
from cloakwork.models.errors import CompileError
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_file import load_index
from cloakwork.models.neighbours.scorer import PreparedTable
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import program_from_bytes

Progress: TypeAlias = Callable[[int, int], bool]
Query = TypeVar("Query")
_PARALLEL_BOOTSTRAPS: Final = 4  # per thread; with fewer, more threads cost more than they bring
LevelledQuery = list[SeededLevelledCiphertexts]


@dataclass(frozen=True)
class RunRequest:
    """A model and a key, by name and file, and one object of ciphertexts."""

    model: ModelPlace
    key: KeyPlace
    samples: int
    body: bytes


@dataclass(frozen=True)
class Outcome:
    body: bytes
    seconds: float  # of computing alone, without loading keys; its share, where requests were computed as one
    device: str


class Scorer(Protocol, Generic[Query]):
    """Runs requests to models of one kind."""

    def read(self, request: RunRequest) -> Query:
        """Reads the ciphertexts, before the key is expanded, so that bad bytes cost little."""

    def is_large(self, model: ModelPlace, samples: int, threads: int) -> bool:
        """Whether this many threads bring more than they cost."""

    def answer(
        self,
        requests: Sequence[RunRequest],
        queries: Sequence[Query],
        threads: int,
        progress: Progress | None,
    ) -> list[Outcome]:
        """Answers requests of one key to one model in one evaluation: to each the bytes that it would have alone."""


def shares(requests: Sequence[RunRequest], seconds: float) -> list[float]:
    """Divides the seconds of a run by samples."""
    every = sum(request.samples for request in requests)
    return [seconds * request.samples / every for request in requests]


class ProgramScorer:
    def __init__(self, residency: Residency, program_bytes: int) -> None:
        self._residency = residency
        self._programs: LeastRecentlyUsed[Program] = LeastRecentlyUsed(program_bytes, residency.forget_program)
        self.audit_key: AuditKey | None = None  # the web process says it before anything is run

    def read(self, request: RunRequest) -> SeededPackedCiphertexts:
        program = self._program(request.model)
        return SeededPackedCiphertexts.from_bytes(request.body, parameters=program.parameters)

    def is_large(self, model: ModelPlace, samples: int, threads: int) -> bool:
        return self._program(model).bootstraps * samples >= _PARALLEL_BOOTSTRAPS * threads

    def answer(
        self,
        requests: Sequence[RunRequest],
        queries: Sequence[SeededPackedCiphertexts],
        threads: int,
        progress: Progress | None,
    ) -> list[Outcome]:
        model = requests[0].model
        program = self._program(model)
        key = self._residency.expanded(requests[0].key)
        seeds = [self._seed(program, key.sha256, request) for request in requests]
        with key.runtime(model.digest, program, threads) as runtime:
            start = time.perf_counter()
            answers = runtime.answer_parts(queries, progress, seeds=seeds)
            seconds = shares(requests, time.perf_counter() - start)
        return [
            Outcome(answer.to_bytes(), share, self._residency.device)
            for answer, share in zip(answers, seconds, strict=True)
        ]

    def _seed(self, program: Program, keys_sha256: bytes, request: RunRequest) -> Callable[[Ciphertexts], bytes]:
        """From the request's own bytes: its answer is the same whatever was computed beside it."""
        assert self.audit_key is not None
        transcript = Transcript(program.digest, keys_sha256, hashlib.sha256(request.body).digest())
        return partial(self.audit_key.seed, transcript)

    def _program(self, place: ModelPlace) -> Program:
        return self._programs.get(place.digest, lambda: _load(place), lambda program: 9 * place.path.stat().st_size)


def _load(place: ModelPlace) -> Program:
    """Raises:
    DamagedModelError: the file is gone, or has other bytes than when it was described.
    UnavailableError: it does not fit memory.
    """
    try:
        data = place.path.read_bytes()
    except FileNotFoundError:
        data = b""
    if hashlib.sha256(data).hexdigest() != place.digest:
        raise DamagedModelError("the model's file is damaged; its operator has to repair or remove it", retry_after=30)
    try:
        return program_from_bytes(embedded_program(data) if data.startswith(MAGIC) else data)
    except MemoryError:
        raise UnavailableError(
            f"the engine has not enough memory to read this model of {len(data) >> 20} MiB; its operator has to give the service more",
            retry_after=60,
        ) from None


class IndexScorer:
    """A table is prepared once for each device, for the keys of all clients; the index itself is not kept."""

    def __init__(self, residency: Residency) -> None:
        self._residency = residency

    def read(self, request: RunRequest) -> SeededLevelledCiphertexts:
        return SeededLevelledCiphertexts.from_bytes(request.body)

    def is_large(self, model: ModelPlace, samples: int, threads: int) -> bool:
        return True

    def answer(
        self,
        requests: Sequence[RunRequest],
        queries: Sequence[SeededLevelledCiphertexts],
        threads: int,
        progress: Progress | None,
    ) -> list[Outcome]:
        model, key = requests[0].model, requests[0].key

        def prepare() -> PreparedTable:
            return _index(model).prepared(threads, one_device(self._residency.device), progress)

        table, (keys,) = self._residency.table_and_keys(model.digest, prepare, key, threads)
        start = time.perf_counter()
        answers = table.score_all(keys, queries, threads, progress)
        seconds = shares(requests, time.perf_counter() - start)
        return [
            Outcome(answer.to_bytes(), share, self._residency.device)
            for answer, share in zip(answers, seconds, strict=True)
        ]


def _index(place: ModelPlace) -> NeighbourIndex:
    """Raises:
    DamagedModelError: the file is gone, or has other bytes than when it was described.
    """
    try:
        with place.path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() == place.digest:
                return load_index(place.path)
    except (CompileError, FileNotFoundError):
        pass
    raise DamagedModelError("the stored index is damaged; its operator has to repair or remove it", retry_after=30)


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """A model where it scores, for the keys of all clients."""

    contents: BatchContents
    tables: list[InnerProductTable]

    @property
    def nbytes(self) -> int:
        formula = self.contents.formula
        arrays = (formula.inner, formula.constant, formula.outer)
        return sum(each.nbytes for each in (*arrays, *self.tables) if each is not None)


class BatchRequestScorer:
    """Scores levelled queries; a model whose packing is a program of look-ups is left to `programs`."""

    def __init__(self, residency: Residency, programs: ProgramScorer) -> None:
        self._residency, self._programs = residency, programs

    def read(self, request: RunRequest) -> Any:
        if not request.body.startswith(wire.MAGIC):
            return self._programs.read(request)
        parts = split_bytes(request.body, wire.Kind.SEEDED_CIPHERTEXTS)
        return [SeededLevelledCiphertexts.from_bytes(each) for each in parts]

    def is_large(self, model: ModelPlace, samples: int, threads: int) -> bool:
        return True

    def answer(
        self, requests: Sequence[RunRequest], queries: Sequence[Any], threads: int, progress: Progress | None
    ) -> list[Outcome]:
        if not isinstance(queries[0], list):
            return self._programs.answer(requests, queries, threads, progress)
        model, device = requests[0].model, one_device(self._residency.device)

        def prepare() -> PreparedBatch:
            contents = _contents(model)
            return PreparedBatch(contents, prepared_tables(contents.client, contents.formula, threads, device))

        prepared, keys = self._residency.table_and_keys(model.digest, prepare, requests[0].key, threads)
        client, formula = prepared.contents.client, prepared.contents.formula
        used = keys if client.key_shapes.shapes[0].numbers else ()
        scorer = BatchScorer(client, formula, used, threads, device, prepared.tables)
        return [self._scored(scorer, query, progress) for query in queries]

    def _scored(self, scorer: BatchScorer, query: LevelledQuery, progress: Progress | None) -> Outcome:
        start = time.perf_counter()
        answers = scorer.score(query, progress)
        body = joined_bytes([each.to_bytes() for each in answers])
        return Outcome(body, time.perf_counter() - start, self._residency.device)


def _contents(place: ModelPlace) -> BatchContents:
    """Raises:
    DamagedModelError: the file is gone, or has other bytes than when it was described.
    """
    try:
        data = place.path.read_bytes()
        if hashlib.sha256(data).hexdigest() == place.digest:
            return batch_from_bytes(data)
    except (FheError, FileNotFoundError):
        pass
    raise DamagedModelError("the stored model is damaged; its operator has to repair or remove it", retry_after=30)


class Runner:
    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        device_ordinals(options.device)  # DeviceError for a name that is none
        self.workers = worker_count(options.device, options.threads)
        self.spread = run_spread(options.device, options.threads)
        self.residency = Residency(options.device, options.memory_key_bytes, options.device_key_bytes)
        self._programs = ProgramScorer(self.residency, options.program_bytes)
        self._scorers: dict[str, Scorer[Any]] = {
            "program": self._programs,
            "index": IndexScorer(self.residency),
            "batch": BatchRequestScorer(self.residency, self._programs),
        }
        self._active = 0
        self._lock = threading.Lock()

    def take_audit_key(self, key: AuditKey) -> None:
        self._programs.audit_key = key

    def read(self, request: RunRequest) -> Any:
        """Reads the ciphertexts of a request, for `run`."""
        return self._scorers[request.model.kind].read(request)

    def run(self, requests: Sequence[RunRequest], queries: Sequence[Any], progress: Progress | None) -> list[Outcome]:
        """Runs requests of one key to one model, as one. An error is that of them all."""
        model = requests[0].model
        scorer, samples = self._scorers[model.kind], sum(request.samples for request in requests)
        with self._begun() as alone:
            threads = self._threads(alone and scorer.is_large(model, samples, self._options.threads))
            return scorer.answer(requests, queries, threads, progress)

    @contextmanager
    def _begun(self) -> Iterator[bool]:
        """Whether nothing else runs."""
        with self._lock:
            alone = self._active == 0
            self._active += 1
        try:
            yield alone
        finally:
            with self._lock:
                self._active -= 1

    def _threads(self, every: bool) -> int:
        """Returns all threads for a large run on an idle machine, this run's share otherwise."""
        return self._options.threads if every else max(1, self._options.threads // self.workers)
