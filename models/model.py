"""The protocol of compiled models."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from cloakwork.fhe_core.wire.files import PathLike
from cloakwork.models.modes import How


class ModelClient(Protocol):
    """The client's part of a model: all that the owner of the data needs beside the key; it holds no weights. `cloakwork.load_client` reads it."""

    def encrypt(self, key: Any, x: Any) -> Any:
        """Encrypt samples [samples, ..] for this model. Returns what `Server.answer` takes."""

    def decrypt(self, key: Any, answer: Any, x: Any = None) -> Any:
        """Decrypt what `Server.answer` returned.

        Args:
            x: the samples that were encrypted; programs of look-ups do without them.
        """

    def to_json(self) -> str:
        """Return all of it as a text, without a secret."""


@runtime_checkable
class Model(Protocol):
    """A compiled model: of look-ups, for batches, or an index of nearest neighbours."""

    @property
    def client(self) -> ModelClient:
        """The client's part of the model."""

    def predict(
        self, x: Any, how: How = "clear", *, key: Any = None, threads: int = 1, device: str | None = None
    ) -> Any:
        """Predict samples [samples, ..].

        Args:
            how: "clear" without encryption, "simulate" with its noise, "encrypted" really encrypted.
            key: for "encrypted"; None: one is made.
            threads, device: that compute then: "cpu", "cuda" or "cuda:N". None: the device that it was compiled for.
        """

    def save(self, path: PathLike) -> None:
        """Write the model to one file, which `cloakwork.load`, the command line and the service read."""

    def report(self) -> dict[str, Any]:
        """Report what the model costs, risks and discloses, as plain values."""

    @property
    def details(self) -> str:
        """The report as text. `str(model)` has four lines of it: as your model, seconds, bytes to send, what a client learns."""
