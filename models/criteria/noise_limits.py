"""Noise limits of layers: profiles by name or number, for the whole model or layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from cloakwork.models.errors import CompileError, closest_first, some
from cloakwork.models.graph.ir import Graph, Linear

# Noise that look-ups may see: standard deviation, per cent of the half torus.
PROFILES: Final[dict[str, float]] = {"fast": 2.0, "balanced": 1.0}
# log2 of the largest failure probability of one exact look-up.
EXACT_PROFILES: Final[dict[str, float]] = {"exact": -128.0, "exact_64": -64.0}
EXACT: Final = 0.0  # the noise limit of exact layers: none that would show
AUTO: Final = "auto"  # noise up to LARGEST_NOISE, and what accuracy asks for
DEFAULT_LAYER: Final = "*"  # in a mapping: every layer that it does not name
LARGEST_NOISE: Final = 10.0  # per cent; four standard deviations then leave a tenth of the look-up's range

Profile: TypeAlias = str | float


@dataclass(frozen=True)
class NoiseLimits:
    """Limits in per cent of the half torus, one standard deviation (or EXACT), at the look-up (or the client) that reads a linear layer."""

    default: float
    layers: Mapping[str, float] = field(default_factory=dict)
    p_fail_log2: float | None = None  # of exact look-ups; None when there are none. Their limit is EXACT.

    def of(self, node: Linear) -> float:
        return self.layers.get(node.origin, self.default)

    def scaled(self, share: float) -> NoiseLimits:
        layers = {name: share * limit for name, limit in self.layers.items()}
        return NoiseLimits(share * self.default, layers, self.p_fail_log2)

    def approximate(self, graph: Graph) -> dict[str, float]:
        """Returns layers of a model with exact look-ups that need not be exact."""
        return {node.origin: self.of(node) for node in graph.linears if self.of(node) != EXACT}


def noise_limits(profile: Profile | Mapping[str, Profile]) -> NoiseLimits:
    """Returns a profile, or profiles by the names of layers with "*" for the others ("fast" when there is none).

    Raises:
        CompileError: a name that is none, or a number out of its range.
    """
    by_layer = profile if isinstance(profile, Mapping) else {DEFAULT_LAYER: profile}
    exact = [value for value in by_layer.values() if value in EXACT_PROFILES]
    layers = {name: _limit(value) for name, value in by_layer.items() if name != DEFAULT_LAYER}
    failure = min((EXACT_PROFILES[str(value)] for value in exact), default=None)
    return NoiseLimits(_limit(by_layer.get(DEFAULT_LAYER, "fast")), layers, failure)


def _limit(profile: Profile) -> float:
    return EXACT if profile in EXACT_PROFILES else _percent(profile)


def on_layers(limits: NoiseLimits, graph: Graph) -> NoiseLimits:
    """Returns the same limits by the names of linear nodes; a look-up's name stands for the linear nodes that it reads, where it is no linear node's.

    Raises:
        CompileError: a name that the model does not have.
    """
    owner = graph.owners()
    named: dict[str, set[str]] = {}
    for linear in graph.linears:
        named.setdefault(linear.origin, set()).add(linear.origin)
    layers = set(named)
    for lookup in graph.lookups:
        if lookup.origin not in layers:
            sources = {graph.nodes[i].origin for i in owner[lookup.gather].tolist() if i >= 0}
            named.setdefault(lookup.origin, set()).update(sources)
    unknown = [name for name in limits.layers if name not in named]
    if unknown:
        known = map(repr, closest_first(unknown[0], sorted(named)))
        raise CompileError(
            f"precision: the model has no layer {some(map(repr, unknown))}; expected some of {some(known)}"
        )
    spread: dict[str, float] = {}
    for name, limit in limits.layers.items():
        for layer in named[name]:
            spread[layer] = min(limit, spread.get(layer, math.inf))
    return replace(limits, layers=spread)


def _percent(profile: Profile) -> float:
    if profile == AUTO:
        return LARGEST_NOISE
    if isinstance(profile, str):
        if profile not in PROFILES:
            names = ", ".join((AUTO, *PROFILES, *EXACT_PROFILES))
            raise CompileError(
                f"precision: expected {names}, or a number (noise in per cent of the half torus), got '{profile}'"
            )
        return PROFILES[profile]
    percent = float(profile)
    if not 0 < percent <= LARGEST_NOISE:
        raise CompileError(
            f"precision: expected noise of more than 0 and at most {LARGEST_NOISE:g} per cent of the half torus, got {profile}"
        )
    return percent
