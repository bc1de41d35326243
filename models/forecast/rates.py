"""Seconds of one of each kind of work on one machine under one parameter set, and the forecast that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.public_key import LANES
from cloakwork.models.criteria.choose_set import bootstrap_cost
from cloakwork.models.forecast.work import Work

WorkPart = Literal["fixed", "look-ups", "linear layers", "transfers and answers"]

LINEAR: Final = ("transforms", "products", "sums", "gathered", "written", "multiplications")
MOVED: Final = ("polynomials", "extracted", "returned")


@dataclass(frozen=True)
class SetRates:
    """Rates of a parameter set. Curves are {ciphertexts of a call: seconds}, at least one point."""

    parameter_set: str
    run: float  # what every call of the runtime takes, whatever is in it
    call: float  # of the engine
    seconds: Mapping[str, float]  # of one of LINEAR and MOVED; a name that is missing was not measured
    lookups: Mapping[int, float]
    answers: Mapping[int, float]  # re-randomised
    switched: Mapping[int, float]  # and sent in fewer bits, beyond that

    @property
    def is_complete(self) -> bool:
        """Whether linear layers and transfers are in it, and not look-ups alone."""
        return all(name in self.seconds for name in (*LINEAR, *MOVED)) and bool(self.answers)

    def parts(self, work: Work) -> dict[WorkPart, float]:
        """Returns seconds of the parts of a call."""

        def total(names: tuple[str, ...]) -> float:
            return sum(self.seconds.get(name, 0.0) * work.count(name) for name in names)

        lanes = work.answers if work.answers < 2 else -(-work.answers // LANES) * LANES
        answers = on_curve(self.answers, lanes) + on_curve(self.switched, work.switched)
        return {
            "fixed": self.run + self.call * work.calls,
            "look-ups": sum(on_curve(self.lookups, count) for count in work.lookups),
            "linear layers": total(LINEAR),
            "transfers and answers": total(MOVED) + answers,
        }

    def scaled(self, source: ParameterSet, target: ParameterSet) -> SetRates:
        """Scales rates for another set: look-ups by their counted operations, the rest by the size of ciphertexts."""
        ratio = bootstrap_cost(target) / bootstrap_cost(source)
        products = _transform_cost(target) / _transform_cost(source)
        words = target.limb_count / source.limb_count
        answers = target.component_count / source.component_count * products
        seconds = {
            name: value * (products if name in ("transforms", "products", "polynomials") else words)
            for name, value in self.seconds.items()
        }
        return replace(
            self,
            parameter_set=target.name,
            seconds=seconds,
            lookups={count: value * ratio for count, value in self.lookups.items()},
            answers={count: value * answers for count, value in self.answers.items()},
            switched={count: value * answers for count, value in self.switched.items()},
        )


def on_curve(curve: Mapping[int, float], count: int) -> float:
    """Interpolates between two measured batches on the line through them; beyond the largest, several of it; never less than a smaller batch takes.
    Of an empty curve no time."""
    if count == 0 or not curve:
        return 0.0
    batches = sorted(curve)
    times = np.maximum.accumulate([curve[batch] for batch in batches])
    if count >= batches[-1]:
        return float(times[-1]) * count / batches[-1]
    return float(np.interp(count, batches, times))


def nearest_set(params: ParameterSet, measured: Mapping[str, ParameterSet]) -> str:
    """Returns the measured set that scales best: of the same ring, of as many limbs, of the same noise (sampling it takes time), of similar cost;
    in this order."""
    cost = bootstrap_cost(params)

    def distance(name: str) -> tuple[bool, bool, bool, bool, float]:
        other = measured[name]
        return (
            name != params.name,
            ring(other) != ring(params),
            other.limb_count != params.limb_count,
            other.glwe_sigma != params.glwe_sigma,
            abs(math.log(bootstrap_cost(other) / cost)),
        )

    return min(measured, key=distance)


def ring(params: ParameterSet) -> tuple[int, int, int]:
    """Returns the ring of the bootstrap key."""
    return params.polynomial_size, params.glwe_dimension, params.key_limb_count


def _transform_cost(params: ParameterSet) -> float:
    """Returns the transform cost of a GLWE ciphertext's product with one polynomial."""
    size = params.polynomial_size
    return params.component_count * params.limb_count * size * math.log2(size)
