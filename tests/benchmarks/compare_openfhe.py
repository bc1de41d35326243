"""cloakwork beside OpenFHE on this machine, in one sitting: bootstraps beside its NAND, functions of large numbers beside its own.

Every figure is the median of a fresh process; OpenFHE (one thread) and cloakwork take turns, so that a machine whose speed drifts drifts for
both. A ratio is formed within a turn, and the table gives its median over the rounds with minimum and maximum.

    python tests/benchmarks/compare_openfhe.py --rounds 5 --json result.json --markdown docs/benchmarks/cpu.md

OpenFHE's wheel needs Python 3.10: `python3.10` on PATH, pyenv's, or the one that PYTHON310 names. It is installed into an environment
of its own under build/.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPENFHE = "openfhe==1.6.1.*"
REPOSITORY = Path(__file__).resolve().parents[2]
MIB = 2**20
NAND = "NAND"
LARGE_BITS, FUNCTION_BITS, LARGE_COUNT = (
    16,
    3,
    3,
)  # of OpenFHE's functions: sizes, and calls in a process (up to 4 seconds each)
# Names of `openfhe_large.py` and of `cloakwork bench`.
LARGE = {"func": FUNCTION_BITS, "floor": LARGE_BITS, "sign": LARGE_BITS, "decomp": LARGE_BITS}


@dataclass(frozen=True)
class Case:
    """One `cloakwork bench` call, and what of OpenFHE's it is held against."""

    label: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    least_ratio: float | None  # OpenFHE's seconds for one over ours; None: no target
    peer: str = NAND


def bench(kind: str, name: str, batch: int, threads: int = 1) -> list[str]:
    operation = ["gate", "--gate", "NAND"] if kind == "gate" else ["pbs"]
    return [*operation, "--set", name, "--device", "cpu", "--batch", str(batch), "--threads", str(threads)]


def large(kind: str) -> Case:
    arguments = [kind, "--bits", str(LARGE[kind]), "--device", "cpu", "--batch", "16", "--threads", "1"]
    return Case(f"{kind} of {LARGE[kind]} bits, batch 16", arguments, {}, 10.0, kind)


AVX2 = {"CLOAKWORK_CPU": "avx2"}
CASES = (
    Case("NAND gate_64, batch 64", bench("gate", "gate_64", 64), {}, 20.0),
    Case("NAND gate_64, batch 1", bench("gate", "gate_64", 1), {}, 12.0),
    Case("NAND gate_64, batch 64, AVX2 alone", bench("gate", "gate_64", 64), AVX2, 9.0),
    Case("NAND gate_64, batch 64, 2 threads", bench("gate", "gate_64", 64, threads=2), {}, None),
    Case("NAND gate_128, batch 64", bench("gate", "gate_128", 64), {}, None),
    Case("look-up lut2, batch 16", bench("pbs", "lut2", 16), {}, 1 / 0.12),
    Case("look-up lut4, batch 16", bench("pbs", "lut4", 16), {}, 1 / 0.25),
    Case("NAND gate_64_block, batch 64", bench("gate", "gate_64_block", 64), {}, None),
    Case("NAND gate_64_block, batch 1", bench("gate", "gate_64_block", 1), {}, None),
    Case("look-up lut4_block, batch 16", bench("pbs", "lut4_block", 16), {}, None),
    *(large(kind) for kind in LARGE),
)
# Block-binary keys against the same set without them: least ratio of seconds.
BLOCK_TARGETS = {
    ("NAND gate_64, batch 64", "NAND gate_64_block, batch 64"): 1.4,
    ("look-up lut4, batch 16", "look-up lut4_block, batch 16"): 1.5,
}
KEYGEN_SETS = {"gate_64": (0.5, 16 * MIB), "lut4": (1.5, 40 * MIB)}  # at most: seconds, uploaded bytes
PEAK_MEMORY_BYTES = 300 * MIB  # of a gate benchmark
TWO_THREADS_LEAST = 1.8


@dataclass(frozen=True)
class Spread:
    median: float
    minimum: float
    maximum: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(statistics.median(values), min(values), max(values))

    def text(self, scale: float = 1.0, digits: int = 3) -> str:
        middle, low, high = (f"{value * scale:.{digits}g}" for value in (self.median, self.minimum, self.maximum))
        return f"{middle} ({low} .. {high})"


def find_python310() -> str:
    candidates = [os.environ.get("PYTHON310"), shutil.which("python3.10")]
    candidates += sorted(str(path) for path in Path.home().glob(".pyenv/versions/3.10.*/bin/python"))
    for candidate in filter(None, candidates):
        probe = subprocess.run(
            [candidate, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True
        )
        if probe.returncode == 0 and probe.stdout.strip() == "(3, 10)":
            return candidate
    sys.exit("OpenFHE's wheel needs Python 3.10, which was not found; install it or set PYTHON310 to its path")


def openfhe_python(directory: Path) -> str:
    """The interpreter of an environment with OpenFHE in it, made on the first call."""
    python = directory / "bin" / "python"
    if not python.exists():
        print(f"installing {OPENFHE} into {directory}", file=sys.stderr)
        subprocess.run([find_python310(), "-m", "venv", str(directory)], check=True)
    if subprocess.run([python, "-c", "import openfhe"], capture_output=True).returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "--quiet", OPENFHE], check=True)
    return str(python)


