"""`cloakwork.Key`: the client's secret key for a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys
from cloakwork.fhe_core.levelled.client import LevelledClientKey, load_keys, save_keys
from cloakwork.fhe_core.levelled.wire import MAGIC
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.wire.files import PathLike, atomic_writer
from cloakwork.fhe_core.words import Progress
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.errors import CompileError
from cloakwork.models.fresh_keys import fresh_keys
from cloakwork.models.messages import message_bytes
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.program.client_specification import ClientSpecification

if TYPE_CHECKING:
    from cloakwork.models.model import Model

PublicKeys: TypeAlias = EvaluationKeys | LevelledEvaluationKeys | tuple[LevelledEvaluationKeys, ...]
"""What a server gets of a key."""


@dataclass(frozen=True, eq=False, repr=False)
class Key:
    """The secret key of a client: it stays with the owner of the data. One key serves every model of the same parameter set.

    Attributes:
        parts: the engine's keys; models for batches have one for each plaintext modulus.
    """

    parts: tuple[ClientKey, ...] | tuple[LevelledClientKey, ...] = field(repr=False)

    @classmethod
    def generate(cls, model: Model | ClientSpecification | BatchClient | NeighbourClient) -> Key:
        """Generate a fresh key from the operating system's randomness. Args: model: a compiled model, or its client specification."""
        return cls(fresh_keys(_parameters(model)))

    @property
    def only(self) -> Any:
        """The engine's key. CompileError: there are several."""
        if len(self.parts) != 1:
            raise CompileError(f"key: expected a key of one part, got one of {len(self.parts)}")
        return self.parts[0]

    def public(
        self,
        model: Model | ClientSpecification | BatchClient | NeighbourClient | None = None,
        progress: Progress = None,
    ) -> PublicKeys:
        """Make the evaluation keys: all that a server gets; they decrypt nothing.

        Args:
            model: for indices of nearest neighbours and models for batches, whose servers need further keys.
            progress: called with steps done and in all.
        """
        if isinstance(model, BatchModel | BatchClient):
            batch_client = model.client if isinstance(model, BatchModel) else model
            if batch_client.program is not None:
                return self.only.evaluation_keys(progress)  # type: ignore[no-any-return]
            return tuple(batch_client.evaluation_keys(self.parts))  # type: ignore[arg-type]
        if model is None or hasattr(model, "program"):
            if not isinstance(self.parts[0], ClientKey):
                raise CompileError("key.public: expected the model whose server gets the keys, got none")
            return self.parts[0].evaluation_keys(progress)
        client: NeighbourClient = model.client if isinstance(model, NeighbourIndex) else model  # type: ignore[assignment]
        return client.evaluation_keys(self.only)

    def save_public(self, path: PathLike, model: Any = None, progress: Progress = None) -> None:
        """Write the evaluation keys to a file, whose bytes `Server` takes. Args: as of `public`."""
        client = getattr(model, "client", model)
        sums = isinstance(client, BatchClient) and client.program is None
        keys = client.keys_to_send(self.parts) if sums else self.public(model, progress)
        if isinstance(keys, EvaluationKeys):
            keys.save(path)
            return
        with atomic_writer(path) as stream:
            stream.write(message_bytes(keys))

    def save(self, path: PathLike, passphrase: str) -> None:
        """Write the key to a file, encrypted with a passphrase (scrypt, AES-256-GCM)."""
        levelled = [each for each in self.parts if isinstance(each, LevelledClientKey)]
        if levelled:
            save_keys(path, levelled, passphrase)
        else:
            self.only.save(path, passphrase)

    @classmethod
    def load(cls, path: PathLike, passphrase: str) -> Key:
        """Read a key's file.

        Raises:
            SerializationError: another kind of file, a damaged one, or another passphrase.
        """
        with Path(path).open("rb") as stream:
            levelled = stream.read(len(MAGIC)) == MAGIC
        return cls(load_keys(path, passphrase) if levelled else (ClientKey.load(path, passphrase),))

    def __repr__(self) -> str:
        return f"Key({', '.join(map(repr, self.parts))})"


def _parameters(model: Any) -> tuple[Any, ...]:
    if isinstance(model, ClientSpecification):
        return (model.parameters,)
    if isinstance(model, NeighbourClient | NeighbourIndex):
        return (model.parameters if isinstance(model, NeighbourClient) else model.client.parameters,)
    if isinstance(model, BatchModel | BatchClient):
        return tuple(model.key_parameters)
    if hasattr(model, "program"):
        return (model.program.parameters,)
    raise CompileError(f"key: expected a compiled model or its client specification, got {type(model).__name__}")
