"""The parts together, for the routes."""

from __future__ import annotations

from dataclasses import dataclass

from cloakwork.api.service.administration.actions import Actions
from cloakwork.api.service.administration.listings import Listings
from cloakwork.api.service.administration.load import Load


@dataclass(frozen=True)
class Administration:
    load: Load
    listings: Listings
    actions: Actions
