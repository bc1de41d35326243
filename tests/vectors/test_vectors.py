"""The stored vectors: intact, still what this code makes of the same entropy, and still readable."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.switched_ciphertexts import load_ciphertexts

FOLDER = Path(__file__).parent
SETS = ("toy", "toy_two_limb", "toy_block", "toy_lanes", "toy_ntru_lut")


def _load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vector_generator", FOLDER / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = _load_generator()
README_ROW = re.compile(r"^\| `(\S+)` \|.*\| (\d+) \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def test_files_match_the_table() -> None:
    rows = README_ROW.findall((FOLDER / "README.md").read_text())
    assert {path for path, _, _ in rows} == {path.name for path in FOLDER.iterdir() if path.suffix in (".clkw", ".txt")}
    for path, size, digest in rows:
        data = (FOLDER / path).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (int(size), digest), path


@pytest.mark.parametrize("name", SETS)
def test_the_code_still_makes_them(name: str) -> None:
    """A difference after a change of a toy row: run generate.py. Without one: the code computes something else than it did."""
    files, digests = generator.build(name)
    assert digests == json.loads((FOLDER / "digests.json").read_text())[name]
    for path, data in files.items():
        assert (FOLDER / f"{name}_{path}").read_bytes() == data, path


@pytest.mark.parametrize("name", SETS)
def test_they_decrypt(name: str) -> None:
    key = ClientKey.load(FOLDER / f"{name}_secret_key.clkw", generator.PASSPHRASE)
    for path, expected in [
        ("ciphertexts", [0, 1, 2, 3]),
        ("seeded_ciphertexts", [0, 1, 2, 3]),
        ("packed_ciphertexts", np.arange(300) % 4),
        ("bootstrapped", [1, 2, 3, 0]),
        ("rerandomised", [1, 2, 3, 0]),
    ]:
        ciphertexts = load_ciphertexts((FOLDER / f"{name}_{path}.clkw").read_bytes())
        np.testing.assert_array_equal(key.decrypt(ciphertexts), generator.in_lanes(key.parameters, expected))
    public_key = PublicKey.load(FOLDER / f"{name}_public_key.clkw")
    values = generator.in_lanes(key.parameters, [3, 1])
    np.testing.assert_array_equal(key.decrypt(public_key.encrypt(values)), values)
    assert Ciphertexts.load(FOLDER / f"{name}_ciphertexts.clkw").key_id == key.key_id


@pytest.mark.parametrize("name", SETS)
def test_the_parameter_text_has_the_digest(name: str) -> None:
    text = (FOLDER / f"{name}_parameter_set.txt").read_bytes()
    assert hashlib.sha256(text).digest() == parameter_digest(parameter_set(name))


@pytest.mark.os_entropy
@pytest.mark.tier("release")
def test_steps_are_drawn_again(tmp_path: Path) -> None:
    """Fits differ in their last bits from one processor to the next."""
    for package in ("mpmath", "sklearn"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    subprocess.run([sys.executable, FOLDER / "steps" / "draw.py", tmp_path], check=True)
    for name in ("drawn.json", "kept.json", "page.json"):
        before, after = (json.loads((folder / name).read_text()) for folder in (FOLDER / "steps", tmp_path))
        assert before["common"] == after["common"] and len(before["cases"]) == len(after["cases"])
        for one, other in zip(before["cases"], after["cases"], strict=True):
            assert alike(one, other), (name, one)


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, dict | list) and type(one) is type(other) and len(one) == len(other):
        keys = one if isinstance(one, dict) else range(len(one))
        return all((key in other or isinstance(one, list)) and alike(one[key], other[key]) for key in keys)
    return bool(one == other)
