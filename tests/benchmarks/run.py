"""`make bench`: `cloakwork bench` on every shipped parameter set, each in a fresh process.

python tests/benchmarks/run.py --device cpu --batch 16 --threads 1 --json result.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CLOAKWORK = [sys.executable, "-m", "cloakwork.app.cli"]
MIB = 2**20


def call(*arguments: str) -> dict[str, Any]:
    command = [*CLOAKWORK, *arguments, "--json", "-"]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with status {process.returncode}: {process.stderr.strip()}")
    record: dict[str, Any] = json.loads(process.stdout)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description="cloakwork bench on every parameter set")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sets", nargs="*", help="these sets alone")
    parser.add_argument("--json", type=Path, help="write every record")
    options = parser.parse_args()
    names = options.sets or [each["name"] for each in call("params")["sets"] if each["security_bits"]]
    common = ["--device", options.device, "--batch", str(options.batch), "--threads", str(options.threads)]
    records = []
    print("| set | ms per look-up | keyswitch | blind rotation | wrong | keys made in s | uploaded MiB |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        record = call("bench", "pbs", "--set", name, *common)
        keygen = call("bench", "keygen", "--set", name)
        each = 1e3 / options.batch
        print(
            f"| {name} | {record['median_seconds'] * each:.3g} | {record['keyswitch_seconds'] * each:.2g} "
            f"| {record['blind_rotate_seconds'] * each:.3g} | {record['wrong']} of {record['outputs']} "
            f"| {keygen['median_seconds']:.2f} | {keygen['upload_bytes'] / MIB:.1f} |",
            flush=True,
        )
        records.append({"pbs": record, "keygen": keygen})
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
