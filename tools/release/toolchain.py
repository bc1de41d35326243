"""What a build of the engine is told for each variant: compilers, the platform of the wheel, the name of the extension module."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from variants import OLDEST_GLIBC, Variant


def cuda_release() -> str | None:
    """Returns that of nvcc, such as "13.0"; None where there is none that runs."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return None
    version_text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    match = re.search(r"release (\d+\.\d+)", version_text)
    return match[1] if match else None


def zig_toolchain(folder: Path, machine: str) -> Path:
    """A toolchain file for CMake: clang of the wheel `ziglang`, its libc++ linked in, symbols of glibc as old as OLDEST_GLIBC."""
    import ziglang  # type: ignore[import-not-found,import-untyped,unused-ignore]

    zig = Path(ziglang.__file__).parent / "zig"
    folder.mkdir(parents=True, exist_ok=True)
    commands = {"ar": "ar", "ranlib": "ranlib", f"c++-{machine}": f"c++ -target {machine}-linux-gnu.{OLDEST_GLIBC}"}
    for name, command in commands.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{zig}" {command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    lines = [
        f"set(CMAKE_CXX_COMPILER {folder}/c++-{machine})",
        f"set(CMAKE_AR {folder}/ar)",
        f"set(CMAKE_RANLIB {folder}/ranlib)",
        'set(CMAKE_CXX_FLAGS_INIT "-fno-sanitize=all")',  # zig's own default checks for undefined behaviour
    ]
    if machine != os.uname().machine:
        lines += ["set(CMAKE_SYSTEM_NAME Linux)", f"set(CMAKE_SYSTEM_PROCESSOR {machine})"]
    path = folder / f"zig-{machine}.cmake"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def build_environment(variant: Variant, python: str, tools: Path, cuda_architectures: str) -> dict[str, str]:
    """Variables of one build. Args: python: such as "3.12"; tools: where toolchain files go."""
    tag = python.replace(".", "")
    defines = {"CLOAKWORK_KERNELS": "all", "CLOAKWORK_CUDA": "ON" if variant.cuda else "OFF"}
    defines["CLOAKWORK_KERNEL_SETS"] = "shipped"
    if variant.compiler == "zig":
        defines["CMAKE_TOOLCHAIN_FILE"] = str(zig_toolchain(tools, variant.machine))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if variant.is_crossed:
        suffix = f".cpython-{tag}-{variant.machine}-linux-gnu.so"
        defines["PYTHON_MODULE_EXTENSION"] = suffix
        environment |= {"_PYTHON_HOST_PLATFORM": f"linux-{variant.machine}", "SETUPTOOLS_EXT_SUFFIX": suffix}
    if variant.cuda:
        environment["CUDAARCHS"] = cuda_architectures  # a list: SKBUILD_CMAKE_DEFINE is cut at every semicolon
    environment["SKBUILD_CMAKE_DEFINE"] = ";".join(f"{name}={value}" for name, value in defines.items())
    return environment