def run_json(command: Sequence[str], environment: Mapping[str, str]) -> tuple[dict[str, Any], int]:
    """Runs a fresh process that prints one JSON object; returns it with the peak memory of the process in bytes."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment}
    )
    assert process.stdout is not None
    assert process.stderr is not None
    error: list[bytes] = []
    reader = threading.Thread(target=lambda stream: error.append(stream.read()), args=(process.stderr,))
    reader.start()
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join()
    if process.returncode != 0:
        sys.exit(
            f"{' '.join(command)} ended with status {process.returncode}: {error[0].decode(errors='replace').strip()}"
        )
    record: dict[str, Any] = json.loads(output)
    return record, usage.ru_maxrss * 1024


def peer_command(python: str, operation: str, gates: int) -> list[str]:
    """One OpenFHE process: its NAND, or a function of large numbers."""
    scripts = Path(__file__).parent
    if operation == NAND:
        return [python, str(scripts / "openfhe_nand.py"), str(gates)]
    return [python, str(scripts / "openfhe_large.py"), operation, str(LARGE[operation]), str(LARGE_COUNT)]


def measure(rounds: int, gates: int, peer: str, cases: Sequence[Case], say: Callable[[str], None]) -> dict[str, Any]:
    """`rounds` times: OpenFHE, then cloakwork, for every case, each in a fresh process."""
    cloakwork = [sys.executable, "-m", "cloakwork.app.cli", "bench"]
    peer_seconds: dict[str, list[float]] = {case.label: [] for case in cases}
    peer_keygen: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {case.label: [] for case in cases}
    memory: dict[str, int] = {case.label: 0 for case in cases}
    records: dict[str, dict[str, Any]] = {}
    wrong = 0
    for number in range(1, rounds + 1):
        for case in cases:
            record, _ = run_json(peer_command(peer, case.peer, gates), {"OMP_NUM_THREADS": "1"})
            peer_seconds[case.label].append(record["median_seconds"])
            peer_keygen.setdefault(case.peer, []).append(record["keygen_seconds"])
            record, peak = run_json([*cloakwork, *case.arguments, "--json", "-"], case.environment)
            seconds[case.label].append(record["median_seconds"] / record["batch"])
            memory[case.label] = max(memory[case.label], peak)
            records[case.label] = record
            wrong += record["wrong"]
            ratio = peer_seconds[case.label][-1] / seconds[case.label][-1]
            say(
                f"round {number} of {rounds}: {case.label}: OpenFHE {peer_seconds[case.label][-1] * 1e3:.1f} ms, ratio {ratio:.1f}"
            )
    keygen = {}
    for name in KEYGEN_SETS:
        keygen[name] = run_json([*cloakwork, "keygen", "--set", name, "--json", "-"], {})[0]
    all_peer_seconds = {
        name: [each for case in cases if case.peer == name for each in peer_seconds[case.label]] for name in peer_keygen
    }
    return {
        "machine": machine(),
        "rounds": rounds,
        "openfhe": {
            "version": peer_version(peer),
            "seconds": all_peer_seconds,
            "keygen_seconds": peer_keygen,
        },
        "cases": [
            {
                "label": case.label,
                "peer": case.peer,
                "seconds": seconds[case.label],
                "ratios": [a / b for a, b in zip(peer_seconds[case.label], seconds[case.label], strict=True)],
                "least_ratio": case.least_ratio,
                "peak_memory_bytes": memory[case.label],
                "last_record": records[case.label],
            }
            for case in cases
        ],
        "keygen": keygen,
        "wrong": wrong,
    }


def machine() -> dict[str, str]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    flags = next((line for line in lines if line.startswith("flags")), "")
    vectors = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "baseline"
    return {"processor": model, "vectors": vectors, "cores": str(os.cpu_count()), "python": platform.python_version()}


def peer_version(python: str) -> str:
    script = "import importlib.metadata as m; print(m.version('openfhe'))"
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def verdict(met: bool | None) -> str:
    return "" if met is None else "met" if met else "missed"


def peer_label(operation: str) -> str:
    return NAND if operation == NAND else f"{operation} of {LARGE[operation]} bits"


def table(result: Mapping[str, Any]) -> str:
    """The comparison as a Markdown table, OpenFHE first."""
    lines = [
        "| operation | ms each: median (min .. max) | OpenFHE / this: median (min .. max) | target | | peak MiB |",
        "|---|---|---|---|---|---|",
    ]
    shown: set[str] = set()
    for case in result["cases"]:
        if case["peer"] not in shown:
            shown.add(case["peer"])
            peer = Spread.of(result["openfhe"]["seconds"][case["peer"]])
            lines.append(f"| OpenFHE {peer_label(case['peer'])} STD128 GINX, 1 thread | {peer.text(1e3)} | 1 | | | |")
        ratio = Spread.of(case["ratios"])
        least = case["least_ratio"]
        target = "" if least is None else f"at least {least:.3g}"
        met = verdict(None if least is None else ratio.median >= least)
        peak = case["peak_memory_bytes"] / MIB
        lines.append(
            f"| {case['label']} | {Spread.of(case['seconds']).text(1e3)} | {ratio.text()} | {target} | {met} | {peak:.0f} |"
        )
    return "\n".join(lines)


def other_targets(result: Mapping[str, Any]) -> str:
    cases = {case["label"]: case for case in result["cases"]}
    lines = []
    one, two = cases.get("NAND gate_64, batch 64"), cases.get("NAND gate_64, batch 64, 2 threads")
    if one and two:
        speedup = Spread.of([a / b for a, b in zip(one["seconds"], two["seconds"], strict=True)])
        met = verdict(speedup.median >= TWO_THREADS_LEAST)
        lines.append(
            f"- Two threads against one, `gate_64`, batch 64: {speedup.text()} (at least {TWO_THREADS_LEAST}): {met}."
        )
        met = verdict(one["peak_memory_bytes"] < PEAK_MEMORY_BYTES)
        lines.append(
            f"- Peak memory of that benchmark: {one['peak_memory_bytes'] / MIB:.0f} MiB (under {PEAK_MEMORY_BYTES // MIB}): {met}."
        )
    for (plain, block), least in BLOCK_TARGETS.items():
        if plain in cases and block in cases:
            ratio = Spread.of([a / b for a, b in zip(cases[plain]["seconds"], cases[block]["seconds"], strict=True)])
            lines.append(
                f"- {plain} against {block}: {ratio.text()} (at least {least}): {verdict(ratio.median >= least)}."
            )
    for name, (most_seconds, most_bytes) in KEYGEN_SETS.items():
        record = result["keygen"][name]
        met = verdict(record["median_seconds"] < most_seconds and record["upload_bytes"] <= most_bytes)
        lines.append(
            f"- Keys of `{name}`: {record['median_seconds']:.2f} s (under {most_seconds}), "
            f"{record['upload_bytes'] / MIB:.1f} MiB uploaded (at most {most_bytes // MIB}): {met}."
        )
    lines.append(f"- Wrong outputs in all runs: {result['wrong']}.")
    return "\n".join(lines)


def page(result: Mapping[str, Any]) -> str:
    host = result["machine"]
    return f"""# The CPU back end beside OpenFHE

