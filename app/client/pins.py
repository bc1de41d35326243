"""Pins of models at first use: a client notices when a server shows another program or other steps under the same name.

One file in the folder of keys. Each pin is authenticated by the secret key that its model uses, so that nobody without it writes one; a checksum
finds damage of the file.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from cloakwork.app.client.key_kinds import SecretKey
from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.wire.files import SECRET_MODE, atomic_writer, locked_folder

FILE: Final = "pins.json"
_FORMAT: Final = 1
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Pin:
    """The pin of one version of a server's model. Digests and codes are hexadecimal.

    Attributes:
        server: the URL that the client was given.
        program: digest of the program that the specification is of.
        specification: SHA-256 of its bytes.
        key: name of the secret key.
        code: of all these, by that key; empty: not known yet.
    """

    server: str
    model: str
    version: str
    program: str
    specification: str
    key: str
    code: str = ""

    def signed(self, key: SecretKey) -> Pin:
        """Returns the pin with its code."""
        return replace(self, code=key.authentication_code(self._message()).hex())

    def is_of(self, key: SecretKey) -> bool:
        """Whether who has the key wrote it."""
        return hmac.compare_digest(self.signed(key).code, self.code)

    def says_the_same(self, other: Pin) -> bool:
        """Compares two pins of the model: its key may be another one, where the user shares keys now and did not before."""
        return (self.program, self.specification) == (other.program, other.specification)

    def _message(self) -> bytes:
        return b"cloakwork pin" + json.dumps(list(asdict(replace(self, code="")).values())).encode()


class Pins:
    """Pins of one process, where no keys outlive it."""

    def __init__(self) -> None:
        self._pins: tuple[Pin, ...] = ()

    def of(self, server: str, model: str) -> dict[str, Pin]:
        """Returns pins by version."""
        return {pin.version: pin for pin in self.all() if (pin.server, pin.model) == (server, model)}

    def all(self) -> tuple[Pin, ...]:
        """Returns every pin. SerializationError: the file is damaged."""
        return self._pins

    def put(self, pin: Pin) -> None:
        """Stores a pin in place of one of the same server, model and version."""
        self._change((pin,), pin.server, pin.model, pin.version)

    def forget(self, server: str, model: str) -> None:
        """Deletes the pins of all versions."""
        self._change((), server, model, None)

    def _change(self, new: tuple[Pin, ...], server: str, model: str, version: str | None) -> None:
        self._pins = _changed(self._pins, new, server, model, version)


class PinFile(Pins):
    """The file of pins in a folder of keys, which only the user can open; any number of processes may use it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / FILE

    def all(self) -> tuple[Pin, ...]:
        try:
            with self.path.open("rb") as stream:
                data = stream.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return ()
        try:
            return _pins_of(json.loads(data) if len(data) <= _MOST_BYTES else None)
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise SerializationError(
                f"{self.path}: expected the pins of models at first use, got a damaged file; restore it, or remove it to trust the "
                "models that servers show now"
            ) from error

    def _change(self, new: tuple[Pin, ...], server: str, model: str, version: str | None) -> None:
        if not self.path.parent.exists() and not new:
            return
        with locked_folder(self.path.parent):
            pins = [asdict(pin) for pin in _changed(self.all(), new, server, model, version)]
            fields = {"cloakwork_pins": _FORMAT, "pins": pins, "sha256": _checksum(pins)}
            with atomic_writer(self.path, SECRET_MODE) as stream:
                stream.write(json.dumps(fields, indent=1).encode())


def _changed(
    pins: Iterable[Pin], new: tuple[Pin, ...], server: str, model: str, version: str | None
) -> tuple[Pin, ...]:
    """Without those of the version (None: of all) and with the new ones."""
    kept = (pin for pin in pins if (pin.server, pin.model) != (server, model) or version not in (None, pin.version))
    return (*kept, *new)


def _pins_of(fields: Any) -> tuple[Pin, ...]:
    """Raises ValueError, KeyError or TypeError for what `PinFile` does not write."""
    if fields["cloakwork_pins"] != _FORMAT or fields["sha256"] != _checksum(fields["pins"]):
        raise ValueError("another format or checksum")
    pins = tuple(Pin(**each) for each in fields["pins"])
    if not all(isinstance(text, str) for pin in pins for text in asdict(pin).values()):
        raise ValueError("expected texts")
    return pins


def _checksum(pins: Any) -> str:
    return hashlib.sha256(json.dumps(pins, sort_keys=True).encode()).hexdigest()
