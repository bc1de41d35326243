"""The Python reference: which modules are public, and a page of Markdown for each, which mkdocstrings fills from docstrings.

`tests/test_site.py` holds that whatever README, docs and notebooks import is here, and that every public name says what it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Module:
    """Of `cloakwork`. `names`: of a module whose others are not for users; empty for all public ones."""

    path: str
    names: tuple[str, ...] = ()
    without: tuple[str, ...] = ()  # of the names that the module exports

    @property
    def dotted(self) -> str:
        return f"cloakwork.{self.path}"

    @property
    def page(self) -> str:
        return f"reference/python/{self.path}.md"


@dataclass(frozen=True)
class Group:
    title: str
    about: str
    modules: tuple[Module, ...]


def _modules(folder: str, *paths: str | Module) -> tuple[Module, ...]:
    found = [path if isinstance(path, Module) else Module(f"{folder}.{path}".strip(".")) for path in paths]
    return tuple(sorted(found, key=lambda each: each.path))


GROUPS: Final = (
    Group(
        "Models",
        "From a trained model to an encrypted program, its report, its files.",
        _modules(
            "models",
            "compiler",
            "compiled",
            "errors",
            "key",
            "loading",
            "model",
            "options",
            "server",
            "program",
            "program.artefact",
            "program.client_specification",
            "report",
            "repository",
            "runtime",
            "runtime.simulate",
            "zoo",
            "linear.compile_linear",
            "linear.linear_model",
            "trees.compile_ensemble",
            "trees.ensemble",
            "trees.options",
            "batches.client",
            "batches.model",
            "neighbours.client",
            "neighbours.facts",
            "neighbours.index",
        ),
    ),
    Group(
        "Training",
        "FHE-aware training, scikit-learn's estimators, data sets.",
        _modules(
            "training",
            Module("training"),
            "batch_compiler",
            "cifar10_data",
            "compiling",
            "estimators",
            "mnist_data",
            "recipes",
            "sklearn_compiler",
            "tabular_data",
        ),
    ),
    Group(
        "Client of a service",
        "Scoring on a server, and data sets on a cluster.",
        _modules("app", "client", "client.keyring", "batch"),
    ),
    Group(
        "Engine: look-ups",
        "Keys, ciphertexts and bootstraps of TFHE; the secret side is `fhe_core.client`, the server's `fhe_core.server`.",
        _modules(
            "fhe_core",
            "ciphertexts",
            "client",
            "encoding",
            Module("fhe_core.engine", ("has_cuda",)),
            "errors",
            "evaluation_keys",
            "gates",
            "keystore",
            "large_precision",
            "lookup_tables",
            "modular_integers",
            Module("fhe_core.noise", without=("NoiseParameters",)),  # what it asks of a parameter set
            "parameters",
            "server",
            "switched_ciphertexts",
            "threshold",
        ),
    ),
    Group(
        "Engine: levelled arithmetic",
        "Sums, products and rotations of encrypted vectors, and bridges to look-ups.",
        _modules(
            "fhe_core.levelled",
            "bridge_client",
            "ciphertexts",
            "client",
            "evaluator",
            "from_lookups",
            "parameters",
            "slots",
            "to_lookups",
        ),
    ),
)
MODULES: Final = tuple(module for group in GROUPS for module in group.modules)


def module_page(module: Module) -> str:
    """The module's docstring, and every public name."""
    lines = [f"# {module.path}", "", f"::: {module.dotted}"]
    if module.names:
        lines += ["    options:", f"      members: [{', '.join(module.names)}]"]
    if module.without:
        lines += ["    options:", f"      filters: {['!^_', *(f'!^{name}$' for name in module.without)]}"]
    return "\n".join(lines) + "\n"


def index_page() -> str:
    lines = ["# Reference", ""]
    lines += [
        "- Python, from the docstrings of this version: below, by what it is for.",
        "- [Commands](commands.md) with every option, from the program; [the page about them](command-line.md) has their JSON.",
        "- [Operators](operators.md) of ONNX, [parameter sets](parameters.md), [formulas](specification.md), [files](wire_format.md).",
        "- The service's HTTP interface: [routes](../howto/service.md#routes), and `/docs` of a running service.",
    ]
    for group in GROUPS:
        lines += ["", f"## {group.title}", "", group.about, ""]
        lines += [f"- [`cloakwork.{each.path}`]({each.page.removeprefix('reference/')})" for each in group.modules]
    return "\n".join(lines) + "\n"
