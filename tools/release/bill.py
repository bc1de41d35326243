"""The bill of materials (CycloneDX) and the list of licences: what is in each wheel that is not ours."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from variants import Variant

BILL: Final = "cloakwork.cdx.json"
LICENCES: Final = "LICENCES.md"
_LAST: Final = """
Texts that have to go along are in each wheel, `cloakwork-*.dist-info/licenses/`. Neither the C++ library of GCC, glibc, cuBLAS nor the
CUDA driver is in a wheel: they are looked up on the machine. What the package needs from an index (NumPy, ONNX, cryptography, ..) is in
its metadata, `Requires-Dist`, and comes from there."""


@dataclass(frozen=True)
class Part:
    """Something of others in a wheel. Texts of licences that have to go along are in licenses/. Args: licence: SPDX; purl: as indices name it."""

    name: str
    version: str
    licence: str
    how: str
    purl: PackageURL


def parts_of(variant: Variant, root: Path, cuda_release: str | None, has_page: bool) -> list[Part]:
    """Lists what wheels of a variant contain beside our code."""
    lines = (root / "constraints.txt").read_text(encoding="utf-8").split()
    pybind = dict(line.split("==") for line in lines if "==" in line)["pybind11"]
    parts = [
        Part("pybind11", pybind, "BSD-3-Clause", "headers, compiled into the engine", _purl("pypi", "pybind11", pybind))
    ]
    if variant.compiler == "zig":
        parts.append(_llvm("libc++, libc++abi, libunwind and compiler-rt", "linked into the engine"))
    else:
        gcc, how = _said("c++", "-dumpfullversion"), "templates of its headers; the library itself is the system's"
        parts.append(
            Part("libstdc++", gcc, "GPL-3.0-or-later WITH GCC-exception-3.1", how, _purl("generic", "gcc", gcc))
        )
    if variant.cuda and cuda_release is not None:
        how, purl = (
            "linked into the engine, as attachment A of the agreement allows",
            _purl("generic", "cudart_static", cuda_release),
        )
        parts.append(Part("CUDA Runtime", cuda_release, "LicenseRef-NVIDIA-CUDA-EULA", how, purl))
    return parts + (_parts_of_page(root) if has_page else [])


def _parts_of_page(root: Path) -> list[Part]:
    packages = json.loads((root / "web" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    wasm, wasi = "linked into api/page/client.wasm", f"zig {_said(sys.executable, '-m', 'ziglang', 'version')}"
    hashes = packages["node_modules/hash-wasm"]["version"]
    return [
        Part("hash-wasm", hashes, "MIT", "in the page, api/page/*.js", _purl("npm", "hash-wasm", hashes)),
        _llvm("libc++, libc++abi and libunwind for WebAssembly", wasm),
        Part("wasi-libc", wasi, "Apache-2.0 WITH LLVM-exception AND MIT", wasm, _purl("generic", "wasi-libc", wasi)),
    ]


def write_bill(output: Path, root: Path, variants: dict[str, Variant], cuda_release: str | None) -> None:
    """Writes BILL and LICENCES beside the wheels. Args: variants: by wheel. Raises: SystemExit where the bill is not what its schema says."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    has_page = (root / "api" / "page" / "index.html").is_file()
    licences = LicenseFactory()
    bill = Bom()
    ours = Component(
        name="cloakwork",
        version=project["version"],
        type=ComponentType.LIBRARY,
        licenses=[licences.make_from_string(project["license"])],
        purl=PackageURL("pypi", None, "cloakwork", project["version"]),
        bom_ref="cloakwork",
    )
    bill.metadata.component = ours
    components: dict[tuple[str, str], Component] = {}
    files = []
    lines = [
        "# What of others is in the wheels",
        "",
        "| wheel | part | version | licence | how |",
        "|---|---|---|---|---|",
    ]
    for name, variant in sorted(variants.items()):
        wheel = output / name
        file = Component(
            name=wheel.name,
            type=ComponentType.FILE,
            bom_ref=wheel.name,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(wheel.read_bytes()).hexdigest())],
        )
        files.append(file)
        inside = []
        for part in parts_of(variant, root, cuda_release, has_page):
            inside.append(components.setdefault((part.name, part.version), _component(part, licences)))
            lines.append(f"| `{wheel.name}` | {part.name} | {part.version} | {part.licence} | {part.how} |")
        bill.components.add(file)
        bill.register_dependency(file, inside)
    for component in components.values():
        bill.components.add(component)
        bill.register_dependency(component)
    bill.register_dependency(ours, files)
    text = JsonV1Dot6(bill).output_as_string(indent=2)
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"{BILL}: {problem}")
    (output / BILL).write_text(text + "\n", encoding="utf-8")
    lines += [_LAST]
    (output / LICENCES).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _component(part: Part, licences: LicenseFactory) -> Component:
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.LIBRARY,
        licenses=[licences.make_from_string(part.licence)],
        purl=part.purl,
        bom_ref=f"{part.name} {part.version}",
        properties=[Property(name="cloakwork:how", value=part.how)],
    )


def _llvm(name: str, how: str) -> Part:
    version_text = _said(sys.executable, "-m", "ziglang", "c++", "--version")
    match = re.search(r"clang version (\S+)", version_text)
    version = match[1] if match else "unknown"
    return Part(name, version, "Apache-2.0 WITH LLVM-exception", how, _purl("generic", "llvm", version))


def _purl(kind: str, name: str, version: str) -> PackageURL:
    return PackageURL(kind, None, name, version)


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()
