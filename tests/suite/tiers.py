"""Which tests are collected: those of a tier, and those that need a card only where one is.

A tier is a make target: `test` (what a contributor runs; every test without a mark), `all` (what CI runs), `release`. A test or parameter of a
later tier says so: `@pytest.mark.tier("all")`. Tests that are left out are not made, so that they cost no collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

TIERS = ("test", "all", "release")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cloakwork")
    group.addoption("--tier", choices=TIERS, default="test", help="run the tests of this tier and the tiers before it")
    group.addoption("--beyond", choices=TIERS, default=None, help="leave out this tier and the tiers before it")
    group.addoption("--gpu", action="store_true", help="collect tests that need a card, and fail if there is none")


def cuda_unavailable_reason() -> str | None:
    """Why no CUDA device can be used, or None when one can."""
    try:
        from cloakwork.fhe_core import _engine
    except ImportError as error:
        return f"the engine is not installed: {error}"
    if not hasattr(_engine, "CudaKey"):
        return "this build has no CUDA back end"
    count = getattr(_engine, "cuda_device_count", lambda: 0)()
    return None if count else "no CUDA device on this machine"


class Selection:
    """Tells by its marks whether a test is wanted in this run."""

    def __init__(self, config: pytest.Config) -> None:
        self.last = TIERS.index(config.getoption("tier"))
        beyond = config.getoption("beyond")
        self.beyond = -1 if beyond is None else TIERS.index(beyond)
        reason = cuda_unavailable_reason()
        if config.getoption("gpu") and reason is not None:
            raise pytest.UsageError(f"--gpu: {reason}")
        self.has_card = reason is None

    def may_be_wanted(self, marks: Iterable[Any]) -> bool:
        """Whether these marks leave a test in: more marks can only take it out, or into a later tier."""
        marks = list(marks)
        if not self.has_card and any(mark.name == "gpu" for mark in marks):
            return False
        return tier_of(marks) <= self.last

    def is_wanted(self, marks: Iterable[Any]) -> bool:
        marks = list(marks)
        return self.may_be_wanted(marks) and tier_of(marks) > self.beyond


def tier_of(marks: Iterable[Any]) -> int:
    """The index of the last tier that the marks name; 0 without one."""
    return max((TIERS.index(mark.args[0]) for mark in marks if mark.name == "tier"), default=0)


_SELECTION = pytest.StashKey[Selection]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SELECTION] = Selection(config)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> list[pytest.Item] | None:
    """Makes no test of a function whose own marks, or those of its module, leave it out."""
    if not (callable(obj) and name.startswith("test")):
        return None
    marks = [*collector.iter_markers(), *getattr(obj, "pytestmark", ())]
    return None if collector.config.stash[_SELECTION].may_be_wanted(marks) else []


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Drops parameters whose marks leave them out, whichever plugin adds them."""
    selection, parametrize = metafunc.config.stash[_SELECTION], metafunc.parametrize

    def filtered(argnames: Any, argvalues: Any, *args: Any, **options: Any) -> None:
        values = list(argvalues)
        kept = [i for i, value in enumerate(values) if selection.may_be_wanted(getattr(value, "marks", ()))]
        ids = options.get("ids")
        if isinstance(ids, Sequence) and len(kept) < len(values):
            options["ids"] = [ids[i] for i in kept]
        parametrize(argnames, [values[i] for i in kept], *args, **options)

    metafunc.parametrize = filtered  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what several marks together leave out, and tests whose parameters all went."""
    selection, kept, left = config.stash[_SELECTION], [], []
    for item in items:
        empty = any(mark.name == "skip" and "got empty parameter set" in str(mark.kwargs) for mark in item.own_markers)
        (left if empty or not selection.is_wanted(item.iter_markers()) else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
