"""The protocol of compiled models."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from cloakwork.fhe_core.files import PathLike
from cloakwork.models.modes import How


@runtime_checkable
class Model(Protocol):
    """A compiled model: of look-ups, for batches, or an index of nearest neighbours."""

    @property
    def client(self) -> Any:
        """Returns what the owner of the data needs beside the key: `encrypt`, `decrypt`, `to_json`; no weights."""

    def predict(self, x: Any, how: How = "clear", *, key: Any = None) -> Any:
        """Predict samples [samples, ..].

        Args:
            how: "clear" without encryption, "simulate" with its noise, "encrypted" really encrypted.
            key: for "encrypted"; None: one is made.
        """

    def save(self, path: PathLike) -> None:
        """Write the model to one file, which `cloakwork.load`, the command line and the service read."""

    def report(self) -> dict[str, Any]:
        """Report what the model costs, risks and discloses, as plain values."""

    @property
    def details(self) -> str:
        """The report as text. `str(model)` has four lines of it: as your model, seconds, bytes to send, what a client learns."""
