"""How ordinary models fare: trained by plain recipes, compiled, and asked in clear, quantised and simulated.

PYTHONPATH=tests/benchmarks:$PYTHONPATH python -m strangers --json result.json
PYTHONPATH=tests/benchmarks:$PYTHONPATH python -m strangers 'digits-*' cancer-mlp-raw --option profile=balanced --compare result.json

The table goes to standard output, progress to standard error. Trained networks are kept in build/strangers.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from pathlib import Path

from .evaluate import Settings, evaluate, option
from .recipes import STRANGERS, Stranger, is_issue_row
from .table import compared, markdown
from .train import CACHE


def main() -> None:
    options = _parser().parse_args()
    chosen = [stranger for stranger in STRANGERS if _wanted(stranger, options)]
    if options.list:
        for stranger in chosen:
            print(f"{stranger.name:<22} {stranger.data:<26} {stranger.architecture}")
        return
    if not chosen:
        sys.exit(f"no model's name matches {' '.join(options.names)}; --list names them all")
    settings = Settings(
        samples=options.samples,
        simulated=options.simulated or options.samples,
        calibration=options.calibration,
        options=dict(options.option),
        limit_seconds=options.limit,
        cache=options.cache,
        train_again=options.train_again,
    )
    records = []
    for number, stranger in enumerate(chosen, 1):
        began = time.monotonic()
        record = evaluate(stranger, settings)
        records.append(record)
        told = (
            f"{record['clear']:.1f} -> {record['simulated']:.1f}"
            if "simulated" in record
            else record.get("message", "")[:150]
        )
        took = time.monotonic() - began
        print(
            f"{number}/{len(chosen)} {stranger.name}: {record['status']}, {told} ({took:.1f} s)",
            file=sys.stderr,
            flush=True,
        )
        if options.json:  # as it stands: a run that is cut off has shown something
            options.json.write_text(
                json.dumps({"options": dict(options.option), "records": records}, indent=1, default=str) + "\n"
            )
    print(markdown(records))
    if options.compare:
        print()
        print(compared(records, json.loads(options.compare.read_text())["records"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="strangers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=["*"], help="models, with * and ?; all without")
    parser.add_argument("--issue", action="store_true", help="the rows of the table of issue 11 alone")
    parser.add_argument("--list", action="store_true", help="name them and stop")
    parser.add_argument("--samples", type=int, default=500, help="test samples (500); small tables have fewer")
    parser.add_argument("--simulated", type=int, help="simulated answers, over several seeds (as many as samples)")
    parser.add_argument("--calibration", type=int, default=400, help="training samples shown to the compiler (400)")
    parser.add_argument(
        "--option", action="append", default=[], type=option, metavar="NAME=VALUE",
        help="of the compiler, such as profile=balanced, weight_bits=6 or accuracy=0.99; VALUE is JSON or else text",
    )  # fmt: skip
    parser.add_argument("--limit", type=int, default=600, help="seconds for one model (600)")
    parser.add_argument("--json", type=Path, help="write every record, after each model")
    parser.add_argument("--compare", type=Path, help="records of an earlier run, to be shown beside these")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the trained networks")
    parser.add_argument("--train-again", action="store_true", help="do not take networks from the cache")
    return parser


def _wanted(stranger: Stranger, options: argparse.Namespace) -> bool:
    named = any(fnmatch.fnmatch(stranger.name, pattern) for pattern in options.names)
    return named and (is_issue_row(stranger) or not options.issue)


if __name__ == "__main__":
    main()
