"""How much memory there is where a cgroup gives less than the machine has, read from made-up files of the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloakwork.fhe_core.memory import is_limited, memory_bytes, memory_kills

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def kernel(root: Path, lines: str, **files: str) -> Path:
    """`files`: below sys/fs/cgroup, with two underscores for a slash."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        ("0::/a.slice/b\n", {"a.slice__b__memory_dot_max": "max\n", "a.slice__memory_dot_max": "1000\n"}),
        ("0::/\n", {"memory_dot_max": "1000\n"}),  # a container with a namespace of its own
        ("0::/../other\n", {"memory_dot_max": "1000\n"}),
        ("3:cpu,memory:/a\n0::/\n", {"memory__a__memory_dot_limit_in_bytes": "1000\n"}),
        ("3:memory:/docker/x\n", {"memory__memory_dot_limit_in_bytes": "1000\n"}),  # it sees the host's path
    ],
)
def test_the_least_limit_from_within_outwards_counts(lines: str, files: dict[str, str], tmp_path: Path):
    root = kernel(tmp_path, lines, **files)
    assert memory_bytes(root) == 1000 and is_limited(root)


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        ("0::/a\n", {"a__memory_dot_max": "max\n"}),
        ("3:memory:/a\n", {"memory__a__memory_dot_limit_in_bytes": "9223372036854771712\n"}),
        ("3:cpu:/a\n", {"memory__a__memory_dot_limit_in_bytes": "1000\n"}),
        ("", {}),
    ],
)
def test_without_a_limit_it_is_the_machines(lines: str, files: dict[str, str], tmp_path: Path):
    root = kernel(tmp_path, lines, **files)
    assert memory_bytes(root) == MACHINE and not is_limited(root)
    assert memory_bytes(tmp_path / "nothing") == MACHINE


def test_kills_are_those_of_the_own_group(tmp_path: Path):
    second = kernel(tmp_path / "2", "0::/a\n", a__memory_dot_events="low 0\noom 4\noom_kill 3\n")
    first = kernel(tmp_path / "1", "3:memory:/a\n", memory__a__memory_dot_oom_control="under_oom 0\noom_kill 2\n")
    assert (memory_kills(second), memory_kills(first), memory_kills(tmp_path)) == (3, 2, 0)