Written by `tests/benchmarks/compare_openfhe.py`; do not edit by hand. Medians over {result["rounds"]} rounds of fresh processes that take turns;
a ratio is formed within a turn. A time is that of one bootstrap, or of one integer in a call, key switch included: the time of a batch divided by
its size. Other machines give other times; the ratios carry over better than the times do.

Processor: {host["processor"]} ({host["vectors"]}), {host["cores"]} cores.
OpenFHE {result["openfhe"]["version"]} from its wheel, Python 3.10, one thread.

{table(result)}

{other_targets(result)}

By the estimator that this project uses OpenFHE's set has about 124 bits of security; `gate_64` (failure probability 2^-64), `lut2` and `lut4`
(2^-128) have at least 132 ([parameters](../reference/parameters.md)).
`.._block` sets rest on a [structured secret](../reference/parameters.md#structured-secrets).
Functions of integers are those of [large precision](../howto/large-precision.md), on `large16`: any function without a padding bit, four bits
removed, the sign, all digits of four bits; an integer fails with 2^-128.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="cloakwork beside OpenFHE on this machine")
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes of each kind")
    parser.add_argument("--gates", type=int, default=24, help="gates in one OpenFHE process of NANDs")
    parser.add_argument("--only", default="", help="cases whose label contains this text")
    parser.add_argument(
        "--environment", type=Path, default=REPOSITORY / "build" / "openfhe", help="where OpenFHE is installed"
    )
    parser.add_argument("--json", type=Path, help="write every number")
    parser.add_argument("--markdown", type=Path, help="write the page of docs/benchmarks")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in case.label]
    if not cases:
        parser.error(f"--only {options.only!r} matches none of: " + "; ".join(case.label for case in CASES))
    peer = openfhe_python(options.environment)
    result = measure(options.rounds, options.gates, peer, cases, lambda line: print(line, file=sys.stderr))
    print(table(result))
    print(other_targets(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(page(result), encoding="utf-8")


if __name__ == "__main__":
    main()
