"""The options of `cloakwork.compile` for a network."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

from cloakwork.fhe_core.parameters import ParameterSet, offered_sets, parameter_set
from cloakwork.models.criteria.choose_set import COMPARISON_CANDIDATES, named_sets
from cloakwork.models.criteria.noise_limits import NoiseLimits, noise_limits
from cloakwork.models.errors import CompileError
from cloakwork.models.options import Options

_BITS: Final = ("input_bits", "activation_bits", "accumulator_bits")
_OF_INTEGERS: Final = frozenset({*_BITS, "accumulator_ranges"})


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(Options):
    """Options for a network, and what follows from them."""

    @classmethod
    def from_options(cls, options: Options) -> NetworkOptions:
        """Take over options. CompileError for those that networks do not have, or values out of range."""
        options.check("network")
        network = cls(**{each.name: getattr(options, each.name) for each in fields(Options)})
        if network.weight_bits is not None and not 2 <= network.weight_bits <= 8:
            raise CompileError(f"weight_bits: expected 2 to 8, got {network.weight_bits}")
        for name in _BITS:
            value = getattr(network, name)
            if value is not None and not 1 <= value <= 12:
                raise CompileError(f"{name}: expected 1 to 12, got {value}")
        return network

    @property
    def bounds_integers(self) -> bool:
        """Whether bits or ranges of an exact program are given."""
        return not _OF_INTEGERS.isdisjoint(self.given())

    @cached_property
    def limits(self) -> NoiseLimits:
        return noise_limits(self.precision)

    @property
    def is_exact(self) -> bool:
        return self.limits.p_fail_log2 is not None

    @cached_property
    def named_sets(self) -> list[ParameterSet] | None:
        """The sets that are given; ParameterError for one with a structured secret, or two bodies, that was not asked for."""
        return None if self.sets is None else named_sets(self.sets, self.structured, self.bodies == 2)

    @property
    def offered(self) -> list[ParameterSet]:
        """The sets that are given, or every shipped one."""
        return offered_sets(self.structured, self.bodies == 2) if self.named_sets is None else self.named_sets

    @property
    def offered_for_comparisons(self) -> list[ParameterSet]:
        """Works as `offered`, by default with those of fine outputs; sets with two bodies have none."""
        named = self.named_sets is not None or self.bodies == 2
        return self.offered if named else [*self.offered, *map(parameter_set, COMPARISON_CANDIDATES)]
