"""Integers of more bits than one look-up takes: plans of bootstraps, their search, tables on them."""
