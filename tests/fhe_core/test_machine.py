"""How much memory there is where a cgroup gives less than the machine has, read from made-up files of the kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from requirements import needs

from cloakwork.fhe_core.machine import is_limited, memory_bytes, memory_kills

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


# --- what is left of it, as the engine asks in C++ before it expands a key ---

_MIB = 1 << 20
_SOURCES = Path(__file__).parents[2] / "fhe_core" / "src"


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], int]:
    """`available_memory` of a root, by a program that has nothing else."""
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    needs(compiler, "no C++ compiler")
    folder = tmp_path_factory.mktemp("left")
    (folder / "main.cpp").write_text(
        '#include <iostream>\n#include "cpu/available_memory.hpp"\n'
        "int main(int, char** words) { const auto left = fhe_core::cpu::available_memory(words[1]); std::cout << (left ? long(*left) : -1); }\n"
    )
    sources = [folder / "main.cpp", _SOURCES / "cpu" / "available_memory.cpp"]
    subprocess.run(
        [str(compiler), "-std=c++20", f"-I{_SOURCES}", *map(str, sources), "-o", str(folder / "left")], check=True
    )
    return lambda root: int(subprocess.run([folder / "left", root], check=True, capture_output=True, text=True).stdout)


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    ("lines", "files", "expected"),
    [
        ("0::/a\n", {"a__memory_dot_max": "max\n", "a__memory_dot_current": "5\n"}, 800 * _MIB),
        ("0::/a\n", {"a__memory_dot_max": f"{500 * _MIB}\n", "a__memory_dot_current": f"{100 * _MIB}\n"}, 400 * _MIB),
        (  # files that were read are given up when memory is wanted
            "0::/a/b\n",
            {
                "a__memory_dot_max": f"{500 * _MIB}\n",
                "a__memory_dot_current": f"{450 * _MIB}\n",
                "a__memory_dot_stat": f"anon 7\ninactive_file {200 * _MIB}\nactive_file {50 * _MIB}\n",
            },
            300 * _MIB,
        ),
        ("0::/a\n", {"a__memory_dot_max": "10\n", "a__memory_dot_current": "20\n"}, 0),
        (  # version 1, in a container that sees the host's path
            "3:cpu,memory:/docker/x\n0::/\n",
            {
                "memory__memory_dot_limit_in_bytes": f"{500 * _MIB}\n",
                "memory__memory_dot_usage_in_bytes": f"{100 * _MIB}\n",
                "memory__memory_dot_stat": f"inactive_file 1\ntotal_inactive_file {50 * _MIB}\n",
            },
            450 * _MIB,
        ),
        ("3:memory:/a\n", {"memory__a__memory_dot_limit_in_bytes": "9223372036854771712\n"}, 800 * _MIB),
        ("nonsense\n", {}, 800 * _MIB),
    ],
)
def test_the_engine_asks_what_cgroups_leave(
    left: Callable[[Path], int], lines: str, files: dict[str, str], expected: int, tmp_path: Path
):
    root = kernel(tmp_path, lines, **files)
    (root / "proc/meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {800 * 1024} kB\n")
    assert left(root) == expected
    assert left(tmp_path / "nothing") == -1, "the system does not tell"


def test_the_engine_reads_nothing_by_streams_of_the_library() -> None:
    """Where the engine is linked with a static C++ library and NumPy brings a shared one, numbers that streams read are not stored: a machine with
    128 GiB had none left."""
    sources = [path for ending in ("*.cpp", "*.hpp", "*.cu", "*.cuh") for path in _SOURCES.rglob(ending)]
    assert len(sources) > 100
    named = [
        path for path in sources if re.search(r"#include <(?:fstream|sstream|iostream|istream)>", path.read_text())
    ]
    assert not [path for path in named if "wasm" not in path.parts], "use C's functions and std::from_chars"
