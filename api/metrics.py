"""Prometheus metrics, under the names of the surface's specification, and the last minutes' activity in memory of bounded size."""

from __future__ import annotations

import collections
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from cloakwork.api.engine.messages import Pong

STEP_SECONDS: Final = 5
STEPS: Final = 60

_REFUSED, _FAILED = 400, 500
_HTTP_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


@dataclass
class _Step:
    number: int  # of steps since the clock's beginning
    requests: int = 0
    refused: int = 0
    failed: int = 0
    codes: collections.Counter[str] = field(default_factory=collections.Counter)


@dataclass(frozen=True)
class Recent:
    """Counts of whole steps, the oldest first: requests, of which refused (4xx) and failed (5xx); and how often each error came in all of them."""

    requests: list[int]
    refused: list[int]
    failed: list[int]
    codes: dict[str, int]


@dataclass
class Runs:
    """Runs of one version of a model that succeeded."""

    count: int = 0
    samples: int = 0
    seconds: float = 0.0  # of computing


class Activity:
    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=STEPS + 1)
        self._runs: dict[tuple[str, str], Runs] = {}  # no more than there are versions of models

    def answered(self, status: int, code: str | None) -> None:
        """Counts one request; `code` of its error, of which there are as many as classes."""
        step = self._step()
        step.requests += 1
        if status >= _FAILED:
            step.failed += 1
        elif status >= _REFUSED:
            step.refused += 1
        if code is not None:
            step.codes[code] += 1

    def ran(self, model: str, version: str, samples: int, seconds: float) -> None:
        runs = self._runs.setdefault((model, version), Runs())
        runs.count += 1
        runs.samples += samples
        runs.seconds += seconds

    def runs(self, model: str, version: str) -> Runs:
        return self._runs.get((model, version), Runs())

    def recent(self) -> Recent:
        """Returns recent counts without the step that is not over."""
        now = _number()
        known = {step.number: step for step in self._steps}
        steps = [known.get(number, _Step(number)) for number in range(now - STEPS, now)]
        codes: collections.Counter[str] = collections.Counter()
        for step in steps:
            codes.update(step.codes)
        return Recent(
            [step.requests for step in steps],
            [step.refused for step in steps],
            [step.failed for step in steps],
            dict(codes),
        )

    def _step(self) -> _Step:
        if not self._steps or self._steps[-1].number != _number():
            self._steps.append(_Step(_number()))
        return self._steps[-1]


