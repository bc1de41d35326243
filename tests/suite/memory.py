"""One line at the end: the peak memory of each worker. Tests of a module, and of one parameter set, run in one worker, which then drops its keys."""

from __future__ import annotations

import ctypes
import gc
import resource
from collections.abc import Generator
from typing import Any, Final

import pytest

_PEAKS: Final = pytest.StashKey[list[int]]()
_MODULE_SCOPES: Final = ("module", "package", "session")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux


def _give_back() -> None:
    """What the C library keeps of freed memory, where it is glibc: every thread that a test starts has a store of its own."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PEAKS] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups for `--dist loadgroup`: a module, or in it the tests of one value of a fixture that the module shares (a set's key)."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    module = item.nodeid.partition("::")[0]
    callspec: Any = getattr(item, "callspec", None)
    if callspec is None:
        return module
    shared = [
        f"{name}={callspec.indices[name]}"
        for name, scope in callspec._arg2scope.items()
        if scope.value in _MODULE_SCOPES
    ]
    return " ".join([module, *sorted(shared)])


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Generator[None, None, None]:
    """Modules and tests stay until the end: collections need not look at them again.

    pytest-xdist reads the group of a test off the end of its node id. Its 3.8 writes it to `_nodeid`, which pytest 9.2 does not have any more
    (every test is a group of its own, without a word), so that the ids have them here while the worker tells them.
    """
    gc.collect()
    gc.freeze()
    held: list[Any] = [item for item in session.items if getattr(session.config.option, "loadgroup", False)]
    plain = [getattr(item, "_id", None) for item in held]
    for item, identity in zip(held, plain, strict=True):
        if identity is not None:
            item._id = identity.parse(f"{identity}@{item.get_closest_marker('xdist_group').args[0]}")
    yield
    for item, identity in zip(held, plain, strict=True):
        if identity is not None:
            item._id = identity


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()  # keys in circles: sessions, clients
        _give_back()


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["peak_bytes"] = _peak_bytes()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if "peak_bytes" in getattr(node, "workeroutput", {}):
        node.config.stash[_PEAKS].append(node.workeroutput["peak_bytes"])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    peaks = config.stash[_PEAKS] or [_peak_bytes()]
    terminalreporter.write_line(f"peak memory of each worker: {', '.join(f'{peak / 1e9:.2f} GB' for peak in peaks)}")
