"""The README's example of the client, against a server with the zoo's models."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scoring_server import running

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.tier("all")
def test_ten_lines_score_an_encrypted_iris_sample(tmp_path: Path) -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (example,) = [found for found in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if "Client(" in found]
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    with running(tmp_path / "data", environment={"ZOO": "true"}) as server:
        program = example.replace("http://127.0.0.1:8123", server.url)
        environment = {**os.environ, "CLOAKWORK_HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=200
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['setosa' 'virginica']"
