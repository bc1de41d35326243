"""Mutants, and the copy of a checkout in which they are applied, built and tested."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PACKAGES: Final = ("api", "app", "models", "training")  # beside fhe_core, whose engine is built
WEB_BUILT: Final = ("web/dist", "api/page")  # by `make web`
# Optimising while linking takes longer than compiling what a mutant changes.
ENGINES: Final = {
    "engine": ("-DCLOAKWORK_CUDA=OFF",),
    "emulated": ("-DCLOAKWORK_CUDA=EMULATE", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"),
}
STAGE_SECONDS: Final = 3 * 3600
HUNG: Final = 124  # our own status for a stage that took longer, which counts as a failure
# Errors of pytest and of its call, and signals that somebody else sends: these say nothing of the mutant.
NOBODYS_FAULT: Final = (3, 4, -signal.SIGINT, -signal.SIGKILL, -signal.SIGTERM)


class NotRunError(Exception):
    """Says why a mutant could not be judged."""


@dataclass(frozen=True)
class Mutant:
    """One change that tests should notice."""

    name: str
    file: str
    old: str  # occurs exactly once in the file
    new: str
    breaks: str  # what goes wrong with it
    room: tuple[str, ...]  # files and folders of tests that should notice
    needs: str = ""  # "emulated": kernels of the CUDA back end, which only the engine of `make test-emulated` runs here

    @property
    def builds(self) -> str:
        """What must be built again: an engine, the client for browsers, or nothing."""
        if self.file.startswith("fhe_core/src/"):
            return self.needs or "engine"
        return "web" if self.file.startswith(("web/src/", "web/page/")) else ""

    def apply_to(self, text: str) -> str:
        if text.count(self.old) != 1:
            raise NotRunError(f"expected the old text once in {self.file}, found it {text.count(self.old)} times")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Stage:
    """One run of pytest."""

    name: str
    paths: tuple[str, ...]
    options: tuple[str, ...]
    workers: int  # 0: in pytest's own process
    engine: str = "engine"  # or "emulated"


def read_mutants() -> list[Mutant]:
    with (HERE / "mutants.toml").open("rb") as file:
        rows = tomllib.load(file)["mutant"]
    mutants = [Mutant(**{**row, "room": tuple(row["room"])}) for row in rows]
    assert len({each.name for each in mutants}) == len(mutants), "two mutants have the same name"
    return mutants


class Copy:
    """A copy of a checkout's files in which mutants are applied, with an engine and a client for browsers built from it."""

    def __init__(self, checkout: Path, work: Path, jobs: int) -> None:
        self.checkout, self.work, self.jobs = checkout, work, jobs
        self.root = work / "checkout"
        self._stale: set[str] = set()  # what was built from other sources than are there now
        self._linked = ""  # the engine that Python finds
        self.report = work / "report.txt"
        bin_folder = Path(sys.executable).parent
        self.environment = {
            **os.environ,
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{work / 'tree'}{os.pathsep}{HERE}",
            "MUTANT_REPORT": str(self.report),
            "OMP_WAIT_POLICY": "PASSIVE",
            "CCACHE_BASEDIR": str(self.root),
        }
        data = checkout.parent / "shared" / "data"
        if data.is_dir():
            self.environment.setdefault("CLOAKWORK_DATA", str(data))

    def refresh(self) -> None:
        """Copies what differs from the checkout, and removes what is no longer in it. A repository of its own, since tests ask git for its files."""
        listed = _output("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=self.checkout)
        names = {name for name in listed.split("\0") if name and (self.checkout / name).is_file()}
        self.root.mkdir(parents=True, exist_ok=True)
        if not (self.root / ".git").exists():
            self.run("git", "init", "--quiet")
        for name in _output("git", "ls-files", "-z", cwd=self.root).split("\0"):
            if name and name not in names:
                (self.root / name).unlink(missing_ok=True)
        for name in names:
            source, target = self.checkout / name, self.root / name
            if not target.exists() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        self.run("git", "add", "--all")
        for name in WEB_BUILT:
            if (self.checkout / name).is_dir():
                shutil.copytree(self.checkout / name, self.root / name, dirs_exist_ok=True)
        modules = self.root / "web" / "node_modules"
        if not modules.exists() and (self.checkout / "web" / "node_modules").is_dir():
            modules.symlink_to(self.checkout / "web" / "node_modules")

    def has_web(self) -> bool:
        return (self.root / "web/dist/client.wasm").exists() and (self.root / "web/node_modules").exists()

    def build(self, what: str) -> None:
        if what in ENGINES:
            self._build_engine(what)
        elif what == "web":
            wasm = (self.root / "web/dist/client.wasm").read_bytes()
            for script in ("build", "page"):
                self.run("npm", "run", "--silent", script, folder="web")
            (self.root / "web/dist/client.wasm").write_bytes(wasm)
            (self.root / "api/page/client.wasm").write_bytes(wasm)

    def _build_engine(self, name: str) -> None:
        folder = self.work / name
        if not (folder / "build.ninja").exists():
            pybind11 = _output(sys.executable, "-m", "pybind11", "--cmakedir", cwd=self.root).strip()
            self.run(
                *("cmake", "-S", "fhe_core", "-B", str(folder), "-G", "Ninja"),
                *(*ENGINES[name], "-DCLOAKWORK_KERNELS=native", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF"),
                *(f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11}"),
            )
        self.run("cmake", "--build", str(folder), "--parallel", str(self.jobs))
        self._linked = ""

    def _link(self, name: str) -> None:
        """The tree where Python finds cloakwork, as the Makefile makes it for engines that are not installed."""
        if self._linked == name:
            return
        self._linked = name
        tree = self.work / "tree" / "cloakwork"
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "fhe_core").mkdir(parents=True)
        core = self.root / "fhe_core"
        for each in (*PACKAGES, *(path.name for path in (self.root / "cloakwork").glob("*.py"))):
            (tree / each).symlink_to(self.root / (each if each in PACKAGES else f"cloakwork/{each}"))
        packages = [path.parent for path in core.glob("*/__init__.py")]
        engines = (self.work / name).glob("_engine*.so")
        for path in [*core.glob("*.py"), core / "tools", *packages, *engines]:
            (tree / "fhe_core" / path.name).symlink_to(path)

    @contextlib.contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """The copy with the mutant applied and built; afterwards without it, and not yet built."""
        path = self.root / mutant.file
        if not path.exists():
            raise NotRunError(f"{mutant.file} is not in the checkout")
        if mutant.builds == "web" and not self.has_web():
            raise NotRunError("the client for browsers is not built in the checkout: run 'make web' there")
        original = path.read_text(encoding="utf-8")
        _write(path, mutant.apply_to(original))
        self._stale.add(mutant.builds)
        try:
            self.build_stale()
            yield
        finally:
            _write(path, original)
            self._stale.add(mutant.builds)

    def build_stale(self) -> None:
        """Builds what no longer fits its sources, also what the mutant before left."""
        for what in sorted(self._stale):
            self.build(what)
            self._stale.discard(what)

    def run(self, *command: str, folder: str = ".") -> None:
        """Raises: NotRunError with the end of what the command said."""
        done = subprocess.run(command, cwd=self.root / folder, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise NotRunError(f"{' '.join(command[:3])} failed: {(done.stdout + done.stderr)[-2000:]}")

    def failures(self, stage: Stage, stop: bool = True) -> list[str]:
        """The tests of a stage that fail, until the first one; a process that dies names the test that it ran."""
        self.report.unlink(missing_ok=True)
        self._link(stage.engine)
        paths = [path for path in stage.paths if (self.root / path.partition("::")[0]).exists()]
        if not paths:
            raise NotRunError(f"nothing of its room is there: {', '.join(stage.paths)}")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "mutant_report",
            "-p",
            "no:cacheprovider",
            *stage.options,
        ]
        command += ["--timeout=300", f"--numprocesses={stage.workers}"]
        command += ["--dist=loadgroup"] * (stage.workers > 0) + ["-x"] * stop
        with (self.work / "pytest.log").open("a", encoding="utf-8") as log:
            log.write(f"\n{' '.join(command)} {' '.join(paths)}\n")
            log.flush()
            try:
                code = subprocess.run(
                    [*command, *paths],
                    cwd=self.root,
                    env=self.environment | ({"CLOAKWORK_ENGINE": "emulated"} if stage.engine == "emulated" else {}),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=STAGE_SECONDS,
                ).returncode
            except subprocess.TimeoutExpired:
                code = HUNG
        lines = self.report.read_text(encoding="utf-8").splitlines() if self.report.exists() else []
        failed = [line.partition("\t")[2] for line in lines if line.startswith("failed\t")]
        if failed or code in (0, 5):  # 5: no test of the room is in this tier
            return list(dict.fromkeys(failed))
        if code in NOBODYS_FAULT:
            raise NotRunError(f"pytest ended with status {code}: see {self.work / 'pytest.log'}")
        return [f"{lines[-1].partition(chr(9))[2] if lines else 'pytest'} (ended with status {code})"]


def _write(path: Path, text: str) -> None:
    """Writes with a later time of change, in whole seconds, than before: what compilers and Python keep goes by it."""
    before = path.stat().st_mtime
    path.write_text(text, encoding="utf-8")
    later = max(time.time(), int(before) + 1)
    os.utime(path, (later, later))


def _output(*command: str, cwd: Path) -> str:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout
