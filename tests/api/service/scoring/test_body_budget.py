"""Bytes of bodies in memory: limits for all and for one tenant."""

from __future__ import annotations

import pytest

from cloakwork.api.errors import BusyError
from cloakwork.api.service.scoring.body_budget import BodyBudget


def test_bodies_in_memory_are_limited():
    budget = BodyBudget(10, 10)
    with budget.hold("a", 20), pytest.raises(BusyError), budget.hold("a", 1):  # its model limits the first one
        pass
    with budget.hold("a", 5), budget.hold("a", 5):
        pass
    shared = BodyBudget(10, 4)
    with shared.hold("a", 4), pytest.raises(BusyError, match="your requests"), shared.hold("a", 1):
        pass
    with shared.hold("a", 4), shared.hold("b", 4), pytest.raises(BusyError, match="too many requests"):
        shared.hold("c", 4).__enter__()
