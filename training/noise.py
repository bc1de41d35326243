"""Noise of look-ups under a parameter set, in the numbers that training needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

# The same as in models/approximate/quantise_weights.py (a test compares them); training also runs where the engine is not installed.
LOOKUP_LIMIT: Final = 0.25  # of the torus, either way: what a look-up reads
OUTPUT_LIMIT: Final = 0.375  # what the client decrypts
GUARD: Final = 4.0  # standard deviations of noise kept free at the edge of a look-up's range
LARGEST_WEIGHT: Final = 127


@dataclass(frozen=True)
class LookupNoise:
    """Variances as fractions of the torus, squared.

    A look-up after integer weights of L2 norm w on look-ups sees w^2 blind_rotation + switching; the client sees the first part alone.
    """

    parameter_set: str
    blind_rotation: float
    switching: float

    @classmethod
    def of(cls, parameter_set: str) -> LookupNoise:
        """Returns the noise of a set by the noise model of the engine; ParameterError for a name that is none."""
        from cloakwork.fhe_core import noise, parameters

        params = parameters.parameter_set(parameter_set)
        switching = noise.keyswitch_variance(params) + noise.modulus_switch_variance(params)
        return cls(parameter_set, noise.blind_rotation_variance(params), switching)

    def deviation(self, weight_norm: float, is_output: bool = False) -> float:
        """Returns standard deviation, as a fraction of the torus."""
        return math.sqrt(weight_norm**2 * self.blind_rotation + (0.0 if is_output else self.switching))

    def limit(self, weight_norm: float, is_output: bool = False) -> float:
        """Returns largest phase of a value, as the compiler lays out ranges."""
        return OUTPUT_LIMIT if is_output else LOOKUP_LIMIT - GUARD * self.deviation(weight_norm)
