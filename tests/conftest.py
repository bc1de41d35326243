"""Shared pytest set-up: toy parameter sets are allowed; tests/suite has what chooses tests, fixes entropy and reports memory."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ("tiers", "entropy", "memory", "command_line", "requirements")

# Toy parameter sets are insecure and refused everywhere but here.
os.environ.setdefault("CLOAKWORK_ALLOW_TOY", "1")
os.environ.setdefault("CLOAKWORK_ALLOW_TOY_SERVERS", "1")
# Passphrases of tests protect nothing.
os.environ.setdefault("CLOAKWORK_WEAK_PASSPHRASE", "1")

# A shell that runs this in the background lets it ignore Ctrl-C, and with it every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A run that fails, fails again: tests that look further afield draw on purpose (tests/fuzz).
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.load_profile("repeatable")


_UMASK = os.umask(0o022)
os.umask(_UMASK)


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Commands and services that run in this process set it."""
    os.umask(_UMASK)
    yield
    os.umask(_UMASK)


def pytest_sessionstart() -> None:
    """`make test-emulated` and `make sanitize` name the folder of the engine they built: no other engine may pass their tests."""
    wanted = os.environ.get("CLOAKWORK_ENGINE")
    if wanted is None:
        return
    from cloakwork.fhe_core import _engine

    found = Path(str(_engine.__file__)).resolve()
    if found.parent.name != wanted:
        pytest.exit(f"CLOAKWORK_ENGINE: expected the engine of build/{wanted}, got {found}", returncode=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests that measure a device's free memory have it to themselves, where several processes of pytest share one."""
    if item.get_closest_marker("gpu") is None:
        return (yield)
    alone = item.get_closest_marker("measures_memory") is not None
    with Path(__file__).open("rb") as file:  # any file that all processes see; the lock ends with it
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        return (yield)
