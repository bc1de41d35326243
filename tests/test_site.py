"""The site: what its reference and its pages of commands hold, its link check, and, where `make site` has built it, that it works from files."""

from __future__ import annotations

import ast
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import bars
import click
import commands
import links
import notebooks
import page_tables
import plots
import pytest
import reference
import typer.main
from requirements import needs

from cloakwork.app.cli.main import application

REPOSITORY = Path(__file__).resolve().parents[1]
SITE = REPOSITORY / "build" / "site"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Notebooks about the engine's own steps and its noise, and one that draws digits as the command line does.
INSIDE = {
    "bootstrap_step_by_step.ipynb": ("cloakwork.fhe_core",),
    "noise_and_failure.ipynb": ("cloakwork.fhe_core",),
    "mnist.ipynb": ("cloakwork.app.cli",),
}


# --- The reference -------------------------------------------------------------------------------------------------------------------


def python_of_documents() -> Iterator[tuple[str, str]]:
    """Where, and a block of Python."""
    for path in [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md"))]:
        for block in re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            yield path.name, block
    for path in notebooks.NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            if cell["cell_type"] == "code":
                yield path.name, re.sub(r"^([%!].*)$", "", "".join(cell["source"]), flags=re.MULTILINE)


def imported() -> Iterator[tuple[str, str, str]]:
    """Where, the module, and the name that is imported from it."""
    for where, block in python_of_documents():
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cloakwork"):
                yield from ((where, node.module or "", alias.name) for alias in node.names)


def test_what_documents_import_is_in_the_reference() -> None:
    public = {module.dotted: module.names for module in reference.MODULES}
    missing = {
        (where, f"{module}.{name}")
        for where, module, name in imported()
        if name not in public.get(module, ()) and not module.startswith(INSIDE.get(where, ("-",)))
    }
    assert len(set(imported())) > 40
    assert sorted(missing) == []


def test_the_front_door_is_small() -> None:
    """Names and modules to learn. A name of two modules counts once."""
    assert len(reference.MODULES) <= 12
    assert len({name for module in reference.MODULES for name in module.names}) <= 120


def read_by_griffe(name: str, *extensions: Any) -> Any:
    """Read a package as the site does."""
    griffe = pytest.importorskip("griffe", reason="the site's tools are not installed: run 'make site'")
    loader = griffe.GriffeLoader(search_paths=[REPOSITORY], extensions=griffe.Extensions(*extensions))
    loader.load(name)
    loader.resolve_aliases()
    return loader.modules_collection


@pytest.fixture(scope="module")
def sources() -> Any:
    """The package, without comments on fields, which take as long again."""
    return read_by_griffe("cloakwork")


def public_members(module: Any, shown: reference.Module) -> Iterator[tuple[str, Any]]:
    """Names of a module, and of its classes, that the reference shows."""
    for name in shown.names:
        member = module.members[name]
        member = member.final_target if member.is_alias else member
        yield name, member
        if member.is_class:
            inside = (
                (key, each) for key, each in member.members.items() if not key.startswith("_") and not each.is_alias
            )
            yield from ((f"{name}.{key}", each) for key, each in inside)


@pytest.mark.tier("all")
def test_public_names_say_what_they_are(sources: Any) -> None:
    """Fields and constants may do so by their names and types alone."""
    silent = []
    for module in reference.MODULES:
        read = sources[module.dotted]
        assert read.has_docstring, module.dotted
        members = dict(public_members(read, module))
        assert members, module.dotted
        silent += [
            f"{module.dotted}.{name}"
            for name, each in members.items()
            if not each.has_docstring and (not each.is_attribute or "property" in each.labels)
        ]
    assert silent == []


def test_comments_of_fields_are_their_docstrings() -> None:
    comments = pytest.importorskip("comments", reason="the site's tools are not installed: run 'make site'")
    card = read_by_griffe("cloakwork.models", comments.TrailingComments())["cloakwork.models.zoo.Card"]
    assert card["data"].docstring.value.startswith("Data set that it was trained on")
    assert card["name"].docstring is None


def test_every_module_of_the_reference_has_a_page() -> None:
    index = reference.index_page()
    for module in reference.MODULES:
        assert f"::: {module.dotted}\n" in reference.module_page(module)
        assert f"({module.page.removeprefix('reference/')})" in index
    assert len({module.page for module in reference.MODULES}) == len(reference.MODULES)


@pytest.mark.tier("all")
def test_calls_of_ours_beside_others_exist(sources: Any) -> None:
    """In the tables of docs/howto/coming-from, on the right."""
    known = {"print"}
    for module in reference.MODULES:
        for name, member in public_members(sources[module.dotted], module):
            known |= {name.rpartition(".")[2], *(member.all_members if member.is_class else ())}
    named = set()
    for page in sorted((REPOSITORY / "docs" / "howto" / "coming-from").glob("*.md")):
        rows = re.findall(r"^\|[^|\n]*\|([^|\n]*)\|$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        named |= {
            (page.name, name)
            for row in rows
            for code in re.findall(r"`([^`]+)`", row)
            for name in re.findall(r"(\w+)\(", code)
        }
    assert len(named) > 40
    assert (
        sorted((page, name) for page, name in named if name not in known and name != "compile") == []
    )  # of all estimators


# --- The command line ----------------------------------------------------------------------------------------------------------------


def every_command(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from every_command(each, f"{path} {name}")


def test_every_command_and_option_is_on_the_page() -> None:
    program = typer.main.get_command(application())
    page = commands.commands_page(program, "cloakwork")
    sections = dict(re.findall(r"^#+ (cloakwork[^\n]*)\n(.*?)(?=^#|\Z)", page, re.DOTALL | re.MULTILINE))
    shown = {path: command for path, command in every_command(program, "cloakwork") if not command.hidden}
    assert set(sections) == set(shown) and len(shown) > 40
    options = 0
    for path, command in shown.items():
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden and option.name != "help":
                options += 1
                assert re.search(rf"^\| `[^`]*{option.opts[0]}\b", sections[path], re.MULTILINE), (path, option.opts)
    assert options > 200


def test_a_page_of_commands_in_full() -> None:
    @click.group(name="tool")
    def tool() -> None:
        """Does things."""

    @tool.command()
    @click.argument("file")
    @click.option("--count", "-c", default=3, show_default=True, help="How many | of them.")
    @click.option("--fast", is_flag=True, help="Soon.")
    @click.option("--name", required=True, multiple=True, help="Whose.")
    def work(file: str, count: int, fast: bool, name: tuple[str, ...]) -> None:
        """Works. Then rests."""

    page = commands.commands_page(tool, "tool")
    assert "| [`work`](#tool-work) | Works. |" in page
    assert "| `-c, --count INTEGER` | How many \\| of them. *(default: 3)* |" in page
    assert "| `--fast` | Soon. |" in page
    assert "| `--name TEXT` | Whose. *(required)* |" in page
    assert "```\ntool work [OPTIONS] FILE\n```" in page


# --- Notebooks and links -------------------------------------------------------------------------------------------------------------


def test_notebooks_become_pages_with_their_pictures() -> None:
    files = dict(notebooks.notebook_pages())
    for path in notebooks.NOTEBOOKS:
        page = files[f"notebooks/{path.stem}.md"]
        assert isinstance(page, str) and page.startswith("# ") and "\x1b" not in page
        pictures = re.findall(r"\]\(([\w-]+\.(?:png|svg))\)", page)
        assert all(f"notebooks/{name}" in files for name in pictures)
    assert any(str(content)[:8] == str(b"\x89PNG")[:8] for content in files.values() if isinstance(content, bytes))


def test_broken_links_and_other_hosts_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">x</a><a href="https://example.org">y</a><h1 id="top">z</h1><a href="#top">u</a>',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<p id="here"><img src="c.png">', encoding="utf-8")
    (tmp_path / "c.png").write_bytes(b"")
    assert links.broken(tmp_path) == [] and links.main(str(tmp_path)) == 0
    (tmp_path / "b.html").write_text(
        '<p id="there"><img src="none.png"><script src="https://example.org/x.js"></script><a href="/a.html">v</a>'
        '<a href="../outside.html">w</a>',
        encoding="utf-8",
    )
    (tmp_path / "s.css").write_text("@import 'https://example.org/font.css';", encoding="utf-8")
    assert links.broken(tmp_path) == [
        "a.html: b.html#here: no such anchor",
        "b.html: /a.html: not relative: it breaks where the site is opened from files",
        "b.html: ../outside.html: no such file",
        "b.html: none.png: no such file",
        "b.html: https://example.org/x.js: another host",
        "s.css: https://example.org/font.css: another host",
    ]
    assert links.main(str(tmp_path)) == 1
    assert links.main(str(tmp_path / "empty")) == 1


def test_links_lead_to_pages_of_the_site_and_lists_are_read_alike() -> None:
    files = pytest.importorskip("mkdocs.structure.files", reason="the site's tools are not installed: run 'make site'")
    config = pytest.importorskip("mkdocs.config.defaults").MkDocsConfig()
    hooks = pytest.importorskip("hooks")
    known = (
        "index.md",
        "SECURITY.md",
        "howto/trees.md",
        "guide/README.md",
        "guide/keys.md",
        "notebooks/mnist.md",
        "images/keys.svg",
    )
    site = files.Files([files.File(name, "docs", "site", False) for name in known])

    def shown(text: str, source: str) -> str:
        page = files.File(source, "docs", "site", False)
        return str(hooks.on_page_markdown(text, Named(page), config, site))

    assert (
        shown("[s](../../SECURITY.md#a) ![k](../images/keys.svg)", "guide/keys.md")
        == "[s](../SECURITY.md#a) ![k](../images/keys.svg)"
    )
    assert shown("[n](../../app/notebooks/mnist.ipynb)", "howto/trees.md") == "[n](../notebooks/mnist.md)"
    assert shown("[t](docs/howto/trees.md) [r](README.md)", "SECURITY.md") == "[t](howto/trees.md) [r](index.md)"
    assert shown("[k](../docs/guide/keys.md), [o](mnist.ipynb)", "notebooks/mnist.md").startswith(
        "[k](../docs/guide"
    )  # no such file
    assert (
        shown("[k](../../docs/guide/keys.md), [o](mnist.ipynb)", "notebooks/mnist.md")
        == "[k](../guide/keys.md), [o](mnist.md)"
    )
    assert (
        shown("[Dockerfile](../../Dockerfile), [gates](../../fhe_core/gates.py)", "howto/trees.md")
        == "`Dockerfile`, gates (`fhe_core/gates.py`)"
    )
    assert shown("a[i][j] `b[i][j]`\n```\nc[i][j]\n```", "howto/trees.md") == "a[i]&#91;j] `b[i][j]`\n```\nc[i][j]\n```"
    assert hooks.boost("guide/keys.md") > hooks.boost("index.md") == 1 > hooks.boost("decisions/site.md")
    assert shown("- a\n\n  b\n- c", "howto/trees.md") == "- a\n\n    b\n\n- c"
    assert shown("- a\n\n  ```\n  x\n  ```\n", "howto/trees.md") == "- a\n\n    ```\n    x\n    ```\n"


@dataclass
class Named:
    """As much of a page of MkDocs as its hooks look at."""

    file: Any
    meta: dict[str, Any] = field(default_factory=dict)


# --- Plots ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", plots.PICTURES)
def test_pictures_are_what_their_sources_say(name: str) -> None:
    """Else: `python tools/site/plots.py`."""
    assert (REPOSITORY / name).read_text(encoding="utf-8") == plots.PICTURES[name]()


def test_tables_of_a_page_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n| a | b |\n|---|---|\n| x | 1 |\n\n## Two\n\n| a | c, ms (least) |\n|---|---|\n| `p\\|q` | 1,234.5 (1,000) |\n| r | |\n",
        encoding="utf-8",
    )
    rows = page_tables.table(page, "## Two", "a", "c, ms")
    assert [page_tables.plain(page_tables.cell(row, "a")) for row in rows] == ["p|q", "r"]
    assert [page_tables.number(page_tables.cell(row, "c")) for row in rows] == [1234.5, None]
    assert page_tables.table(page, "# One", "a", "b") == [{"a": "x", "b": "1"}]
    with pytest.raises(LookupError, match="page.md: no table under '## Two' with the headings d"):
        page_tables.table(page, "## Two", "d")


def test_bars_are_in_proportion_and_read_aloud() -> None:
    svg = bars.bars_svg(bars.Bars("Title & more", "per second", ["one", "two"], {"a": [10, 40], "b": [None, 20]}))
    root = ElementTree.fromstring(svg)
    widths = [
        float(each.get("width", 0))
        for each in root.iter()
        if each.get("class") in ("first", "second") and each.get("height") == "13"
    ]
    assert [width / widths[3] for width in widths[2:]] == pytest.approx(
        [0.25, 1, 0.5], abs=0.01
    )  # two of the legend come first
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "Title & more"
    assert root.findtext("{http://www.w3.org/2000/svg}desc") == "per second. one: a 10; two: a 40, b 20."
    logarithmic = bars.bars_svg(bars.Bars("T", "n", ["x", "y", "z"], {"a": [1, 10, 100]}, logarithmic=True))
    lengths = [float(width) for width in re.findall(r'class="first"[^>]* width="([\d.]+)"', logarithmic)]
    assert lengths[1] - lengths[0] == pytest.approx(lengths[2] - lengths[1], abs=0.2)


# --- The built site ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Path:
    needs((SITE / "index.html").exists(), "build/site is not there: run 'make site'")
    return SITE


@pytest.mark.tier("all")
def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    assert links.broken(site) == []


@pytest.mark.tier("all")
def test_no_mark_of_markdown_is_left_on_a_page(site: Path) -> None:
    """A list or a table that MkDocs reads as text, where GitHub does not."""
    left = []
    for path in sorted(site.rglob("*.html")):
        article = path.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
        text = re.sub(r"<(pre|code)[ >].*?</\1>", "", article, flags=re.DOTALL)
        for paragraph in re.findall(r"<p>(.*?)</p>", text, flags=re.DOTALL):
            plain = unescape(re.sub(r"<[^>]+>", "", paragraph))
            if re.search(r"^\s*(?:[-*|]|\d+\.) |```|\*\*|\]\(", plain, flags=re.MULTILINE):
                left.append(f"{path.relative_to(site)}: {plain[:80]}")
    assert left == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    needs(BROWSER, "no Chromium is installed: the package chromium has it")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(site: Path, browser: Any) -> Iterator[Any]:
    """A page that refuses all but files, and at its end has had no error and asked nobody."""
    complaints: list[str] = []
    page = browser.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("request", lambda asked: complaints.append(asked.url) if re.match(r"(?:https?|wss?):", asked.url) else None)
    yield page
    page.close()
    assert complaints == []


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_search_works_from_files(page: Any, site: Path) -> None:
    page.goto((site / "guide" / "index.html").as_uri())
    page.get_by_role("textbox", name="Search").click()
    page.get_by_role("textbox", name="Search").press_sequentially("rerandomise")
    found = page.locator(".md-search-result__link").first
    found.wait_for()
    found.click()
    page.wait_for_url(re.compile(r"\.html"))
    assert "andomise" in page.locator("article").inner_text()


@pytest.mark.tier("all")
@pytest.mark.os_entropy
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize(
    "name",
    [
        "index",
        "guide/quick-start",
        "reference/python/engine",
        "reference/commands",
        "explanation/architecture",
    ],
)
def test_pages_fit_the_window_and_ask_nobody(page: Any, site: Path, name: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto((site / f"{name}.html").as_uri())
    page.locator("article h1").wait_for()
    drawings = page.locator(".mermaid").count()
    if (site / "assets" / "mermaid.js").exists():
        assert (drawings > 2) == (name == "explanation/architecture")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
