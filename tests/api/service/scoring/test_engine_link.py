"""What is said and counted when the process of an engine ends."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

from cloakwork.api.engine.messages import EngineOptions
from cloakwork.api.service.scoring import engine_link as module
from cloakwork.api.service.scoring.engine_link import EngineLink
from cloakwork.models.audit.audit_key import AuditKey


@pytest.mark.parametrize(
    ("status", "killed_by_us", "kills", "counted", "says"),
    [
        (-signal.SIGKILL, False, 1, 1, "lower device_key_bytes"),
        (-signal.SIGKILL, False, 0, 0, "the kernel's log"),
        (-signal.SIGKILL, True, 1, 0, None),  # one that hung
        (-signal.SIGSEGV, False, 1, 0, None),
        (1, False, 0, 0, None),
    ],
)
def test_an_end_for_want_of_memory_is_told_from_others(
    status: int, killed_by_us: bool, kills: int, counted: int, says: str | None, monkeypatch: pytest.MonkeyPatch
):
    link = EngineLink(EngineOptions(), AuditKey(bytes(32)), lambda *_: None, lambda _: None, lambda: None)
    link._process = SimpleNamespace(returncode=status)  # type: ignore[assignment]
    link._killed = killed_by_us
    monkeypatch.setattr(module, "memory_kills", lambda: 5 + kills)
    facts = link._ending(5)
    assert link.memory_kills == counted and facts.get("out_of_memory", False) == bool(counted)
    assert (says in str(facts["hint"])) if says else "hint" not in facts
    assert facts.get("signal") == (signal.Signals(-status).name if status < 0 else None)