def _number() -> int:
    return int(time.monotonic() // STEP_SECONDS)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "fhe_requests", "Requests by model and status.", ["model", "code"], registry=self._registry
        )
        self.by_route = Counter(
            "fhe_http_requests", "Requests by route and status.", ["method", "route", "status"], registry=self._registry
        )
        self.duration = Histogram(
            "fhe_http_request_seconds",
            "From a request's header to the last byte of its answer.",
            ["method", "route"],
            buckets=_HTTP_SECONDS,
            registry=self._registry,
        )
        self.queue = Histogram(
            "fhe_queue_seconds", "Waiting for the engine.", buckets=_SECONDS, registry=self._registry
        )
        self.run = Histogram("fhe_run_seconds", "Computing.", buckets=_SECONDS, registry=self._registry)
        self.bootstraps = Counter("fhe_bootstraps", "Bootstraps done.", ["set", "device"], registry=self._registry)
        self.answers = Counter("fhe_answers", "Answers (samples) given, of all models.", registry=self._registry)
        self.resident = Gauge("fhe_keys_resident_bytes", "Evaluation keys by tier.", ["tier"], registry=self._registry)
        self.hits = Counter("fhe_key_cache_hits", "Runs whose key was on the device.", registry=self._registry)
        self.misses = Counter("fhe_key_cache_misses", "Runs whose key was not.", registry=self._registry)
        self.uploaded = Counter("fhe_upload_bytes", "Bytes of evaluation keys taken.", registry=self._registry)
        self.joined = Counter(
            "fhe_joined_requests", "Requests computed in one run with others of their key.", registry=self._registry
        )
        self.rejected = Counter("fhe_rejected", "Requests refused, by reason.", ["reason"], registry=self._registry)
        self.jobs = Gauge("fhe_jobs", "Jobs by state.", ["state"], registry=self._registry)
        self.database_up = Gauge(
            "fhe_database_up",
            "1: the database answers; 0: it does not, and fhe_jobs is left out.",
            registry=self._registry,
        )
        self.restarts = Gauge("fhe_engine_restarts", "Engine processes started again.", registry=self._registry)
        self.memory_kills = Gauge(
            "fhe_engine_memory_kills",
            "Engine processes that the kernel killed for want of memory.",
            registry=self._registry,
        )
        self.hangs = Gauge("fhe_engine_hangs", "Engine processes killed because they hung.", registry=self._registry)
        self.silent = Gauge("fhe_engines_silent", "Engines that do not answer now.", registry=self._registry)
        self.waiting = Gauge(
            "fhe_requests_waiting", "Requests that wait for the engine, jobs left out.", registry=self._registry
        )
        self.disk_free = Gauge("fhe_disk_free_bytes", "Where the data folder is.", registry=self._registry)
        self.disk_total = Gauge("fhe_disk_total_bytes", "Of that file system.", registry=self._registry)
        self.unknown_objects = Gauge(
            "fhe_unknown_objects", "Objects of the storage that have no row in the database.", registry=self._registry
        )
        self.unavailable_models = Gauge(
            "fhe_models_unavailable", "Versions that should be in service and cannot be.", registry=self._registry
        )
        self.damaged_objects = Counter(
            "fhe_damaged_objects", "Objects that were read and are lost or damaged.", ["kind"], registry=self._registry
        )
        self.build = Gauge(
            "fhe_build_info",
            "1; what runs here, as labels. Those of the engine are empty where there is none.",
            ["version", "role", "instruction_set", "cuda"],
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)  # process_.. of the web process: its start, memory, open files
        self.activity = Activity()
        self._seen: defaultdict[tuple[str, str], int] = defaultdict(int)  # by engine and name
        self.requests_answered = 0

    def ran(self, set_name: str, device: str, bootstraps: int, queue_seconds: float, run_seconds: float) -> None:
        self.bootstraps.labels(set_name, device).inc(bootstraps)
        self.queue.observe(queue_seconds)
        self.run.observe(run_seconds)

    def key_cache(self, engines: Mapping[str, Pong]) -> None:
        """Updates the engines' own counts, each of which begins again when its engine does."""
        self.resident.labels("memory").set(sum(facts.memory_bytes for facts in engines.values()))
        self.resident.labels("device").set(sum(facts.device_bytes for facts in engines.values()))
        for engine, facts in engines.items():
            for name, count, counter in (("hits", facts.hits, self.hits), ("misses", facts.misses, self.misses)):
                seen = self._seen[engine, name]
                counter.inc(count - seen if count >= seen else count)
                self._seen[engine, name] = count

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts an answer. Args: of bounded number: methods that HTTP has, templates of routes."""
        self.requests_answered += 1
        self.by_route.labels(method, route, str(status)).inc()
        self.duration.labels(method, route).observe(seconds)

    def runs_as(self, version: str, role: str, engine: Mapping[str, str]) -> None:
        self.build.clear()
        self.build.labels(version, role, engine.get("instruction_set", ""), engine.get("cuda", "")).set(1)

    def text(self, sees: Callable[[str], bool]) -> bytes:
        """Renders the metrics without the samples of models that whoever asks does not see."""
        return generate_latest(_Visible(self._registry, sees))


class _Visible(Collector):
    def __init__(self, registry: CollectorRegistry, sees: Callable[[str], bool]) -> None:
        self._registry, self._sees = registry, sees

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [each for each in metric.samples if self._sees(each.labels.get("model", ""))]
            yield metric
