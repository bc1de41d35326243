"""A check that answers beyond those of all samples stay beyond them: an anomaly whose score comes back among the ordinary ones is no more seen.

What a model computes between reaches far for inputs unlike the samples, even if each number of them is within its range. Rows beyond their tables
read about the value of an end for some way, then come back; and what several of them make together is anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.calibration.far_inputs import mixed_inputs
from cloakwork.models.compile.accuracy import Reference, simulated
from cloakwork.models.criteria.verdicts import QUANTITIES
from cloakwork.models.program import Program
from cloakwork.models.runtime.interpreter import interpret

_CLEARLY: Final = 0.1  # of how far the samples' answers lie apart: so far beyond them, and so far back among them
_FEW: Final = 3  # answers that say little
_SHARE: Final = 0.05  # of them


@dataclass(frozen=True)
class Beyond:
    """Counts of answers beyond those of all samples, and of those that the program gives among them."""

    count: int
    back: int

    @property
    def comes_back(self) -> bool:
        return self.back >= _FEW and self.back > _SHARE * self.count

    @property
    def text(self) -> str:
        return (
            f"{self.back} of {self.count} answers that lie beyond those of all samples come back among them (inputs that mix the "
            "numbers of several samples): what is unlike the samples may read as ordinary; give samples that reach as far, or a margin= "
            "for ranges, such as 0.5"
        )


def beyond_samples(program: Program, reference: Reference) -> Beyond:
    """Judges outputs of few numbers that are judged by their values."""
    heads = [
        head
        for head in reference.heads
        if head.task == "regression" and head.place.stop - head.place.start <= QUANTITIES
    ]
    if not heads:
        return Beyond(0, 0)
    inputs = mixed_inputs(reference.fitted[0])
    clear = interpret(reference.graph, inputs).reshape(len(inputs), -1)
    answers = simulated(program, inputs, noisy=False)
    ordinary = np.concatenate([reference.outputs, reference.fitted[1]])
    parts = [
        _beyond(*(head.answers_of(values[:, head.place]) for values in (ordinary, clear, answers))) for head in heads
    ]
    return Beyond(sum(part.count for part in parts), sum(part.back for part in parts))


def _beyond(ordinary: Reals, clear: Reals, computed: Reals) -> Beyond:
    """Args: ordinary: answers [samples, numbers]; clear, computed: the model's and the program's answers to the same inputs."""
    low, high = ordinary.min(axis=0), ordinary.max(axis=0)
    clearly = _CLEARLY * (high - low)
    above, below = (clear > high + clearly) & (high > low), (clear < low - clearly) & (high > low)
    back = (above & (computed < high - clearly)) | (below & (computed > low + clearly))
    return Beyond(int((above | below).sum()), int(back.sum()))
