"""How long a run will take, from those that were seen."""

from __future__ import annotations

from typing import Final

from cloakwork.api.service.models.model import Model
from cloakwork.models.report.timing import cpu_estimate

_FIRST_GUESS: Final = 0.01  # seconds for each bootstrap, of a program that has no estimate
_WEIGHT: Final = 0.2  # of the newest run
_LEAST_SECONDS: Final = 0.001


class Estimates:
    """Seconds per bootstrap of a parameter set on this machine, key loading left out."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def seconds(self, model: Model, samples: int) -> float:
        each = self._seconds.get(model.parameters.name) or _foreseen(model)
        return max(_LEAST_SECONDS, each * model.bootstraps * samples)

    def measured(self, model: Model) -> float | None:
        """Of one sample, when a model of the same set has run."""
        each = self._seconds.get(model.parameters.name)
        return None if each is None else each * model.bootstraps

    def learn(self, model: Model, samples: int, seconds: float) -> None:
        if model.bootstraps:
            each, name = seconds / (model.bootstraps * samples), model.parameters.name
            self._seconds[name] = each + (1 - _WEIGHT) * (self._seconds.get(name, each) - each)


def _foreseen(model: Model) -> float:
    """As the report forecasts it for one thread of a CPU; a GPU corrects it with its first run."""
    known = cpu_estimate(model.facts["report"].get("estimated_seconds", {}))
    return known[0] / model.bootstraps if known and model.bootstraps else _FIRST_GUESS
