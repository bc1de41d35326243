"""The linter of words finds what it says, in the smallest examples, and leaves plain English alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.words import LIMITS, blocks, in_changelog, in_options, in_page, in_readme, in_source, words

PAGE = Path("docs/page.md")
SOURCE = Path("api/source.py")


def page(text: str) -> list[str]:
    return [str(finding) for finding in in_page(PAGE, text)]


def source(text: str) -> list[str]:
    return [str(finding) for finding in in_source(SOURCE, text)]


@pytest.mark.parametrize(
    ("says", "say"), [("It is dropped without a word.", "silently"), ("The file is made up.", "is not valid")]
)
def test_a_phrase_of_a_page_is_found_with_its_line(says: str, say: str) -> None:
    (found,) = page(f"# Title\n\nThe first paragraph.\n\n{says}\n")
    assert found.startswith("docs/page.md:5: ") and found.endswith(f"-> {say}")


def test_code_is_no_english() -> None:
    assert page("```text\nwithout a word\n```\n") == []
    assert page("See:\n\n    without a word\n") == []


def test_long_sentences_and_blocks_are_found() -> None:
    sentence = " ".join(["word"] * LIMITS.sentence)
    assert page(f"{sentence}.\n") == []
    (found,) = page(f"{sentence} more.\n")
    assert "a sentence of 41 words" in found
    (found,) = page("Short words. " * (LIMITS.block // 2) + "More.\n")
    assert "a block of 121 words" in found
    assert page(f"| {sentence}. | {sentence}. |\n|---|---|\n- {sentence}.\n- {sentence}.\n") == []


def test_blocks_have_the_line_that_they_begin_on() -> None:
    text = "A\nparagraph.\n\n- an item\n  of two lines\n- another\n\n| a | b |\n|---|---|\n"
    read = [(block.line, block.text) for block in blocks(text)]
    assert read == [(1, "A paragraph."), (4, "an item of two lines"), (6, "another"), (8, "a"), (8, "b")]


def test_what_has_no_letter_is_no_word() -> None:
    assert words("| two | words |") == 2


def test_summaries_of_public_functions_begin_with_a_verb() -> None:
    (found,) = source('def size(self) -> int:\n    """How many there are."""\n')
    assert found.startswith("api/source.py:2: How ")
    assert source('def size(self) -> int:\n    """Counts them."""\n') == []
    assert source('def _size(self) -> int:\n    """How many there are."""\n') == []
    assert source('@property\ndef size(self) -> int:\n    """The number of them."""\n') == []
    assert source('async def parts(\n    a: tuple[int, ...] = (),\n) -> int:\n    """Of all."""\n')[0].startswith(
        "api/source.py:4:"
    )


@pytest.mark.parametrize("line", ["The number of them.", "[rows]", "By name, in their order.", "That it fits."])
def test_public_functions_have_no_noun_for_a_summary(line: str) -> None:
    (found,) = source(f'def size(self) -> int:\n    """{line}"""\n')
    assert "-> begin with a verb" in found


@pytest.mark.parametrize(
    "line", ["What is said of it.", "Of all keys.", "How jobs are.", "By name: all.", "Dropped without a word."]
)
def test_classes_and_modules_are_named(line: str) -> None:
    (found,) = source(f'"""{line}"""\n')
    assert found.startswith("api/source.py:1: ")
    (found,) = source(f'class Part:\n    """{line}"""\n')
    assert found.startswith("api/source.py:2: ")
    assert source('"""Parts of a file."""\n\n\nclass Part:\n    """A part of a file."""\n') == []


def test_private_functions_are_read_for_phrases() -> None:
    (found,) = source('def _drop(self) -> None:\n    """Drops it without a word."""\n')
    assert found.endswith("-> silently")


def test_texts_of_exceptions_are_read() -> None:
    (found,) = source('raise ValueError(f"{path}: the header is too long; it is made up")\n')
    assert found == "api/source.py:1: made up -> is not valid"


def test_whether_is_for_what_returns_bool() -> None:
    assert source('def there(self) -> bool:\n    """Whether it is there."""\n') == []
    assert len(source('def there(self) -> str:\n    """Whether it is there."""\n')) == 1


def test_help_texts_are_read() -> None:
    text = 'X = typer.Option("--x", help="Of the keys.")\n'
    assert [str(finding) for finding in in_options(Path("app/cli/x.py"), text)] != []


def test_the_readme_has_six_kilobytes() -> None:
    text = ("A line.\n\n" * LIMITS.readme)[: LIMITS.readme]
    assert list(in_readme(Path("README.md"), text)) == []
    (found,) = in_readme(Path("README.md"), text + "!")
    assert str(found) == "README.md:1: 6145 bytes -> at most 6144"


def test_releases_have_ten_items() -> None:
    text = "## 1.0\n\n" + "- item\n" * 11 + "\n## 0.9\n\n" + "- item\n" * 10
    (found,) = in_changelog(Path("CHANGELOG.md"), text)
    assert str(found) == "CHANGELOG.md:1: 11 items of 1.0 -> at most 10"


@pytest.mark.parametrize(
    "code", ["def f(own: int) -> int:\n    return 1\n", "for found in rows:\n    pass\n", "made = [1]\n"]
)
def test_names_that_say_nothing_are_found(code: str) -> None:
    assert "-> what it is" in source(code)[0]
    assert source("class Row:\n    told: str\n") == []  # a field of a file
