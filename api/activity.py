"""Activity of the service: requests of the last minutes and runs since the start, in memory of bounded size."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

STEP_SECONDS: Final = 5
STEPS: Final = 60

_REFUSED, _FAILED = 400, 500


@dataclass
class _Step:
    number: int  # of steps since the clock's beginning
    requests: int = 0
    refused: int = 0
    failed: int = 0
    codes: Counter[str] = field(default_factory=Counter)


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
        codes: Counter[str] = Counter()
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
