"""Breaks the project on purpose and sees whether the tests notice: `python tests/benchmarks/mutants/try_mutants.py [--tier all] [--only NAME ..]`.

Each mutant of `mutants.toml` replaces one text in one file. It is applied to a copy of the checkout, what it changes is built again (the engine with
CMake, the client for browsers with npm), and pytest runs until the first failure: the tests of the mutant's room in the first tier, the whole
tier, then the same beyond it. At the end the tests that failed run once more without a mutant: one that fails again has killed nothing.

A checkout whose tests have no tiers yet (`--checkout DIR`) runs the room, then all tests. What is built stays in --work for the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from copies import Copy, Mutant, NotRunError, Stage, read_mutants

REPOSITORY: Final = Path(__file__).resolve().parents[3]
TIERS: Final = ("test", "all")
EMULATED: Final = ("--gpu", "-m", "gpu")  # options of `make test-emulated`


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


def stages_of(mutant: Mutant, copy: Copy, tier: str, room_only: bool, workers: int) -> list[Stage]:
    """In the order in which they run; each begins where the one before it found nothing."""
    if mutant.needs == "emulated":  # `make test-emulated`, a part of tier all
        return [Stage("all, room", mutant.room, EMULATED, 0, "emulated")] * (tier == "all")
    whole = ("tests",)
    if not (copy.root / "tests/suite/tiers.py").exists():  # before tests had tiers
        options = ("-m", "not long") if tier == "test" else ()
        stages = [Stage("room", mutant.room, options, 0), Stage("whole", whole, options, workers)]
    else:
        stages = [
            stage
            for i, name in enumerate(TIERS[: TIERS.index(tier) + 1])
            for options in [(f"--tier={name}", *((f"--beyond={TIERS[i - 1]}",) if i else ()))]
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


def confirm(results: Sequence[Result], emulated: Container[str], copy: Copy) -> None:
    """Runs every killing test without a mutant; a mutant whose test fails here too is not judged. Args: emulated: names of mutants."""
    copy.build_stale()
    has_tiers = (copy.root / "tests/suite/tiers.py").exists()
    plain = Stage("confirm", (), ("--tier=all",) if has_tiers else (), 0)
    for stage, on_it in ((plain, False), (Stage("confirm", (), EMULATED, 0, "emulated"), True)):
        killed = [each for each in results if each.outcome == "killed" and (each.mutant in emulated) == on_it]
        tests = dict.fromkeys(each.test.partition(" (")[0] for each in killed)
        failed = copy.failures(replace(stage, paths=tuple(tests)), stop=False) if tests else []
        for result in killed:
            if result.test.partition(" (")[0] in {each.partition(" (")[0] for each in failed}:
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
    confirm(judged, {mutant.name for mutant in mutants if mutant.needs == "emulated"}, copy)
    write()
    print(markdown(every, {result.mutant: result for result in judged}))
    return int(any(result.outcome != "killed" for result in judged))


if __name__ == "__main__":
    raise SystemExit(main())
