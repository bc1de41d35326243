"""How much noise every layer may have: profiles by name or number, for the whole model or layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from cloakwork.models.errors import CompileError
from cloakwork.models.ir import Graph, Linear

# Noise that look-ups may see: standard deviation, per cent of the half torus.
PROFILES: Final[dict[str, float]] = {"fast": 2.0, "balanced": 1.0}
DEFAULT_LAYER: Final = "*"  # in a mapping: every layer that it does not name
LARGEST_NOISE: Final = 10.0  # per cent; four standard deviations then leave a tenth of the look-up's range

Profile: TypeAlias = str | float


@dataclass(frozen=True)
class NoiseLimits:
    """Per cent of the half torus, one standard deviation, at the look-up (or the client) that reads a linear layer."""

    default: float
    layers: Mapping[str, float] = field(default_factory=dict)

    def of(self, node: Linear) -> float:
        return self.layers.get(node.origin, self.default)

    def scaled(self, share: float) -> NoiseLimits:
        return NoiseLimits(share * self.default, {name: share * limit for name, limit in self.layers.items()})


def noise_limits(profile: Profile | Mapping[str, Profile]) -> NoiseLimits:
    """A profile, or profiles by the names of layers with "*" for the others ("fast" when there is none).

    Raises:
        CompileError: a name that is none, or a number out of its range.
    """
    if not isinstance(profile, Mapping):
        return NoiseLimits(_percent(profile))
    layers = {name: _percent(value) for name, value in profile.items() if name != DEFAULT_LAYER}
    return NoiseLimits(_percent(profile.get(DEFAULT_LAYER, "fast")), layers)


def on_layers(limits: NoiseLimits, graph: Graph) -> NoiseLimits:
    """The same limits by the names of linear nodes; a look-up's name stands for the linear nodes that it reads.

    Raises:
        CompileError: a name that the model does not have.
    """
    owner = graph.owners()
    named: dict[str, set[str]] = {}
    for linear in graph.linears:
        named.setdefault(linear.origin, set()).add(linear.origin)
    for lookup in graph.lookups:
        sources = {graph.nodes[i].origin for i in owner[lookup.gather].tolist() if i >= 0}
        named.setdefault(lookup.origin, set()).update(sources)
    unknown = [name for name in limits.layers if name not in named]
    if unknown:
        raise CompileError(
            f"profile: the model has no layer {', '.join(map(repr, unknown))}; expected some of {', '.join(map(repr, sorted(named)))}"
        )
    spread: dict[str, float] = {}
    for name, limit in limits.layers.items():
        for layer in named[name]:
            spread[layer] = min(limit, spread.get(layer, math.inf))
    return replace(limits, layers=spread)


def _percent(profile: Profile) -> float:
    if isinstance(profile, str):
        if profile not in PROFILES:
            raise CompileError(
                f"profile: expected {', '.join(PROFILES)}, or a number (noise in per cent of the half torus), got '{profile}'"
            )
        return PROFILES[profile]
    percent = float(profile)
    if not 0 < percent <= LARGEST_NOISE:
        raise CompileError(
            f"profile: expected noise of more than 0 and at most {LARGEST_NOISE:g} per cent of the half torus, got {profile}"
        )
    return percent
