"""Files of the operations kit, and tools that read them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from requirements import needs

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "cloakwork"

INSTALLED_BY = {
    "caddy": "'make deploy-tools' installs it",
    "hadolint": "'make deploy-tools' installs it",
    "helm": "'make deploy-tools' installs its library",
    "nginx": "the package nginx-light has it",
    "promtool": "the package prometheus has it",
    "systemd-analyze": "the package systemd has it",
}

Documents = list[dict[str, Any]]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def tool(name: str) -> str:
    """The path of an installed program; without it the test is skipped, or fails in continuous integration."""
    path = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    needs(path, f"{name} is not installed: {INSTALLED_BY.get(name, 'install it')}")
    return str(path)


def run(*command: str | Path, **more: Any) -> str:
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False, **more
    )
    assert result.returncode == 0, result.stdout
    return result.stdout
