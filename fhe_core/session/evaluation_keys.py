"""Evaluation keys: what the server gets. Seeded (`EvaluationKeys`, small, travels) and expanded for a device (`ExpandedKey`, shared)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cloakwork.fhe_core import engine, wire
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.device_words import device_ordinals
from cloakwork.fhe_core.errors import OutOfDeviceMemory
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.wire.objects import WireObject
from cloakwork.fhe_core.words import Progress, Small, Words

__all__ = ["EvaluationKeys", "ExpandedKey", "device_memory", "device_ordinals"]

if TYPE_CHECKING:
    from cloakwork.fhe_core.engine import EngineKey
    from cloakwork.fhe_core.wire import BytesSource


@dataclass(frozen=True, eq=False)
class EvaluationKeys(WireObject):
    """Bootstrap key and keyswitch key as one seed and their bodies, and a public key (sections 9 and 10 of docs/reference/specification.md).

    They let anyone compute on ciphertexts of the key `key_id`, re-randomise the results, and decrypt nothing.
    """

    parameters: ParameterSet
    seed: bytes
    bootstrap_bodies: Words  # [key_step_count, keys_per_step, row_count, N], with r > 1 lanes [.., r, N]
    keyswitch_bodies: Small  # [large_dimension, level_count], [.., r]
    public_seed: bytes
    public_bodies: Words  # [k, N], [k, r, N]
    key_id: bytes | None = None

    @property
    def public_key(self) -> PublicKey:
        """Returns the public key that `Session.rerandomise` encrypts zeros with."""
        return PublicKey(self.parameters, self.public_seed, self.public_bodies, self.key_id)

    @property
    def nbytes(self) -> int:
        """Bytes in memory; on the wire, `len(to_bytes())`, words take the bits that they have and so less."""
        bodies = self.bootstrap_bodies.nbytes + self.keyswitch_bodies.nbytes + self.public_bodies.nbytes
        return len(self.seed) + len(self.public_seed) + bodies

    def __repr__(self) -> str:
        return f"<EvaluationKeys {self.parameters.name} {self.nbytes / 2**20:.1f} MiB>"

    def expand(self, device: str = "cpu", progress: Progress = None) -> ExpandedKey:
        """Regenerates the masks and transforms the key for a device: `cpu`, `cuda`, `cuda:1`, or several GPUs as in `cuda:0,1`.

        Share the result between sessions.
        """
        ordinals = _ordinals(device)
        with device_memory(device, "expansion of evaluation keys"):
            if device == "cpu":
                keys: tuple[EngineKey, ...] = (engine.host_key(self, progress),)
            else:
                keys = tuple(engine.device_key(self, ordinal, progress) for ordinal in ordinals)
        return ExpandedKey(self.parameters, device, keys, self.public_key, self.key_id)

    def _header(self) -> wire.Header:
        return wire.Header(kind=wire.Kind.EVALUATION_KEYS, parameters=self.parameters, seeded=True, key_id=self.key_id)

    def _sections(self) -> list[wire.Section]:
        return [self.seed, self.bootstrap_bodies, self.keyswitch_bodies, self.public_seed, self.public_bodies]

    @classmethod
    def _from_source(cls, source: BytesSource, parameters: ParameterSet | None, max_bytes: int) -> EvaluationKeys:
        header, sections = wire.read(
            source, wire.Kind.EVALUATION_KEYS, seeded=True, parameters=parameters, max_bytes=max_bytes
        )
        seed, bootstrap_bodies, keyswitch_bodies, public_seed, public_bodies = sections
        assert isinstance(seed, bytes) and isinstance(bootstrap_bodies, np.ndarray)
        assert isinstance(public_seed, bytes) and isinstance(public_bodies, np.ndarray)
        assert isinstance(keyswitch_bodies, np.ndarray)
        keyswitch = keyswitch_bodies.astype(np.uint32, copy=False)
        return cls(header.parameters, seed, bootstrap_bodies, keyswitch, public_seed, public_bodies, header.key_id)


@dataclass(frozen=True, eq=False)
class ExpandedKey:
    """Evaluation keys in a device's own form; immutable, shared by any number of sessions and threads.

    The public key stays on the host.
    """

    parameters: ParameterSet
    device: str
    engine_keys: tuple[EngineKey, ...]  # one for each device
    public_key: PublicKey
    key_id: bytes | None = None

    @property
    def nbytes(self) -> int:
        """Bytes on all devices together."""
        return sum(key.nbytes for key in self.engine_keys)

    def __repr__(self) -> str:
        return f"<ExpandedKey {self.parameters.name} on {self.device}>"


def _ordinals(device: str) -> list[int]:
    """Returns the GPUs of a device's name, of which this build can use some; none for the CPU."""
    numbers = device_ordinals(device)
    if device == "cpu":
        return []
    engine.require_cuda(device, ", or use device='cpu'")
    return numbers or [0]


@contextlib.contextmanager
def device_memory(device: str, what: str) -> Iterator[None]:
    """Turns a failed allocation into OutOfDeviceMemory."""
    try:
        yield
    except MemoryError as error:
        raise OutOfDeviceMemory(
            f"{what}: the memory of device '{device}' does not suffice; use smaller batches, fewer threads, or a device with more memory"
        ) from error
