"""The report in four lines."""

from __future__ import annotations

import pytest

from cloakwork.models import zoo
from cloakwork.models.report import bytes_line
from cloakwork.models.report.disclosure import Disclosure
from cloakwork.models.report.text import UNKNOWN


@pytest.mark.parametrize(
    ("name", "answers", "like"),
    [("mnist-mlp-1x30", "the answers", "as your model: 9"), ("iris-tree", "scores", UNKNOWN)],
)
def test_a_program_has_four_lines(name: str, answers: str, like: str) -> None:
    model = zoo.load_model(name)
    accuracy, seconds, sizes, learns = str(model).splitlines()
    fields = model.report()
    assert accuracy.startswith(like)
    assert "'cloakwork calibrate-machine' measures this machine" in seconds or " here (" in seconds
    assert f"{fields['input_ciphertext_bytes']:,} up and {fields['output_ciphertext_bytes']:,} down" in sizes
    assert sizes.endswith(f"evaluation keys of {fields['upload_bytes']:,} once")
    assert learns.startswith(f"a client learns: {answers}, and of the model ")
    assert "layer, noise in per cent" in model.details


def test_keys_are_named_if_there_are_any() -> None:
    assert bytes_line(1000.4, 2, 0) == "bytes to send: 1,000 up and 2 down for one sample; no evaluation keys"
    assert bytes_line(1, 2, None).endswith("; evaluation keys once")


@pytest.mark.parametrize(
    ("disclosure", "text"),
    [
        (Disclosure("scales and offsets of outputs", 1), "1 scale and offset of outputs"),
        (Disclosure("categories of the training data", 1), "1 category of the training data"),
        (Disclosure("values that features are compared with", 1), "1 value that features are compared with"),
        (Disclosure("labels", 3), "3 labels"),
    ],
)
def test_one_is_not_several(disclosure: Disclosure, text: str) -> None:
    assert disclosure.text() == text
