"""Records for the audit of an answer, collected while a client asks (docs/howto/client.md, "Audits")."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cloakwork.app.client.errors import ServiceError
from cloakwork.models.audit.audit_file import AuditObject, Manifest, write_audit_file

AUDIT_KEY_HEADER = "fhe-audit-key"


@dataclass
class Recorder:
    """Requests as they leave and answers as they come, encrypted both; `write` makes a file of them.

    Args:
        path: of the file.
        with_keys: put the evaluation keys into it; without them whoever replays it takes those that the service keeps.
    """

    path: Path
    with_keys: bool = True
    exchanges: list[tuple[bytes, bytes]] = field(default_factory=list, init=False)
    _audit_key: str = field(default="", init=False)

    def take(self, request: bytes, answer: bytes, headers: Mapping[str, str]) -> None:
        """Records an exchange.

        Raises:
            ServiceError: the server does not say its audit key, or another one than before.
        """
        audit_key = headers.get(AUDIT_KEY_HEADER, "")
        if not audit_key:
            raise ServiceError(
                "audit: the server does not say which audit key it has: it is an earlier release, whose answers cannot be replayed"
            )
        if self._audit_key not in ("", audit_key):
            raise ServiceError("audit: the server changed its audit key while it answered; score again")
        self._audit_key = audit_key
        self.exchanges.append((request, answer))

    def write(self, model: str, version: str, program: bytes, service: str, keys: Path) -> None:
        """Writes the file, with the evaluation keys that lie in `keys`."""
        with keys.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        manifest = Manifest(
            model,
            version,
            program.hex(),
            self._audit_key,
            service,
            datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            AuditObject(keys.stat().st_size, digest),
            self.with_keys,
            tuple((AuditObject.of(request), AuditObject.of(answer)) for request, answer in self.exchanges),
        )
        write_audit_file(self.path, manifest, keys if self.with_keys else None, self.exchanges)
