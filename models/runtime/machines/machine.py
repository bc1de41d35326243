"""The protocol of machines, and the loop that walks a schedule."""

from __future__ import annotations

from typing import Protocol, TypeVar

from cloakwork.models.graph.schedule import Drop, Extract, Gather, LookUp, Multiply, Operate, Schedule

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
