"""The class of Ray's actors: a session on a device with its expanded key. Bytes and plain types come and go, and no exception of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloakwork.app.batch.errors import one_line
from cloakwork.app.batch.evaluator import Evaluator
from cloakwork.app.batch.manifest import MANIFEST
from cloakwork.app.batch.pieces import Plain
from cloakwork.app.batch.store import Store
from cloakwork.app.batch.work import Desk


class Worker:
    """Two threads of Ray call `carry_out`, so that the objects of one task are read while the engine computes another."""

    def __init__(self) -> None:
        self._desk: Desk | None = None

    def placed(self) -> bool:
        return True

    def prepare(self, program: bytes, keys: bytes, settings: dict[str, Any]) -> str:
        """Expands the key. What is wrong, or an empty text.

        Args:
            program, keys: from Ray's object store, where they lie once for each machine.
            settings: `device`, `threads`, `deterministic` of the evaluator; `source`, `target`, `column` of the desk.
        """
        try:
            Store(settings["target"]).read(MANIFEST)  # not seen here: a folder that machines do not share
            evaluator = Evaluator(
                program,
                keys,
                device=settings["device"],
                threads=settings["threads"],
                deterministic=settings["deterministic"],
            )
            self._desk = Desk(evaluator, settings["source"], settings["target"], settings["column"])
        except Exception as error:
            return one_line(error)
        return ""

    def carry_out(self, task: Sequence[Plain]) -> list[dict[str, Any]]:
        assert self._desk is not None
        return self._desk.carry_out(task)
