"""Puts a measurement into models/forecast/stored.json, the figures for machines that were not measured.

cloakwork calibrate-machine --device cuda --json profile.json
python tests/benchmarks/store_profile.py profile.json h200 "one NVIDIA H200"
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from cloakwork.models.forecast.profile import MachineProfile

STORED = Path(__file__).parents[2] / "models" / "forecast" / "stored.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurement", type=Path, help="what `cloakwork calibrate-machine --json` wrote, of one device")
    parser.add_argument("name", help="as reports call the machine: cpu-1-thread, h200")
    parser.add_argument("description", help="of the machine, without what names an owner")
    options = parser.parse_args()
    (fields,) = json.loads(options.measurement.read_text())["profiles"]
    fields = rounded(fields)
    fields["machine"] |= {"name": options.description, "cpu": "", "cloakwork": "", "omp_num_threads": ""}
    fields["source"] = "cloakwork calibrate-machine"
    profile = MachineProfile.from_fields(fields)
    stored = json.loads(STORED.read_text()) | {options.name: profile.to_fields()}
    text = json.dumps(stored, indent=1)
    STORED.write_text(re.sub(r"\[\s+(\d+),\s+([\d.e-]+)\s+\]", r"[\1, \2]", text) + "\n")


def rounded(value: Any) -> Any:
    """Four digits of every real number."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return {key: rounded(each) for key, each in value.items()} if isinstance(value, dict) else value


if __name__ == "__main__":
    main()
