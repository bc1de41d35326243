"""The protocol of machines, and the loop that walks a schedule."""

from __future__ import annotations

import threading
from typing import Protocol, TypeVar

from cloakwork.fhe_core.words import Progress
from cloakwork.models.graph.schedule import Drop, Extract, Gather, LookUp, Multiply, Operate, Schedule

# Progress of a long run: bootstraps done, of how many.


class BootstrapCount:
    """One progress(done, total) of the bootstraps of a run, on one device or several at once."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total = progress, total
        self._behind: dict[int, int] = {}  # of the batches that each device has behind it
        self._done: dict[int, int] = {}  # with the present one
        self._lock = threading.Lock()

    def of(self, device: int, batch: int) -> Progress:
        """Returns a callback for the next batch of a device, of which the engine counts in units of its own."""
        if self._progress is None:
            return None
        before = self._behind.get(device, 0)
        self._behind[device] = before + batch

        def report(part: int, whole: int) -> bool:
            assert self._progress is not None
            with self._lock:
                self._done[device] = before + part * batch // whole
                return self._progress(sum(self._done.values()), self._total) is not False

        return report


Result_co = TypeVar("Result_co", covariant=True)
Result = TypeVar("Result")


class Machine(Protocol[Result_co]):
    """Carries out the instructions of a program on one batch of samples, once; holds their values in between.

    It is told nothing that it may not rely on: a value is written once, before it is read, and no more read after it was dropped.
    """

    def extract(self, step: Extract) -> None: ...

    def multiply(self, step: Multiply) -> None: ...

    def look_up(self, step: LookUp) -> None: ...

    def drop(self, step: Drop) -> None: ...

    def output(self, reads: Gather) -> Result_co:
        """Makes the output, in a form of the machine's own."""
        ...


class GraphMachine(Machine[Result_co], Protocol):
    """Carries out those of any graph."""

    def operate(self, step: Operate) -> None: ...


def execute(schedule: Schedule, machine: Machine[Result]) -> Result:
    """Returns the output of a program."""
    for step in schedule.steps:
        assert not isinstance(step, Operate), "programs have no products left"
        _perform(step, machine)
    return machine.output(schedule.output)


def execute_graph(schedule: Schedule, machine: GraphMachine[Result]) -> Result:
    """Returns the same of any graph."""
    for step in schedule.steps:
        if isinstance(step, Operate):
            machine.operate(step)
        else:
            _perform(step, machine)
    return machine.output(schedule.output)


def _perform(step: Extract | Multiply | LookUp | Drop, machine: Machine[Result]) -> None:
    match step:
        case Extract():
            machine.extract(step)
        case Multiply():
            machine.multiply(step)
        case LookUp():
            machine.look_up(step)
        case Drop():
            machine.drop(step)
