"""Sets, levels and plaintext moduli of a batch's formula, by what noise and work are foreseen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2
from cloakwork.fhe_core.levelled.forecast import LevelledForecast
from cloakwork.fhe_core.levelled.neighbours.inner_products import products_noise
from cloakwork.fhe_core.levelled.noise import Noise, failure_log2
from cloakwork.fhe_core.levelled.parameters import PLAINTEXT_LIMIT, SETS, LevelledParameters
from cloakwork.fhe_core.levelled.slots import is_prime
from cloakwork.models.batches.client import MOST_MODULI, Packing
from cloakwork.models.batches.costs import Cost, batch_cost, query_cost
from cloakwork.models.batches.formula import Formula
from cloakwork.models.batches.scorer import constants_of

_SETS: Final = ("bgv12", "bgv13", "bgv14", "bgv15")
# Without slots, odd and coprime: for answers of one prime, the largest, and two of them. One key of a set serves all models.
COEFFICIENT_MODULI: Final = (((1 << 19) - 1,), (PLAINTEXT_LIMIT - 1,), (PLAINTEXT_LIMIT - 1, PLAINTEXT_LIMIT - 3))


@dataclass(frozen=True)
class BatchPlan:
    """The plan of a formula's computation.

    Attributes:
        failure_log2: of a ciphertext of answers.
    """

    parameters: tuple[LevelledParameters, ...]
    packing: Packing
    level: int
    answer_level: int
    failure_log2: float
    cost: Cost

    def __str__(self) -> str:
        count = len(self.parameters)
        return f"{self.parameters[0].set.name}, {count} plaintext {'modulus' if count == 1 else 'moduli'} of {self.parameters[0].plaintext_modulus}"


@lru_cache(maxsize=16)
def slot_moduli(size: int, count: int) -> tuple[int, ...]:
    """Returns the largest primes that slots take."""
    moduli: list[int] = []
    t = (PLAINTEXT_LIMIT - 2) // (2 * size) * (2 * size) + 1
    while len(moduli) < count:
        moduli += [t] if is_prime(t) else []
        t -= 2 * size
    return tuple(moduli)


def slot_room(moduli: int) -> int:
    """Returns the least product of this many, over all sets."""
    return min(math.prod(slot_moduli(SETS[name].polynomial_size, moduli)) for name in _SETS)


def best_plan(formula: Formula, limit: int, packing: Packing, samples: int) -> BatchPlan | None:
    """Finds the cheapest plan for this many samples; None where no set has room. Args: limit: of features' integers."""
    least_modulus = 2 * formula.largest(limit) + 1
    if packing == "slots":
        count = next((count for count in range(1, MOST_MODULI + 1) if least_modulus <= slot_room(count)), None)
        plans = iter(()) if count is None else _batches(formula, count, samples)
    else:
        moduli = next((moduli for moduli in COEFFICIENT_MODULI if least_modulus <= math.prod(moduli)), None)
        if moduli is None:
            return None
        plans = (_queries if packing == "query" else _batches)(formula, moduli, samples)
    return min(plans, key=lambda plan: plan.cost.total_ms, default=None)


def answer_noise(formula: Formula, parameters: LevelledParameters, packing: Packing, levels: tuple[int, int]) -> Noise:
    """Returns the noise of answers, as foreseen. Args: levels: of queries and of answers. Raises: ParameterError: there is no room for it."""
    if packing == "query":
        noise = _query_noise(formula, parameters, levels)
        if failure_log2(noise, parameters, levels[1]) > FAILURE_LOG2:
            raise ParameterError(f"levels: expected more than {levels} for these weights")
        return noise
    forecast = LevelledForecast(parameters)
    answer = formula.run(forecast, forecast.fresh(formula.features, levels[0]), lambda _: np.zeros((1, 1), np.int64))
    return forecast.modulus_switch(answer, levels[1]).noise


def _query_noise(formula: Formula, parameters: LevelledParameters, levels: tuple[int, int]) -> Noise:
    norm1 = float(np.abs(formula.inner).sum())
    norm2 = math.sqrt(float(np.square(formula.inner.astype(np.float64)).sum()))
    return products_noise(parameters, levels, formula.features, norm1, norm2)


def _batches(formula: Formula, moduli: tuple[int, ...] | int, samples: int) -> Iterator[BatchPlan]:
    """Yields plans of the least level of each set with room. Args: moduli: or, for slots, their number."""
    packing: Packing = "slots" if isinstance(moduli, int) else "coefficients"
    for name in _SETS:
        size, levels = SETS[name].polynomial_size, SETS[name].levels
        chosen = slot_moduli(size, moduli) if isinstance(moduli, int) else moduli
        parameters = tuple(LevelledParameters.of(name, t) for t in chosen)
        for level in range(1, levels + 1):
            forecast = LevelledForecast(parameters[0])
            try:
                x = forecast.fresh(formula.features, level)
                outputs = formula.run(forecast, x, constants_of(parameters[0], packing))
            except ParameterError:
                continue
            answer = forecast.modulus_switch(outputs, forecast.least_level(outputs))
            failure = failure_log2(answer.noise, parameters[0], answer.level)
            counts = formula.features, formula.outputs
            cost = batch_cost(forecast.work, parameters, (level, answer.level), counts, samples, packing == "slots")
            yield BatchPlan(parameters, packing, level, answer.level, failure, cost)
            break


def _queries(formula: Formula, moduli: tuple[int, ...], samples: int) -> Iterator[BatchPlan]:
    """Yields one ciphertext a sample."""
    for name, level, answer_level in (("bgv12", 2, 1), ("bgv12", 2, 2), ("bgv13", 3, 2), ("bgv13", 4, 2)):
        parameters = tuple(LevelledParameters.of(name, t) for t in moduli)
        if formula.features > parameters[0].polynomial_size:
            continue
        noise = _query_noise(formula, parameters[0], (level, answer_level))
        failure = failure_log2(noise, parameters[0], answer_level)
        if failure <= FAILURE_LOG2:
            cost = query_cost(parameters, (level, answer_level), (formula.features, formula.outputs), samples)
            yield BatchPlan(parameters, "query", level, answer_level, failure, cost)
            return
