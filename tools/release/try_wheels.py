"""`make test-wheels`: each wheel of dist/ that can run here, and the source distribution, installed from the file into a fresh environment, and used.

Wheels for AArch64 run under qemu (tools/release/emulated.py). What is not run is said. Ends with 1 where a wheel failed or none was run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emulated import emulated_python, missing
from variants import PYTHONS
from wheels import ROOT, find_python

_KEPT: Final = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")  # and what pip is told
_SECONDS: Final = 900


@dataclass(frozen=True)
class Wheel:
    path: Path
    version: str
    python: str  # 3.12
    platform: str  # of the name: manylinux_2_34_x86_64

    @property
    def machine(self) -> str:
        return "aarch64" if self.platform.endswith("aarch64") else "x86_64"


@dataclass(frozen=True)
class Place:
    """Where a wheel is installed. Args: python: the command; environment: its variables."""

    python: str
    environment: dict[str, str]
    folder: Path

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", nargs="*", type=Path, help="default: all of dist/")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "test-wheels")
    options = parser.parse_args(arguments)
    paths = options.wheels or sorted(path for end in ("whl", "tar.gz") for path in (ROOT / "dist").glob(f"*.{end}"))
    ran, failed = 0, 0
    for wheel in map(parsed, paths):
        place = install(wheel, options.build)
        if isinstance(place, str):
            print(f"not run: {wheel.path.name}: {place}", file=sys.stderr)
            continue
        problems = use(wheel, place)
        ran, failed = ran + 1, failed + bool(problems)
        print(f"{'failed' if problems else 'passed'}: {wheel.path.name}", flush=True)
        for problem in problems:
            print(f"  {problem}", file=sys.stderr)
    return 1 if failed or not ran else 0


def parsed(path: Path) -> Wheel:
    """By the name of the file; a source distribution is built for this machine and its oldest Python."""
    if archive := re.fullmatch(r"cloakwork-([^-]+)\.tar\.gz", path.name):
        return Wheel(path.resolve(), archive[1], PYTHONS[0], f"any_{platform.machine()}")
    match = re.fullmatch(r"cloakwork-([^-]+)-cp(\d)(\d+)-cp\d+-(.+)\.whl", path.name)
    if match is None:
        raise SystemExit(f"{path}: expected the name of a wheel of cloakwork")
    return Wheel(path.resolve(), match[1], f"{match[2]}.{match[3]}", match[4].split(".")[0])


def install(wheel: Wheel, build: Path) -> Place | str:
    """A fresh environment with the wheel and what it needs; or why there is none."""
    folder = build / wheel.path.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("PIP_")}
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    if wheel.machine == platform.machine():
        interpreter = find_python(wheel.python)
        if interpreter is None:
            return f"there is no Python {wheel.python}"
        subprocess.run([str(interpreter), "-m", "venv", str(folder / "venv")], check=True)
        python = folder / "venv" / "bin" / "python"
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        variables = {**environment, **(_for_sources(folder) if wheel.path.suffix == ".gz" else {})}
        subprocess.run([*pip, *constraints, str(wheel.path)], check=True, env=variables, stderr=subprocess.DEVNULL)
        return Place(str(python), environment, folder)
    if wheel.machine != "aarch64":
        return f"it is for {wheel.machine}"
    if absent := missing():
        return f"without {', '.join(absent)} it cannot be emulated"
    command, version = emulated_python(build / "emulated")
    if version != wheel.python:
        return f"the emulated Python is {version}"
    target = folder / "site"
    glibcs = [f"manylinux_2_{minor}_aarch64" for minor in range(17, 37)] + ["manylinux2014_aarch64"]
    options = ["--only-binary", ":all:", "--python-version", version, "--target", str(target)]
    options += [word for name in glibcs for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run(
        [*pip, *constraints, *options, str(wheel.path)], check=True, env=environment, stderr=subprocess.DEVNULL
    )
    # Processes that cloakwork starts go through the emulator too.
    (target / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(command)!r}\n", encoding="utf-8")
    return Place(str(command), {**environment, "PYTHONPATH": str(target)}, folder)


def _for_sources(folder: Path) -> dict[str, str]:
    """Variables under which a source distribution is built soon, and without git: the archive has to be enough."""
    programs = folder / "programs"
    programs.mkdir()
    git = programs / "git"
    git.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    git.chmod(0o755)
    defines = "CLOAKWORK_CUDA=OFF;CLOAKWORK_KERNELS=native"
    return {"PATH": f"{programs}:{os.environ['PATH']}", "SKBUILD_CMAKE_DEFINE": defines}


def use(wheel: Wheel, place: Place) -> list[str]:
    """Tells what went wrong, a line each."""
    command = ("-m", "cloakwork.app.cli")
    checks = [
        ("--version", place.run(*command, "--version"), 0, re.escape(wheel.version)),
        ("one look-up", place.run(*command, "demo", "lookup"), 0, "all correct"),
        ("two processes", place.run(*command, "demo", "iris"), 0, "100.0 %"),
        (
            "an exception of the engine",
            place.run(*command, "demo", "lookup", CLOAKWORK_CPU="nonsense"),
            None,
            "expected baseline, avx2 or avx512",
        ),
        ("devices", place.run(*command, "devices"), 0, "cpu"),
        ("vector instructions", place.run("-c", _VECTORS), 0, "as the processor"),
        ("extras that are missing", place.run("-c", _EXTRAS), 0, "3 extras"),
        ("the service", place.run(*command, "serve"), 1, "the service needs"),
        ("files", place.run("-c", _FILES), 0, "complete"),
    ]
    problems = []
    for name, result, status, expected in checks:
        output = result.stdout + result.stderr
        if (status is not None and result.returncode != status) or not re.search(expected, output):
            problems.append(f"{name}: status {result.returncode}, expected '{expected}' in: {output[-400:]}")
    return problems


_VECTORS: Final = """
import platform
from cloakwork.fhe_core._engine import cpu_features
flags = open("/proc/cpuinfo").read().split() if platform.machine() == "x86_64" else []
best = "avx512" if "avx512vl" in flags and "avx512bw" in flags else "avx2" if "avx2" in flags else "baseline"
assert cpu_features() == best, (cpu_features(), best)
print("as the processor has them:", best)
"""

_EXTRAS: Final = """
import importlib
count = 0
for module, name, extra in (
    ("app.client", "Client", "client"),
    ("training.pytorch", "", "train"),
    ("estimators", "RandomForestClassifier", "sklearn"),
):
    try:
        found = importlib.import_module(f"cloakwork.{module}")
        getattr(found, name)
    except Exception as error:
        assert f"[{extra}]" in str(error), (module, error)
        count += 1
print(count, "extras")
"""

_FILES: Final = """
from importlib.metadata import distribution
names = {str(file) for file in distribution("cloakwork").files}
folder = "cloakwork"
for name in ("fhe_core/py.typed", "fhe_core/_engine.pyi", "models/zoo/iris-tree.clkm"):
    assert f"{folder}/{name}" in names, name
for text in ("LICENSE", "NOTICE", "pybind11.txt", "llvm.txt"):
    assert any(".dist-info/licenses/" in name and name.endswith(f"/{text}") for name in names), text
assert not [name for name in names if name.endswith((".cpp", ".hpp", ".cu"))]
print("complete, with the page" if f"{folder}/api/page/client.wasm" in names else "complete, without the page")
"""

if __name__ == "__main__":
    raise SystemExit(main())
