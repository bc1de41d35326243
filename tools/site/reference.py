"""The Python reference: the public modules, and a page of Markdown for each, which mkdocstrings fills from docstrings.

`tests/test_site.py` holds that README, docs and notebooks import nothing else, and that every public name says what it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Final


@dataclass(frozen=True)
class Module:
    """A public module; its names are those of its `__all__`."""

    dotted: str
    about: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(import_module(self.dotted).__all__)

    @property
    def page(self) -> str:
        return f"reference/python/{self.dotted.removeprefix('cloakwork.')}.md"


MODULES: Final = (
    Module("cloakwork", "Compile, load, encrypt, answer, decrypt."),
    Module("cloakwork.estimators", "scikit-learn's estimators, which also score encrypted samples."),
    Module("cloakwork.training", "PyTorch modules prepared for encryption."),
    Module("cloakwork.client", "The client of a service."),
    Module("cloakwork.batch", "Data sets of ciphertexts, scored on a cluster."),
    Module("cloakwork.datasets", "Data sets of the zoo's models."),
    Module("cloakwork.errors", "Exceptions and warnings."),
    Module("cloakwork.engine", "Keys, ciphertexts, bootstraps and levelled arithmetic, without a model."),
)


def module_page(module: Module) -> str:
    """The module's docstring, and every public name."""
    lines = [f"# {module.dotted}", "", f"::: {module.dotted}", "    options:", "      members:"]
    return "\n".join([*lines, *(f"        - {name}" for name in module.names)]) + "\n"


def index_page() -> str:
    lines = ["# Reference", "", "## Python", ""]
    lines += [f"- [`{each.dotted}`]({each.page.removeprefix('reference/')}): {each.about}" for each in MODULES]
    lines += [
        "",
        "## The rest",
        "",
        "- [Commands](commands.md) with every option, from the program; [the page about them](command-line.md) has their JSON.",
        "- [Operators](operators.md) of ONNX, [parameter sets](parameters.md), [formulas](specification.md), [files](wire_format.md).",
        "- The service's HTTP interface: [routes](../howto/service.md#routes), and `/docs` of a running service.",
    ]
    return "\n".join(lines) + "\n"
