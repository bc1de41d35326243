"""Consent of the user: large keys, and a model that has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cloakwork.app.client.errors import ChangedModelError
from cloakwork.app.client.key_kinds import KeyKind
from cloakwork.fhe_core.errors import ParameterError

LARGE_KEYS_BYTES: Final = 100_000_000
_MADE_A_SECOND: Final = 100_000_000  # bytes of evaluation keys on one core, roughly
_SENT_A_SECOND: Final = 1_250_000  # bytes over 10 Mbit/s

Confirm: TypeAlias = Callable[[str], bool]
"""confirm(question): whether the user agrees."""


@dataclass(frozen=True)
class Agreement:
    """Args:
    confirm: asks the user; None: nobody can be asked.
    large_keys: keys of any size are made and sent.
    changes: a model that is not what it was is taken, and pinned anew.
    """

    confirm: Confirm | None = None
    large_keys: bool = False
    changes: bool = False

    def require_keys(self, kind: KeyKind[Any]) -> None:
        """Raises ParameterError for large keys that have to be made and sent, and nobody agreed."""
        size = kind.upload_bytes
        if size <= LARGE_KEYS_BYTES or self.large_keys:
            return
        what = (
            f"the server's model needs evaluation keys of {size:,} bytes ({kind.name}): about {size // _MADE_A_SECOND} s to make on a core and "
            f"{size // _SENT_A_SECOND} s to send over 10 Mbit/s"
        )
        if self.confirm is None or not self.confirm(f"{what}. Make and send them?"):
            raise ParameterError(
                f"keys: {what}, and nobody agreed to that; pass accept_large_keys=True (--accept-large-keys) if they are wanted"
            )

    def require_change(self, model: str, what: str) -> None:
        """Raises ChangedModelError for a model that is not what it was, and nobody agreed."""
        if self.changes:
            return
        if self.confirm is None or not self.confirm(f"Model '{model}': {what}. Use it from now on?"):
            raise ChangedModelError(
                f"model '{model}': {what}; nothing was encrypted for it. Ask who runs the server; Client.accept('{model}') (--accept-change) "
                "accepts it as it is now"
            )
