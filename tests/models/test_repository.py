"""Files that somebody has sent are described within limits, in a process of their own."""

from __future__ import annotations

import hashlib
import json
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cloakwork.models import zoo
from cloakwork.models.batches.build import compile_batch
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.program.artefact import MAGIC, VERSION, save_program
from cloakwork.models.repository import describe
from cloakwork.models.repository_files import KINDS, RETIRED, fault_of, is_described, next_version, release

pytestmark = pytest.mark.os_entropy  # processes, which compare nothing of chance

SMALL = "repository._MEMORY_BYTES = 96 << 20; repository._MEMORY_FOR_EACH_BYTE = {'.clkm': 4, '.clkn': 4};"


def described(artefact: Path, change: str = "") -> subprocess.CompletedProcess[str]:
    """As the service asks for it; `change` alters the module first."""
    script = f"import sys; from cloakwork.models import repository; {change} sys.exit(repository.main())"
    command = [sys.executable, "-c", script, "--file", str(artefact)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def header_of(text: bytes) -> bytes:
    """A program file with this header and the right checksum."""
    whole = struct.pack("<4sHHQ", MAGIC, VERSION, 0, len(text)) + text
    return whole + hashlib.sha256(whole).digest()


@pytest.mark.parametrize("kind", ["program", "index", "batch"])
def test_the_facts_are_written_beside_the_file(tmp_path: Path, kind: str):
    artefact = tmp_path / f"sent{KINDS[kind]}"
    if kind == "batch":
        x = np.random.default_rng(0).normal(size=(20, 4))
        compile_batch(LinearModel(np.ones((1, 4)), np.zeros(1)), x, batch=50).save(artefact)
    elif kind == "program":
        save_program(artefact, zoo.load_model("iris-tree").program)
    else:
        NeighbourIndex.build(np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 2).save(artefact)
    result = described(artefact)
    assert (result.returncode, result.stderr) == (0, "")
    facts = json.loads(artefact.with_suffix(".json").read_text())
    assert facts["kind"] == kind
    assert facts["artefact_sha256"] == hashlib.sha256(artefact.read_bytes()).hexdigest()


def test_what_is_described_needs_no_process(tmp_path: Path):
    """Facts count that are whole, and of this file and this release."""
    assert is_described(tmp_path)
    folder = tmp_path / "tree"
    folder.mkdir()
    artefact, facts = folder / "1.clkm", folder / "1.json"
    save_program(artefact, zoo.load_model("iris-tree").program)
    assert not is_described(tmp_path)
    describe(artefact)
    assert is_described(tmp_path)
    written = facts.read_text()
    for damaged in (
        "",
        "[]",
        written[:-1],
        written.replace(f'"engine_version": "{release()}"', '"engine_version": "0.1"'),
    ):
        facts.write_text(damaged)
        assert not is_described(tmp_path), damaged[:100]
    facts.write_text(written)
    (folder / "1.clkn").touch()  # which of the two is version 1?
    assert not is_described(tmp_path)
    (folder / "1.clkn").unlink()
    artefact.write_bytes(artefact.read_bytes()[:-1])
    assert not is_described(tmp_path)


@pytest.mark.tier("all")
def test_a_header_that_grows_in_memory_meets_the_limit(tmp_path: Path):
    """Three bytes of JSON that become more than fifty."""
    artefact = tmp_path / "sent.clkm"
    artefact.write_bytes(header_of(b"[" + b"[]," * (3 << 20) + b"1]"))
    unlimited = described(artefact)
    assert unlimited.returncode == 1 and "JSON object" in unlimited.stderr
    result = described(artefact, SMALL)
    assert result.returncode == 1 and "not a valid model" in result.stderr and "MiB" in result.stderr, result.stderr
    assert list(tmp_path.iterdir()) == [artefact]


def test_a_model_that_is_too_large_for_the_machine_is_told_so(tmp_path: Path):
    """As one that was sent, and as one of the folder."""
    artefact = tmp_path / "sent.clkm"
    artefact.write_bytes(header_of(b"[" + b"[]," * (3 << 20) + b"1]"))
    little = "repository.memory_bytes = lambda: 1; repository._MEMORY_BYTES = 200 << 20;"
    result = described(artefact, little)
    assert result.returncode == 1 and "give the service more memory" in result.stderr, result.stderr
    (tmp_path / "model").mkdir()
    placed = artefact.rename(tmp_path / "model" / "1.clkm")
    script = f"import sys; from cloakwork.models import repository; {little} sys.exit(repository.main())"
    command = [sys.executable, "-c", script, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1 and "give the service more memory" in result.stderr, result.stderr
    assert "more memory" in fault_of(placed)["reason"]


def test_seconds_are_the_kernels_to_count(tmp_path: Path):
    artefact = tmp_path / "sent.clkm"
    artefact.write_bytes(header_of(b"{}"))
    spin = "repository._SECONDS = 1; repository.describe = lambda _: [None for _ in iter(int, 1)];"
    assert described(artefact, spin).returncode == -signal.SIGXCPU


def test_a_message_names_no_path(tmp_path: Path):
    artefact = tmp_path / "sent.clkn"
    artefact.write_bytes(b"CLKN" + bytes(100))
    result = described(artefact)
    assert result.returncode == 1 and result.stderr and str(tmp_path) not in result.stderr


def test_numbers_of_retired_versions_are_taken(tmp_path: Path):
    assert next_version(tmp_path) == 1
    (tmp_path / "2.clkm").touch()
    assert next_version(tmp_path) == 3
    (tmp_path / f"7{RETIRED}").touch()
    (tmp_path / f"named{RETIRED}").touch()
    assert next_version(tmp_path) == 8
