"""Fixed entropy for every test, by its name; a test that asks the operating system for randomness without being marked for it fails.

What is random in a test follows from the test's name, and in a fixture from the fixture's name and parameter, so that its keys do not depend on the
test that happens to come first. Two things stay random: processes that a test starts, and libraries with a generator of their own (TLS).
`os_entropy` marks the tests that use these; this process then has the system's entropy too, and such a test compares nothing statistical.
Of a generator that a module makes at import each test and fixture draws from the beginning, whichever tests ran before it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import multiprocessing.util
import os
import random
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

try:
    from cloakwork.fhe_core import _engine
except ImportError:  # reported by the tests that need it
    _engine = None  # type: ignore[assignment]

_URANDOM: Final = os.urandom
# Programs that make keys, salts or tokens of their own.
_PROGRAMS: Final = ("python", "cloakwork", "node", "chrom", "caddy", "nginx", "ray")
_SHELLS: Final = ("bash", "sh")
_DEVICES: Final = ("/dev/urandom", "/dev/random")


class Stream:
    """Bytes that follow from a name."""

    def __init__(self, name: str) -> None:
        self.key = hashlib.sha256(f"entropy of {name}".encode()).digest()
        self._calls = itertools.count()  # threads of a service share a stream

    def read(self, count: int) -> bytes:
        return hashlib.shake_256(self.key + next(self._calls).to_bytes(8, "big")).digest(count)


class Entropy:
    """What this process takes for the operating system's randomness, and who asked the system itself."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.asked: list[str] = []  # since the last test or fixture began

    def use(self, name: str | None) -> None:
        """All that is random follows from the name; None: from the operating system."""
        self.name = name
        stream = None if name is None else Stream(name)
        read = _URANDOM if stream is None else stream.read
        os.urandom = random._urandom = read  # type: ignore[attr-defined]  # secrets, SystemRandom, uuid4 and NumPy's fresh generators
        seed = int.from_bytes(read(4), "big")
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - libraries that draw from it
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)
        if _engine is not None:
            _engine.testing.replace_entropy(None if stream is None else stream.key)

    @contextlib.contextmanager
    def named(self, name: str | None) -> Iterator[None]:
        """As `use`; what comes afterwards has a stream that follows from both names."""
        before = self.name
        self.use(name)
        try:
            yield
        finally:
            self.use(None if before is None else f"{before}, after {name}")


_ENTROPY: Final = Entropy()
_ASKED: dict[int, str] = {}  # identity of a fixture's definition -> why it counts as asking


_BEGINNINGS: Final[dict[tuple[str, str], Any]] = {}  # module and name of a generator -> its state after the import


def _begin_anew(node: Any) -> None:
    """The generators of a module. Args: node: a test, or the request of a fixture."""
    try:
        module = node.module
    except AttributeError:  # of a fixture of the session
        return
    for name, generator in vars(module).items():
        if isinstance(generator, np.random.Generator):
            state = _BEGINNINGS.setdefault((module.__name__, name), generator.bit_generator.state)
            generator.bit_generator.state = state


def _starts(executable: object, command: object) -> str | None:
    """What a command starts that draws randomness, or None."""
    given = [command] if isinstance(command, str | bytes | os.PathLike) else list(command or ())  # type: ignore[call-overload]
    words = [
        os.fsdecode(word)
        for word in (executable or given[0], *given[1:])
        if isinstance(word, str | bytes | os.PathLike)
    ]
    program = Path(words[0]).name
    if program in _SHELLS and any(name in word for word in words for name in ("cloakwork", "python")):
        return f"a process of {program}"
    return f"a process of {program}" if program.startswith(_PROGRAMS) else None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        started = _starts(arguments[0], arguments[1])
        if started is not None:
            _ENTROPY.asked.append(started)
    elif event in ("os.fork", "os.posix_spawn"):
        _ENTROPY.asked.append(event)
    elif event == "open" and arguments[0] in _DEVICES:
        _ENTROPY.asked.append(arguments[0])


def pytest_configure() -> None:
    if _engine is not None and not hasattr(getattr(_engine, "testing", None), "entropy_requests"):
        raise pytest.UsageError(f"{_engine.__file__} is older than these tests; run 'make install'")
    sys.addaudithook(_watch)
    spawn = multiprocessing.util.spawnv_passfds

    def watched(path: bytes, arguments: Any, descriptors: Any) -> int:
        _ENTROPY.asked.append("a process of multiprocessing")
        return spawn(path, arguments, descriptors)

    multiprocessing.util.spawnv_passfds = watched


def _is_marked(node: Any) -> bool:
    return node.get_closest_marker("os_entropy") is not None


def _name(node: Any, name: str) -> str | None:
    return None if _is_marked(node) else name


@contextlib.contextmanager
def _notices(item: pytest.Item) -> Iterator[None]:
    """Fails the test if this asks the operating system for randomness, and the test is not marked for it."""
    _ENTROPY.asked.clear()
    requests = _engine_requests()
    yield
    asked = [*_ENTROPY.asked, *["the engine"] * (_engine_requests() - requests)]
    definitions = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - pytest has no other way
    for name in getattr(item, "fixturenames", ()):
        asked += [
            f"{reason} (fixture {name})" for each in definitions.get(name, ()) if (reason := _ASKED.get(id(each)))
        ]
    if asked and not _is_marked(item):
        pytest.fail(
            f"asks the operating system for randomness: {', '.join(sorted(set(asked)))}; mark the test `os_entropy` if it "
            "compares nothing statistical, or do without (tests/suite/entropy.py)",
            pytrace=False,
        )


def _engine_requests() -> int:
    return 0 if _engine is None else int(_engine.testing.entropy_requests())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    _begin_anew(item)
    with _ENTROPY.named(_name(item, item.nodeid)), _notices(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, object, object]:
    """What a fixture asks the system for, every test that uses it asks for."""
    name = f"{request.node.nodeid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]"
    before, requests = len(_ENTROPY.asked), _engine_requests()
    _begin_anew(request)
    with _ENTROPY.named(_name(request.node, name)):
        try:
            return (yield)
        finally:
            _ASKED.pop(id(fixturedef), None)  # of the module before
            if len(_ENTROPY.asked) > before:
                _ASKED[id(fixturedef)] = _ENTROPY.asked[before]
            elif _engine_requests() > requests:
                _ASKED[id(fixturedef)] = "the engine"
