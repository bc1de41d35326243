"""Which file imports which, read from the sources: no circles, and the drawings of docs/explanation/architecture.md are true.

Run as a script it prints the rooms (packages) of `api` or others and the arrows between them; with `--write` it draws the page anew.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "explanation" / "architecture.md"
NAMESPACE: Final = "cloakwork"
_DRAWING: Final = re.compile(
    r"(?P<begin><!-- rooms of (?P<room>[\w.]+): made by tests/test_architecture.py -->).*?(?P<end><!-- rooms end -->)",
    re.DOTALL,
)

Arrows = Mapping[str, set[str]]


def modules(package: str) -> dict[str, Path]:
    """Files of a folder at the top of the repository by dotted name, without `cloakwork.`; `x.__init__` is x's own file."""
    files = (file for file in (ROOT / package).rglob("*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}


@cache
def arrows(package: str) -> dict[str, set[str]]:
    """From each module of the package to those of the same package that it imports, wherever in the file: also for types alone."""
    known = modules(package)
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, file in known.items():
        for target in _imported(ast.parse(file.read_text(encoding="utf-8"))):
            module = _resolved(target, known)
            if module is not None and module != name:
                found[name].add(module)
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "relative imports are not used here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _statements(parent: ast.AST) -> Iterator[ast.AST]:
    """Without a look at expressions, which are most of a tree and hold no imports."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(parent, name, None)
        for node in inner if isinstance(inner, list) else ():
            yield node
            yield from _statements(node)


def _resolved(target: str, known: Mapping[str, Path]) -> str | None:
    """The module that `import cloakwork.target` or `from cloakwork.tar import get` reads; None outside the package."""
    if not target.startswith(f"{NAMESPACE}."):
        return None
    parts = target.removeprefix(f"{NAMESPACE}.").split(".")
    for end in (len(parts), len(parts) - 1):
        for name in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if name in known:
                return name
    return None


def rooms(graph: Arrows, room: str) -> dict[str, set[str]]:
    """The arrows between what lies directly in a room: its modules, and its inner rooms as one each."""
    inner: defaultdict[str, set[str]] = defaultdict(set)
    for source, targets in graph.items():
        if not source.startswith(f"{room}."):
            continue
        child = _child(source, room)
        inner[child] |= {_child(target, room) for target in targets if target.startswith(f"{room}.")} - {child}
    return dict(inner)


def _child(module: str, room: str) -> str:
    return module.removeprefix(f"{room}.").partition(".")[0]


def circles(graph: Arrows) -> list[list[str]]:
    """Groups of two and more that reach each other: strongly connected components."""
    reached = {name: _reach(name, graph) for name in graph}
    groups = {frozenset({name, *(other for other in reached[name] if name in reached[other])}) for name in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reach(start: str, graph: Arrows) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def all_circles(package: str) -> dict[str, list[list[str]]]:
    """Circles in the package and in each room below it, by room; rooms without any are left out."""
    graph = arrows(package)
    names = {name.rpartition(".")[0] for name in graph}
    found = {room: circles(rooms(graph, room)) for room in sorted(names)}
    return {room: groups for room, groups in found.items() if groups}


def _node(name: str) -> str:
    """Words of Mermaid's own cannot be a node's name, but stand in its box."""
    return f"{name}_[{name}]" if name in ("class", "end", "graph", "style", "subgraph") else name


def mermaid(graph: Arrows) -> str:
    """A drawing as GitHub shows it, from who imports to what is imported. Arrows that follow from others are left out where there is no circle."""
    whole = bool(circles(graph))
    lines = ["flowchart TD"]
    for name, targets in sorted(graph.items()):
        implied = set().union(*(_reach(target, graph) for target in targets))
        shown = sorted(targets if whole else targets - implied)
        lines += [f"    {_node(name)} --> {_node(target)}" for target in shown]
    return "\n".join(lines)


def summary(package: str) -> str:
    graph, found = arrows(package), all_circles(package)
    lines = [
        f"{package}: {len(graph)} modules, {sum(map(len, graph.values()))} imports, {sum(map(len, found.values()))} circles"
    ]
    lines += [f"  in {room}: {', '.join(group)}" for room, groups in found.items() for group in groups]
    return "\n".join(lines)


# --- the drawings of docs/explanation/architecture.md ---


def drawn(page: str) -> str:
    """The page with every drawing made anew from the sources."""

    def block(found: re.Match[str]) -> str:
        room = found["room"]
        drawing = mermaid(rooms(arrows(room.partition(".")[0]), room))
        return f"{found['begin']}\n```mermaid\n{drawing}\n```\n{found['end']}"

    return _DRAWING.sub(block, page)


# --- tests ---


@pytest.mark.parametrize("package", ["api", "app", "fhe_core", "models", "training"])
def test_no_circles_not_even_for_types(package: str) -> None:
    assert arrows(package)
    assert all_circles(package) == {}


def test_the_drawings_are_those_of_the_sources() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {found["room"] for found in _DRAWING.finditer(page)} == {
        "api",
        "api.service",
        "app.cli",
        "fhe_core",
        "models",
    }
    assert drawn(page) == page, "run python tests/test_architecture.py --write"


ENGINE: Final = ROOT / "fhe_core" / "src"
# Rooms of the C++ engine and which other rooms they include; `client` holds the secrets.
INCLUDES: Final = {
    "core": set(),
    "reference": {"core"},
    "cpu": {"core"},
    "cuda": {"core"},
    "client": {"core", "cpu"},
    "wasm": {"core", "client"},
    "bindings": {"core", "reference", "cpu", "cuda", "client"},
}
_INCLUDE: Final = re.compile(r'^#include (?:"(?P<ours>[^"]+)"|<(?P<theirs>[^>]+)>)', re.MULTILINE)


def test_no_back_end_includes_what_holds_secrets() -> None:
    rooms_of_files = {file: file.relative_to(ENGINE).parts[0] for file in ENGINE.rglob("*") if file.is_file()}
    assert set(rooms_of_files.values()) == set(INCLUDES)
    for file, room in rooms_of_files.items():
        for match in _INCLUDE.finditer(file.read_text(encoding="utf-8")):
            target = match["ours"] or match["theirs"]
            if match["ours"] and "/" in target:
                assert target.partition("/")[0] in INCLUDES[room] | {room}, f"{file} includes {target}"
            assert room == "bindings" or not target.startswith(("pybind11", "Python.h")), f"{file} includes {target}"
            assert room in ("cuda", "bindings") or not target.startswith(("cuda", "cublas")), (
                f"{file} includes {target}"
            )


def test_circles_and_rooms_are_found() -> None:
    graph = {"a.x.one": {"a.y.two"}, "a.y.two": {"a.z"}, "a.z": {"a.x.three"}, "a.x.three": set(), "b": {"a.z"}}
    assert rooms(graph, "a") == {"x": {"y"}, "y": {"z"}, "z": {"x"}}
    assert circles(rooms(graph, "a")) == [["x", "y", "z"]]
    assert circles(graph) == []
    assert mermaid({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == "flowchart TD\n    a --> b\n    b --> c"
    assert mermaid({"end": {"b"}, "b": set()}) == "flowchart TD\n    end_[end] --> b"


def main(arguments: list[str]) -> None:
    if arguments == ["--write"]:
        PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    for package in arguments:
        sys.stdout.write(f"{summary(package)}\n{mermaid(rooms(arrows(package), package))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
