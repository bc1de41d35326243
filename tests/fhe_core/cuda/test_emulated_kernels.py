"""The CUDA kernels on the CPU: each emulate_*.cpp here is a program that runs kernels as they are, or their device functions lane by lane,
and compares the words with the reference. Compiled by the machine's C++ compiler into build/emulators, once per state of the sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
ENGINE = REPOSITORY / "fhe_core"
BENCHMARKS = REPOSITORY / "tests/benchmarks/cuda"
FOLDERS = [ENGINE / "include", ENGINE / "src", ENGINE / "src/cuda/emulation", BENCHMARKS]
OPTIONS = ["-std=c++20", "-O1", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-Wno-unknown-pragmas"]
FLAGS = [*OPTIONS, *(f"-I{folder}" for folder in FOLDERS)]
REFERENCE = [f"src/common/{stem}.cpp" for stem in ("reference", "expand", "chacha20", "fft")]
MEMORY = [f"src/cuda/{stem}.cpp" for stem in ("runtime", "device_memory", "host_memory", "host_copies")]
EMULATORS = {  # program -> sources of the engine, by their names under fhe_core
    "emulate_blind_rotate": REFERENCE,
    "emulate_two_limbs": REFERENCE,
    "emulate_kernels": REFERENCE,
    "emulate_rounded": REFERENCE,
    "emulate_clusters": REFERENCE,
    "emulate_extended": REFERENCE,
    "emulate_linear": [],
    "emulate_linear_wgmma": MEMORY,
    "emulate_gather": ["src/cuda/linear.cu", "src/cuda/linear_wgmma.cu", *MEMORY],
}
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or ""


def _digest(sources: list[Path]) -> str:
    """Of everything that may be compiled in, and of how."""
    compiler = subprocess.run([COMPILER, "--version"], capture_output=True, timeout=60, check=True).stdout
    digest = hashlib.sha256(compiler + " ".join(FLAGS).encode())
    headers = [
        path for folder in FOLDERS for path in sorted(folder.rglob("*")) if path.suffix in (".hpp", ".cuh", ".h")
    ]
    for path in [*sources, *headers]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _compiled(name: str) -> Path:
    sources = [HERE / f"{name}.cpp", *(ENGINE / source for source in EMULATORS[name])]
    folder = REPOSITORY / "build" / "emulators"
    program = folder / f"{name}-{_digest(sources)}"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{name}-*"):
        old.unlink()
    unfinished = program.with_suffix(".part")
    command = [COMPILER, *FLAGS, "-xc++", *map(str, sources), "-pthread", "-o", str(unfinished)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr[-20000:]}"
    unfinished.rename(program)
    return program


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    """All of them, two at a time; the first error fails every test with the compiler's words."""
    if not COMPILER:
        pytest.skip("no C++ compiler on this machine")
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(EMULATORS, pool.map(_compiled, EMULATORS), strict=True))


def test_every_emulator_is_run() -> None:
    assert {path.stem for path in HERE.glob("emulate_*.cpp")} == set(EMULATORS)


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", EMULATORS)
def test_emulated(programs: dict[str, Path], name: str) -> None:
    result = subprocess.run([programs[name]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("wrong") >= 2  # it compared words, and said so
