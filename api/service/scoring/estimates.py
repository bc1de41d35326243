"""Estimates of a run's duration, from earlier runs."""

from __future__ import annotations

from typing import Final

from cloakwork.api.service.models.model import Model

_WEIGHT: Final = 0.2  # of the newest run
_LEAST_SECONDS: Final = 0.001


class Estimates:
    """Seconds for each unit of work (`Model.work`) of a parameter set on this machine, key loading left out."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._on_devices: dict[tuple[str, str], float] = {}  # by set and device of this machine

    def seconds(self, model: Model, samples: int) -> float:
        measured = self.measured(model)
        return max(_LEAST_SECONDS, samples * (model.foreseen_seconds if measured is None else measured))

    def measured(self, model: Model) -> float | None:
        """Returns the measured seconds of one sample, when a model of the same set has run."""
        each = self._seconds.get(model.parameter_set)
        return None if each is None else each * model.work

    def on(self, model: Model, device: str) -> float | None:
        """Returns `measured` on one of this machine's devices."""
        each = self._on_devices.get((model.parameter_set, device))
        return None if each is None else each * model.work

    def learn(self, model: Model, samples: int, seconds: float, together: int = 1, device: str | None = None) -> None:
        """Learns from `seconds`, its share of a run of several requests, which all together have the weight of one run."""
        if model.work:
            each, name = seconds / (model.work * samples), model.parameter_set
            kept = (1 - _WEIGHT) ** (1 / together)
            self._seconds[name] = each + kept * (self._seconds.get(name, each) - each)
            if device is not None:
                before = self._on_devices.get((name, device), each)
                self._on_devices[name, device] = each + kept * (before - each)
