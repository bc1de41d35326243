"""How large a specification may be, and what its steps may make of samples, from shapes alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set
from cloakwork.models.client_steps import no_samples
from cloakwork.models.client_steps.json_fields import input_steps_from_fields
from cloakwork.models.errors import ShapeError
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.specification_limits import (
    TableSizes,
    check_step_count,
    check_text,
    run_on_no_samples,
)

COLUMNS = {"step": "Columns", "count": 2, "names": None, "missing": False}


def append(*steps: dict[str, Any], columns: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    return {"step": "Append", "columns": list(columns), "steps": list(steps)}


def sizes_of(*fields: dict[str, Any]) -> TableSizes:
    steps, sizes = input_steps_from_fields([COLUMNS, *fields]), TableSizes()
    run_on_no_samples(steps, no_samples(steps), sizes)
    return sizes


def specification(*steps: dict[str, Any], columns: int = 2) -> ClientSpecification:
    fields = {
        "cloakwork_client": 2, "program_digest": "ab" * 32, "parameter_set": "toy", "parameter_digest": parameter_digest(parameter_set("toy")).hex(),
        "input_shape": [columns], "input_range": [-1, 1], "input_scale": 0.125, "output_scale": [1.0], "output_offset": [0.0],
        "client_steps": [], "input_steps": [COLUMNS, *steps], "output_steps": [], "output_unit": 0.0,
    }  # fmt: skip
    return ClientSpecification.from_json(json.dumps(fields))


def test_tables_within_steps_are_seen() -> None:
    """The largest table is made inside of a step that holds steps, and leaves none of it."""
    select = {"step": "Select", "columns": [0]}
    wide = {"step": "Select", "columns": [0] * 1000}
    assert sizes_of(append(wide, select)).widest == 2 + 2 * 1000
    assert sizes_of(append(append(wide, select))).widest == 2 + 2 * 1000
    assert sizes_of(append(wide), select).widest == 2 + 2 * 1002


def test_work_adds_up() -> None:
    one = sizes_of({"step": "Round"}).work
    assert sizes_of(*[{"step": "Round"}] * 10).work - one == 9 * 2
    powers = {"step": "Polynomials", "powers": [[1000, 1000]] * 50}
    assert sizes_of(powers).work > 50 * 2000


@pytest.mark.parametrize("count", [1000, 1001])
def test_steps_within_steps_are_counted(count: int) -> None:
    fields = [COLUMNS, append(*[append(*[{"step": "Round"}] * 8)] * 100), *[{"step": "Round"}] * (count - 902)]
    if count <= 1000:
        check_step_count(fields)
    else:
        with pytest.raises(ValueError, match="at most 1000 steps"):
            check_step_count(fields)


@pytest.mark.parametrize("text", ["[" * (1 << 18) + "[", "{" * (1 << 18) + "{", " " * ((16 << 20) + 1)])
def test_texts_have_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="at most"):
        check_text(text)
    with pytest.raises(SerializationError, match="at most"):
        ClientSpecification.from_json(text)


def test_samples_are_refused_before_a_table_is_made() -> None:
    wide = specification({"step": "Select", "columns": [0] * 100_000}, {"step": "Select", "columns": [0, 1]})
    wide.check_size(np.zeros((80, 2)))
    with pytest.raises(ShapeError, match=r"tables of 200002 numbers .* score at most 83 together"):
        wide.check_size(np.zeros((5000, 2)))


def test_large_samples_of_the_user_are_no_attack() -> None:
    """What is refused is what steps make of samples, not samples."""
    plain = specification({"step": "Round"})
    plain.check_size(np.broadcast_to(0.0, (10**8, 2)))
    plain.check_size([[1.0, 2.0]])


def test_much_work_is_refused() -> None:
    slow = specification({"step": "Polynomials", "powers": [[1000, 1000]] * 2})
    slow.check_size(np.zeros((1000, 2)))
    with pytest.raises(ShapeError, match="compute .* numbers of each sample"):
        slow.check_size(np.zeros((100_000, 2)))


@pytest.mark.parametrize("longest", [1, 10, 64])
def test_pieces_of_texts(longest: int) -> None:
    texts = {
        "step": "Texts", "vocabulary": [], "hashed": 2, "signed": False, "analyzer": "char", "pattern": r"\w+", "lowercase": True, "accents": "",
        "stop": [], "shortest": 1, "longest": longest, "binary": False,
    }  # fmt: skip
    steps, sizes = input_steps_from_fields([texts]), TableSizes()
    run_on_no_samples(steps, no_samples(steps), sizes)
    assert sizes.piece_characters == longest * (longest + 1) // 2
    many = np.array(["a" * 10_000] * 30, dtype=object)
    if sizes.piece_characters > 64:
        with pytest.raises(ShapeError, match="2080 characters of pieces"):
            sizes.check(many)
    else:
        sizes.check(many)
    sizes.check(["short"])
