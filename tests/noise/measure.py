"""Measures again what changed, and writes measured.json.

    CLOAKWORK_ALLOW_TOY=1 python tests/noise/measure.py              # sets whose row, vectors or measuring code changed; minutes if it is all of them
    CLOAKWORK_ALLOW_TOY=1 python tests/noise/measure.py --all        # every set
    CLOAKWORK_ALLOW_TOY=1 python tests/noise/measure.py lut4 nn2     # these sets

The predictions of the noise model are stored with the numbers, and the script says which of them changed. Afterwards the tests of this folder
compare the numbers with the model.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

os.environ |= {"CLOAKWORK_ALLOW_TOY": "1", "CLOAKWORK_MEASURE_PAPERS": "1"}

from measurements import Facts, measure
from records import FILE, changes, differences, load, origin, save, sets, shortened

from cloakwork.fhe_core import _engine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="parameter sets to measure, whether they changed or not"
    )
    parser.add_argument("--all", action="store_true", help="measure every set")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(sets()))
    if unknown:
        parser.error(f"expected sets of {FILE.name}; got {', '.join(unknown)}")
    records = load()
    for name in sets():
        asked = arguments.all or name in arguments.names
        if asked or not arguments.names:
            update(records, name, asked)
    save(records)
    return 0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def update(records: dict[str, Any], name: str, asked: bool) -> None:
    """Measures a set if it is asked for, missing or stale, and stores it; of a changed model it stores the predictions."""
    today, before = origin(name), records.get(name)
    changed = changes(before, today)
    for line in changed:
        say(f"{name}: {line}")
    if before is None or asked or any(before[key] != today[key] for key in ("row", "vectors")):
        facts = measured(name)
        for line in differences(before["facts"], facts) if before is not None else ():
            say(f"{name}: {line}")
    elif changed:
        facts = before["facts"]
    else:
        return
    records[name] = {**today, "facts": facts}
    save(records)


def measured(name: str) -> Facts:
    started, requests = time.process_time(), _engine.testing.entropy_requests()
    facts = shortened(measure(name))
    if _engine.testing.entropy_requests() != requests:
        raise RuntimeError(
            f"{name}: the engine asked the operating system for randomness, so its numbers do not repeat"
        )
    say(f"{name}: measured in {time.process_time() - started:.1f} s of processor time")
    return dict(facts)


if __name__ == "__main__":
    sys.exit(main())
