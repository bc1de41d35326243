"""The manifest of an output folder, which says what its results belong to: a small JSON object beside them, written before the first result.

A run that was cut off goes on where the manifest is of the same run: the same program, keys, mode, input and column. A result counts as done when
its input is the one that the manifest names, unchanged, and the result is whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from cloakwork.app.batch.errors import BatchCallError
from cloakwork.app.batch.pieces import PARTS, RESERVED, result_name
from cloakwork.app.batch.store import Entry, Store, shown

MANIFEST: Final = f"{RESERVED}batch.json"
REPORT: Final = f"{RESERVED}report.json"
_FORMAT: Final = 1


@dataclass(frozen=True)
class Identity:
    """Identity of a run. program: digest. keys: SHA-256 of the evaluation keys' file. source: the input, as it may be shown."""

    program: str
    keys: str
    mode: str
    source: str
    column: str | None

    def differences(self, run: Any) -> list[str]:
        """Names the fields in which a manifest's record differs."""
        record = run if isinstance(run, dict) else {}
        return [name for name, value in vars(self).items() if record.get(name) != value]


def open_output(target: Store, identity: Identity, inputs: Iterable[Entry], force: bool) -> set[str]:
    """Makes the output that of this run, and says which names are there of it: results and parts of inputs that have not changed.

    Raises:
        BatchError: it holds something else, and `force` does not allow to replace it.
    """
    versions = {entry.name: entry.version for entry in inputs}
    there = {entry.name for entry in target.entries()}
    earlier = _earlier(target, identity, there, force)
    stale = [name for name, version in versions.items() if earlier.get(name) != version]
    # Deleted before the manifest says that they are of the inputs as they are now: another run that is cut off must not find them.
    gone = {
        name for each in stale for name in there if name == result_name(each) or name.startswith(f"{PARTS}/{each}/")
    }
    target.delete(gone | ({REPORT} & there))
    record = {"format": _FORMAT, "run": vars(identity), "inputs": versions}
    target.write(MANIFEST, json.dumps(record, indent=1).encode())
    return there - gone


def _earlier(target: Store, identity: Identity, there: set[str], force: bool) -> dict[str, str]:
    """Reads inputs of the same run by name, with their versions; none when there was no such run."""
    if MANIFEST not in there:
        if there and not force:
            raise BatchCallError(
                f"{shown(target.place)}: expected an empty output or one of this batch, got {len(there)} objects without a manifest; "
                "choose another --out, or pass --force"
            )
        return {}
    try:
        record = json.loads(target.read(MANIFEST))
        run, inputs = record["run"], dict(record["inputs"])
        wrong = identity.differences(run) if record["format"] == _FORMAT else ["format"]
    except (ValueError, KeyError, TypeError):
        wrong, inputs = ["manifest, which is damaged"], {}
    if not wrong:
        return inputs
    if not force:
        raise BatchCallError(
            f"{shown(target.place)}: it holds results of another run, of another {', '.join(wrong)}; choose another --out, or pass --force "
            "to replace them"
        )
    return {}
