"""The stored numbers are today's: what they follow from is as it was, and toys that are measured now have the same numbers."""

from __future__ import annotations

import pytest
from measurements import measure
from records import COMMAND, FILE, changes, differences, load, origin, sets, shortened, stored_set
from toys import ALL_TOYS, by_tier


@pytest.fixture(scope="module")
def records() -> dict[str, dict[str, object]]:
    return load()


def test_every_set_is_stored(records: dict[str, dict[str, object]]) -> None:
    assert list(records) == list(sets()), f"{FILE.name}: sets were added, removed or moved; run {COMMAND}"


@pytest.mark.parametrize("name", sets())
def test_what_the_numbers_follow_from_is_as_it_was(records: dict[str, dict[str, object]], name: str) -> None:
    changed = changes(records.get(name), origin(name))
    assert not changed, (
        f"the stored noise of {name} follows from something else than today's: {'; '.join(changed)}. If the change is meant, "
        f"`make test-release` measures again what changed and writes {FILE.name}; for this set only: {COMMAND} {name}"
    )


@pytest.mark.parametrize("name", by_tier(ALL_TOYS))
def test_a_toy_that_is_measured_now_has_the_stored_numbers(name: str) -> None:
    """Entropy is fixed and the engine exact: what is not equal is a change of the engine, of a row or of the code that measures."""
    different = differences(stored_set(name).facts, shortened(measure(name)))
    assert not different, f"{name} is measured as something else than {FILE.name} says: {'; '.join(different)}"
