"""The page of the service is in every wheel, source distribution and image; without Node a package is complete but for the page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import wheels
from requirements import needs

from tests.test_dockerfile import ROOT, copy_context, stage

pytest.importorskip("scikit_build_core")

WITHOUT_ENGINE = {"wheel.cmake": "false"}  # whose compilation takes minutes


def backend_of(folder: Path) -> ModuleType:
    spec = spec_from_file_location("backend", folder / "web" / "backend.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page_names(names: list[str]) -> set[str]:
    return {name.rpartition("/")[2] for name in names if "api/page/" in name}


def leave_out(source: Path) -> None:
    """What has nothing to do with the page, and takes seconds to compress."""
    for name in ("models", "training", "app", "fhe_core"):
        for folder in (each for each in (source / name).iterdir() if each.is_dir()):
            shutil.rmtree(folder)


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What .dockerignore lets through, where the page was never built."""
    copy_context(tmp_path / "source")
    shutil.rmtree(tmp_path / "source" / "api" / "page", ignore_errors=True)
    monkeypatch.chdir(tmp_path / "source")
    monkeypatch.delenv("CLOAKWORK_PAGE", raising=False)
    return tmp_path / "source"


def test_the_list_of_files_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backend_of(ROOT)
    assert backend.FILES == wheels._PAGE
    script = (ROOT / "web" / "package.json").read_text(encoding="utf-8").partition('"page": "')[2].partition('"\n')[0]
    made = {word.partition("/")[2].replace(".ts", ".js") for word in script.split() if word.startswith("page/")}
    assert made | {"hash-wasm.txt", backend.PROGRAM} == set(backend.FILES)


def test_wheels_and_source_distributions_have_it(
    context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built by Node, for which something stands here that writes files of those names."""
    leave_out(context)
    backend = backend_of(context)
    monkeypatch.setattr(backend, "_why_not", lambda: None)

    def run(*command: str) -> None:
        if "run" in command:
            backend.PAGE.mkdir(parents=True)
            for name in backend.FILES[:-1]:
                (backend.PAGE / name).write_text(name)
        elif "build_wasm.py" in command[1]:
            Path(command[2]).write_bytes(b"\0asm")

    monkeypatch.setattr(backend, "_run", run)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with zipfile.ZipFile(tmp_path / backend.build_wheel(str(tmp_path), WITHOUT_ENGINE)) as wheel:
        assert page_names(wheel.namelist()) == set(backend.FILES)
        assert "cloakwork/api/page/index.html" in wheel.namelist()
        assert not any("backend.py" in name or "node_modules" in name for name in wheel.namelist())
    with tarfile.open(tmp_path / backend.build_sdist(str(tmp_path))) as archive:
        names = archive.getnames()
    assert page_names(names) == set(backend.FILES)
    assert any(name.endswith("/web/backend.py") for name in names), "the back end of a build from it"


def test_without_node_a_package_lacks_the_page_alone(
    context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_out(context)
    backend = backend_of(context)
    monkeypatch.setattr(backend.shutil, "which", lambda name: None)
    with zipfile.ZipFile(tmp_path / backend.build_wheel(str(tmp_path), WITHOUT_ENGINE)) as wheel:
        assert page_names(wheel.namelist()) == set() and "cloakwork/api/__main__.py" in wheel.namelist()
    assert "the page of the service is left out: there is no npm" in capsys.readouterr().err
    monkeypatch.setenv("CLOAKWORK_PAGE", "required")
    with pytest.raises(SystemExit, match="left out"):
        backend.build_wheel(str(tmp_path), WITHOUT_ENGINE)


@pytest.mark.parametrize("name", ["build-cpu", "build-cuda"])
def test_images_get_it_from_a_stage_of_its_own(name: str) -> None:
    steps = stage(name)
    copied = steps.index(("COPY", "--from=page /source/api/page api/page"))
    assert copied > steps.index(("COPY", ". ."))
    (installing,) = [number for number, (word, rest) in enumerate(steps) if word == "RUN" and "pip install" in rest]
    assert copied < installing and ("ENV", "CLOAKWORK_PAGE=required") in steps[:installing]


@pytest.mark.tier("release")
@pytest.mark.os_entropy
def test_the_stage_makes_every_file_of_the_image(context: Path) -> None:
    """Its last command, on what it copies, with this machine's Node and the locked packages."""
    needs(shutil.which("npm"), "npm is not installed")
    needs((ROOT / "web" / "node_modules").is_dir(), "web/node_modules is not there: run 'make web'")
    (context / "web" / "node_modules").symlink_to((ROOT / "web" / "node_modules").resolve())
    command = [rest for word, rest in stage("page") if word == "RUN"][-1]
    assert "backend.build_page()" in command
    command = command.replace("/opt/page/bin/python", sys.executable)
    subprocess.run(["bash", "-euc", command], cwd=context, check=True, timeout=600, env=os.environ.copy())
    backend = backend_of(context)
    assert {path.name for path in backend.PAGE.iterdir()} == set(backend.FILES)
    with zipfile.ZipFile(context.parent / backend.build_wheel(str(context.parent), WITHOUT_ENGINE)) as wheel:
        assert page_names(wheel.namelist()) == set(backend.FILES)
