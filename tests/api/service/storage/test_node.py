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
