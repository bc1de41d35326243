"""Breaks the project on purpose and sees whether the tests notice: `python tests/benchmarks/mutants/run.py [--tier all] [--only NAME ..]`.

Each mutant of `mutants.toml` replaces one text in one file. It is applied to a copy of the checkout, what it changes is built again (the engine with
CMake, the client for browsers with npm), and pytest runs until the first failure: the tests of the mutant's room in the first tier, the whole
tier, then the same beyond it. At the end the tests that failed run once more without a mutant: one that fails again has killed nothing.

A checkout whose tests have no tiers yet (`--checkout DIR`) runs the room, then all tests. What is built stays in --work for the next run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
REPOSITORY: Final = HERE.parents[2]
TIERS: Final = ("test", "all")
PACKAGES: Final = ("api", "app", "models", "training")  # beside fhe_core, whose engine is built
WEB_BUILT: Final = ("web/dist", "api/page")  # by `make web`
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
    needs: str = ""  # "emulated": kernels of the CUDA back end, which only programs that emulate them run here

    @property
    def builds(self) -> str:
        """What must be built again: the engine, the client for browsers, or nothing."""
        if self.file.startswith(("fhe_core/src/", "fhe_core/include/")) and self.needs != "emulated":
            return "engine"
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


@dataclass
class Result:
    """What became of a mutant."""

    mutant: str
    outcome: str  # killed, survived, not run
    stage: str = ""  # that killed it
    test: str = ""
    reason: str = ""  # why it was not run
    seconds: float = 0.0
    cpu_seconds: float = 0.0


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
        if what == "engine":
            self._build_engine()
        elif what == "web":
            if not self.has_web():
                raise NotRunError("the client for browsers is not built in the checkout: run 'make web' there")
            wasm = (self.root / "web/dist/client.wasm").read_bytes()
            for script in ("build", "page"):
                self.run("npm", "run", "--silent", script, folder="web")
            (self.root / "web/dist/client.wasm").write_bytes(wasm)
            (self.root / "api/page/client.wasm").write_bytes(wasm)

    def _build_engine(self) -> None:
        folder = self.work / "engine"
        if not (folder / "build.ninja").exists():
            pybind11 = _output(sys.executable, "-m", "pybind11", "--cmakedir", cwd=self.root).strip()
            self.run(
                *("cmake", "-S", "fhe_core", "-B", str(folder), "-G", "Ninja"),
                # Optimising while linking takes longer than compiling what a mutant changes.
                *("-DCLOAKWORK_CUDA=OFF", "-DCLOAKWORK_KERNELS=native", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF"),
                *(f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11}"),
            )
        self.run("cmake", "--build", str(folder), "--parallel", str(self.jobs))
        self._link()

    def _link(self) -> None:
        """The tree where Python finds cloakwork, as the Makefile makes it for engines that are not installed."""
        tree = self.work / "tree" / "cloakwork"
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "fhe_core").mkdir(parents=True)
        core = self.root / "fhe_core"
        for name in PACKAGES:
            (tree / name).symlink_to(self.root / name)
        packages = [path.parent for path in core.glob("*/__init__.py")]
        engines = (self.work / "engine").glob("_engine*.so")
        for path in [*core.glob("*.py"), core / "tools", *packages, *engines]:
            (tree / "fhe_core" / path.name).symlink_to(path)

    @contextlib.contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """The copy with the mutant applied and built; afterwards without it, and not yet built."""
        path = self.root / mutant.file
        if not path.exists():
            raise NotRunError(f"{mutant.file} is not in the checkout")
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
                    env=self.environment,
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


def stages_of(mutant: Mutant, copy: Copy, tier: str, room_only: bool, workers: int) -> list[Stage]:
    """In the order in which they run; each begins where the one before it found nothing."""
    whole = ("tests",)
    if not (copy.root / "tests/suite/tiers.py").exists():  # before tests had tiers
        options = ("-m", "not long") if tier == "test" else ()
        stages = [Stage("room", mutant.room, options, 0), Stage("whole", whole, options, workers)]
    else:
        stages = [
            stage
            for i, name in enumerate(TIERS[: TIERS.index(tier) + 1])
            for options in [("--tier", name, *(("--beyond", TIERS[i - 1]) if i else ()))]
            for stage in (
                Stage(f"{name}, room", mutant.room, options, 0),
                Stage(f"{name}, whole", whole, options, workers),
            )
        ]
    return [stage for stage in stages if stage.paths is mutant.room] if room_only else stages


def judge(mutant: Mutant, copy: Copy, stages: Sequence[Stage]) -> Result:
    result = Result(mutant.name, "survived")
    began, cpu_before = time.monotonic(), _cpu_seconds()
    try:
        with copy.mutated(mutant):
            for stage in stages:
                failed = copy.failures(stage)
                if failed:
                    result.outcome, result.stage, result.test = "killed", stage.name, failed[0]
                    break
    except NotRunError as error:
        result.outcome, result.reason = "not run", str(error)
    result.seconds = round(time.monotonic() - began, 1)
    result.cpu_seconds = round(_cpu_seconds() - cpu_before, 1)
    return result


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def confirm(results: Sequence[Result], copy: Copy) -> None:
    """Runs every killing test without a mutant; a mutant whose test fails here too is not judged."""
    by_test = {result.test.partition(" (")[0]: result for result in results if result.outcome == "killed"}
    if not by_test:
        return
    copy.build_stale()
    has_tiers = (copy.root / "tests/suite/tiers.py").exists()
    stage = Stage("confirm", tuple(by_test), ("--tier", "all") if has_tiers else (), 0)
    for failed in copy.failures(stage, stop=False):
        for result in results:
            if result.test.partition(" (")[0] == failed.partition(" (")[0]:
                result.outcome, result.reason = "not run", f"its test fails without it too: {result.test}"


def markdown(mutants: Sequence[Mutant], results: Mapping[str, Result]) -> str:
    rows = ["| mutant | breaks | outcome | killed by | s |", "|---|---|---|---|---|"]
    for mutant in mutants:
        result = results.get(mutant.name)
        if result is not None:
            outcome = f"killed ({result.stage})" if result.outcome == "killed" else result.outcome
            words = [mutant.name, mutant.breaks, outcome, result.test or result.reason, f"{result.seconds:.0f}"]
            rows.append(f"| {' | '.join(' '.join(word.split()).replace('|', chr(92) + '|') for word in words)} |")
    judged = [result for result in results.values() if result.outcome != "not run"]
    killed = [result for result in judged if result.outcome == "killed"]
    early = [result for result in killed if result.stage.startswith("test")]
    rows += ["", f"{len(killed)} of {len(judged)} killed" + (f", {len(early)} by tier `test`" if early else "") + "."]
    return "\n".join(rows) + "\n"


def check(mutants: Sequence[Mutant], checkout: Path) -> int:
    """Lists the mutants; 1 if one cannot be applied to the checkout."""
    status = 0
    for mutant in mutants:
        try:
            path = checkout / mutant.file
            mutant.apply_to(path.read_text(encoding="utf-8") if path.exists() else "")
            missing = [path for path in mutant.room if not (checkout / path).exists()]
            words = f"not there: {', '.join(missing)}" if missing else mutant.breaks
        except NotRunError as error:
            words, status = f"CANNOT BE APPLIED: {error}", 1
        print(f"{mutant.name:32} {mutant.file}: {words}")
    return status


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", choices=TIERS, default="all", help="the last tier whose tests run (default: all)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these mutants (default: every one)")
    parser.add_argument("--room-only", action="store_true", help="run the tests of the mutant's room, not whole tiers")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first mutant that survives")
    parser.add_argument("--list", action="store_true", help="check that each mutant can be applied, and run none")
    parser.add_argument("--checkout", type=Path, default=REPOSITORY, help="break this checkout (default: this one)")
    parser.add_argument("--work", type=Path, default=REPOSITORY / "build/mutants", help="folder for the copy, builds")
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1), help="processes for a whole tier")
    parser.add_argument("--json", type=Path, help="results, to which this run adds (default: WORK/results.json)")
    parser.add_argument("--markdown", type=Path, help="the same as a table (default: WORK/results.md)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    every = read_mutants()
    unknown = set(options.only or ()) - {mutant.name for mutant in every}
    if unknown:
        raise SystemExit(f"no mutant has the name {', '.join(sorted(unknown))}; --list shows them")
    mutants = [mutant for mutant in every if not options.only or mutant.name in options.only]
    checkout, work = options.checkout.resolve(), options.work.resolve()
    if options.list:
        return check(mutants, checkout)
    json_path, markdown_path = options.json or work / "results.json", options.markdown or work / "results.md"
    copy = Copy(checkout, work, options.workers)
    copy.refresh()
    copy.build("engine")

    results: dict[str, Result] = {}
    if json_path.exists():
        rows: dict[str, dict[str, Any]] = json.loads(json_path.read_text(encoding="utf-8"))
        results = {name: Result(**row) for name, row in rows.items() if any(name == each.name for each in every)}
    judged: list[Result] = []

    def write() -> None:
        json_path.write_text(json.dumps({name: asdict(each) for name, each in results.items()}, indent=1) + "\n")
        markdown_path.write_text(markdown(every, results), encoding="utf-8")

    for mutant in mutants:
        stages = stages_of(mutant, copy, options.tier, options.room_only, options.workers)
        result = judge(mutant, copy, stages)
        judged.append(result)
        results[mutant.name] = result
        words = result.test or result.reason
        print(f"{mutant.name}: {result.outcome} {result.stage} {words} ({result.seconds:.0f} s)", flush=True)
        write()
        if result.outcome != "killed" and not options.keep_going:
            break
    confirm(judged, copy)
    write()
    print(markdown(every, {result.mutant: result for result in judged}))
    return int(any(result.outcome != "killed" for result in judged))


if __name__ == "__main__":
    raise SystemExit(main())
