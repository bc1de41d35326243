"""The Dockerfile, without a Docker engine: its files are there, and its build steps work in a fresh environment."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cmake_builds import configure
from tests.deploy_files import run, tool

ROOT = Path(__file__).resolve().parents[1]
PREFIX = "/opt/cloakwork"
START_SECONDS = 120.0


def test_hadolint_has_nothing_to_say():
    run(tool("hadolint"), ROOT / "Dockerfile")


def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments) with continued lines joined and comments left out."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


def stage(name: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    current = ""
    for word, rest in instructions():
        if word == "FROM":
            current = rest.rsplit(" ", 1)[-1]
        elif current == name:
            found.append((word, rest))
    return found


def copy_context(target: Path) -> None:
    """What .dockerignore lets through."""
    target.mkdir()
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    left_out = [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]
    for name in kept:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns(*left_out))
        else:
            shutil.copy(source, target / name)


def test_every_stage_ends_without_root_and_with_a_health_check() -> None:
    for target in ("cpu", "cuda"):
        words = dict(stage(target))
        assert words["USER"].isdecimal() and words["USER"] != "0"
        assert words["VOLUME"] == "/data"
        assert "cloakwork.api.health_check" in words["HEALTHCHECK"]
        assert words["ENTRYPOINT"] == '["cloakwork"]'
    assert instructions()[-1][0] == "CMD"  # `cpu` is the last stage, so the default


def test_what_the_build_copies_is_there() -> None:
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line
    assert not any(fnmatch.fnmatch("tests", rule[1:]) for rule in (ROOT / ".dockerignore").read_text().splitlines())


@pytest.mark.tier("all")
def test_the_context_has_what_the_build_needs(tmp_path: Path) -> None:
    """CMake configures the engine from it; `make test-release` takes the build steps."""
    copy_context(tmp_path / "source")
    result = configure(tmp_path / "build", "-DCLOAKWORK_CUDA=OFF", source=tmp_path / "source" / "fhe_core")
    assert result.returncode == 0, result.stdout


@pytest.mark.tier("release")
@pytest.mark.os_entropy
@pytest.mark.timeout(1200)
def test_build_steps_and_health_check(tmp_path: Path) -> None:
    """The commands of the `cpu` image in a fresh environment: install from the build context, serve, ask for health.

    With kernels for this processor alone, which takes half the time; `make test-wheels` runs builds of all.
    """
    source, installed = tmp_path / "source", tmp_path / "installed"
    copy_context(source)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("CLOAKWORK_", "SKBUILD_", "PYTHON"))
    }
    for word, rest in stage("build-cpu"):
        if word == "ENV":
            environment.update([rest.split("=", 1)])
            environment["SKBUILD_CMAKE_DEFINE"] += ";CLOAKWORK_KERNELS=native"
        if word == "RUN" and PREFIX in rest:
            command = (
                re.sub(r"^(--\S+\s+)*", "", rest)
                .replace(PREFIX, str(installed))
                .replace("python3 -m venv", f"{sys.executable} -m venv")
            )
            subprocess.run(["bash", "-euc", command], cwd=source, env=environment, check=True, timeout=1000)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serving = {
        **environment,
        "CLOAKWORK_DATA_FOLDER": str(tmp_path / "data"),
        "CLOAKWORK_PORT": str(port),
        "CLOAKWORK_ZOO": "false",
    }
    health = shlex.split(dict(stage("cpu"))["HEALTHCHECK"].split("CMD", 1)[1].strip()[1:-1].replace('", "', '" "'))
    check = [part.replace(PREFIX, str(installed)) for part in health]
    server = subprocess.Popen([installed / "bin" / "cloakwork", "serve", "--insecure-local"], cwd=tmp_path, env=serving)
    try:
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(check, env=serving, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        server.terminate()
        server.wait(30)
