"""Configures the engine by CMake, many times in one folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from requirements import needs

REPOSITORY = Path(__file__).resolve().parents[1]


def configure(
    build: Path, *options: str, source: Path = REPOSITORY / "fhe_core", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Configures in a folder that others may have used: C++ is known there; what they found out about CUDA, and their options, are forgotten."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    cmake, ninja = shutil.which("cmake", path=path), shutil.which("ninja", path=path)
    pybind11 = pytest.importorskip("pybind11")
    needs(cmake and ninja, "CMake and Ninja are not installed: 'make install' installs them")
    for known in build.glob("CMakeFiles/*/*CUDA*"):
        shutil.rmtree(known) if known.is_dir() else known.unlink()
    forgotten = ["-U*CUDA*", "-UCLOAKWORK_CARD_PATHS", "-UCLOAKWORK_KERNELS", "-UCMAKE_IGNORE_PATH"]
    command = [str(cmake), "-GNinja", "-S", str(source), "-B", str(build), *forgotten]
    settings = [f"-DCMAKE_MAKE_PROGRAM={ninja}", f"-DPython_EXECUTABLE={sys.executable}"]
    settings += [f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"]
    left_out = ("CUDACXX", "CUDAHOSTCXX", "SKBUILD_CMAKE_DEFINE")
    ours = {key: value for key, value in os.environ.items() if key not in left_out}
    return subprocess.run(
        [*command, *settings, *options],
        env={**ours, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
