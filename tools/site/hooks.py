"""What MkDocs calls while it builds the site: pages that are made, the navigation over them, links that lead out of docs/."""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import typer.main
from commands import commands_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from notebooks import NOTEBOOKS, notebook_pages
from reference import MODULES, index_page, module_page

from cloakwork.app.cli.main import application

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
DOCUMENTS: Final = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)  # at the top of the repository; pages of the site too
COMMANDS: Final = "reference/commands.md"
MERMAID: Final = (
    ROOT / "build" / "mermaid" / "package" / "dist" / "mermaid.tiny.js"
)  # `make site` fetches it where there is npm
# Of pages in the search, by folder: who looks for a word wants to use it before the reasons for it.
BOOSTS: Final = {
    "guide/": 2,
    "howto/": 1.5,
    "notebooks/": 1.5,
    "decisions/": 0.5,
    "benchmarks/": 0.5,
    "CHANGELOG.md": 0.5,
}
_LINK: Final = re.compile(r"(?P<open>!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?P<target>[^)\s]+)\)")
_INDENTED: Final = re.compile(r"^ {2,3}(?=\S)", re.MULTILINE)
_FENCE: Final = re.compile(r"(^ *```.*?^ *```[^\n]*$)", re.DOTALL | re.MULTILINE)
_REASON: Final = re.compile(r"^( *```\w+) notest=.*$", re.MULTILINE)  # why tests do not run a block
_CODE: Final = re.compile(r"(^ *```.*?^ *```[^\n]*$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills the entries of nav that name a folder, and takes the diagrams' script along where there is one."""
    config.nav = _filled(config.nav)
    if MERMAID.exists():
        config.extra_javascript.append("assets/mermaid.js")
    return config


def _filled(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_filled(each) for each in nav]
    if isinstance(nav, dict):
        return {
            title: _filled(_FOLDERS[to]() if isinstance(to, str) and to in _FOLDERS else to)
            for title, to in nav.items()
        }
    return nav


def _pages_of(folder: str) -> Callable[[], list[str]]:
    """The overview first, then by name."""

    def pages() -> list[str]:
        names = sorted(path.name for path in (ROOT / "docs" / folder).glob("*.md"))
        return [f"{folder}/{name}" for name in sorted(names, key=lambda name: name != "README.md")]

    return pages


def _reference() -> list[dict[str, Any]]:
    return [{each.dotted: each.page} for each in MODULES]


_FOLDERS: Final[dict[str, Callable[[], list[Any]]]] = {
    "howto/coming-from/": _pages_of("howto/coming-from"),
    "decisions/": _pages_of("decisions"),
    "notebooks/": lambda: ["guide/notebooks.md", *(f"notebooks/{path.stem}.md" for path in NOTEBOOKS)],
    "reference/python/": _reference,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what is made, or lies elsewhere in the repository."""
    for path, content in _generated():
        files.append(File.generated(config, path, content=content))
    for name in DOCUMENTS:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    for asset in sorted((HERE / "assets").iterdir()):
        files.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    if MERMAID.exists():
        files.append(File.generated(config, "assets/mermaid.js", abs_src_path=str(MERMAID)))
    for file in files:
        if file.src_uri.endswith(".svg") or not file.is_documentation_page():
            file.inclusion = InclusionLevel.INCLUDED
    return files


def _generated() -> Iterator[tuple[str, str | bytes]]:
    yield "reference/index.md", index_page()
    yield COMMANDS, commands_page(typer.main.get_command(application()), "cloakwork")
    for module in MODULES:
        yield module.page, module_page(module)
    yield from notebook_pages()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are on GitHub, made links of the site; `<details>` have Markdown inside, items of lists are indented by four."""
    source = page.file.src_uri
    page.meta["search"] = {"boost": boost(source)}
    if source in ("reference/index.md", COMMANDS) or source.startswith("reference/python/"):
        return markdown
    if source == "index.md":
        page.meta["hide"] = ["navigation"]
    folder = _folder_of(source)
    text = _outside(
        _FENCE,
        _REASON.sub(r"\1", markdown).replace("<details>", '<details markdown="1">'),
        lambda part: _LINK.sub(lambda match: _link(match, source, folder, files), part),
    )
    text = "".join(map(_by_four, _FENCE.split(text)))
    return _outside(_CODE, text, lambda part: part.replace("][", "]&#91;"))  # an element of an array, no reference


def boost(source: str) -> float:
    """Weigh a page in the search, 1 by default."""
    return next((weight for start, weight in BOOSTS.items() if source.startswith(start)), 1)


def _outside(code: re.Pattern[str], text: str, change: Callable[[str], str]) -> str:
    parts = code.split(text)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def _by_four(part: str) -> str:
    """GitHub takes an item's text that is indented by two or three, Markdown's other readers want four."""
    if part.lstrip(" ").startswith("```"):
        return re.sub(r"^(?=.)", "  ", part, flags=re.MULTILINE) if re.match(r" {2,3}`", part) else part
    indented = _INDENTED.sub("    ", part)
    return re.sub(r"(\n\n(?: {4}.*\n)+)(?=- )", r"\1\n", indented)  # an item that follows another's second paragraph


def _folder_of(source: str) -> str:
    """Where a page lies in the repository."""
    if source in DOCUMENTS:
        return ""
    return "app/notebooks" if source.startswith("notebooks/") else posixpath.dirname(f"docs/{source}")


def _link(match: re.Match[str], source: str, folder: str, files: Files) -> str:
    target, _, anchor = match["target"].partition("#")
    if not target or re.match(r"[a-z+]+:", target):
        return match[0]
    path = posixpath.normpath(posixpath.join(folder, target))  # from the top of the repository
    page = _page_of(path, files) or (posixpath.normpath(posixpath.join(posixpath.dirname(source), target)))
    if files.get_file_from_path(page) is not None:
        there = posixpath.relpath(page, posixpath.dirname(source) or ".")
        return f"{match['open']}({there}{f'#{anchor}' if anchor else ''})"
    if not (ROOT / path).exists():
        return match[0]  # MkDocs says so
    repository = _repository()
    text = match["open"].removeprefix("[").removesuffix("]")
    if repository:
        return f"[{text}]({repository}/blob/main/{path})"
    return f"`{path}`" if path.endswith(text.strip("`")) else f"{text} (`{path}`)"


def _page_of(path: str, files: Files) -> str | None:
    """The site's file of a file of the repository."""
    if path.startswith("app/notebooks/"):
        path = f"docs/notebooks/{Path(path).stem}.md"
    inside = path if path in DOCUMENTS else path.removeprefix("docs/") if path.startswith("docs/") else None
    if path == "README.md":
        inside = "index.md"
    return inside if inside is not None and files.get_file_from_path(inside) is not None else None


def _repository() -> str | None:
    """Where sources are shown, if pyproject.toml says so."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls = project.get("urls", {})
    return next((urls[key].rstrip("/") for key in ("Repository", "Source", "Source Code") if key in urls), None)


def on_post_build(config: MkDocsConfig) -> None:
    """Nothing but the site: the list of pages for search engines names no host of ours."""
    for name in ("sitemap.xml", "sitemap.xml.gz"):
        path = Path(config.site_dir, name)
        if not config.site_url and path.exists():
            path.unlink()
