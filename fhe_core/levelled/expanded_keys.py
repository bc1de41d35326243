"""Evaluation keys where they are used: expanded once, for any number of evaluators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cloakwork.fhe_core.levelled.backends import AnyPrepared, LevelledBackend, backend_of
from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys
from cloakwork.fhe_core.levelled.parameters import LevelledParameters


@dataclass(frozen=True, eq=False)
class ExpandedLevelledKeys:
    """Both halves of every key, prepared for keyswitches on one device. Public."""

    parameters: LevelledParameters
    key_id: bytes
    device: str
    prepared: Mapping[int, AnyPrepared]
    backend: LevelledBackend  # that prepared them

    @classmethod
    def of(cls, keys: LevelledEvaluationKeys, device: str = "cpu", threads: int = 1) -> ExpandedLevelledKeys:
        """Args: device: "cpu", "cuda" or "cuda:N"."""
        backend = backend_of(keys.parameters.engine, device, threads)
        return cls(keys.parameters, keys.key_id, device, backend.keys(keys.expanded(threads)), backend)

    @property
    def nbytes(self) -> int:
        return sum(int(key.nbytes) for key in self.prepared.values())
