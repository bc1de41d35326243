"""A data folder belongs to one service."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloakwork.api.service.storage.node import Node
from cloakwork.fhe_core.errors import ParameterError


def test_a_data_folder_has_one_service_and_keeps_its_name(tmp_path: Path):
    first = Node(tmp_path)
    with pytest.raises(ParameterError, match="another service"):
        Node(tmp_path)
    first.release()
    again = Node(tmp_path)
    assert again.name == first.name
    again.release()


@pytest.mark.parametrize("left", [b"", bytes(32), b"0123", b"x" * 64], ids=["nothing", "zeros", "a part", "other"])
def test_what_a_loss_of_power_leaves_of_the_name_is_none(tmp_path: Path, left: bytes):
    (tmp_path / "node").write_bytes(left)
    first = Node(tmp_path)
    first.release()
    again = Node(tmp_path)
    assert len(bytes.fromhex(first.name)) == 16 and again.name == first.name
    again.release()
