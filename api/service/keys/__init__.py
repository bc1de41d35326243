"""Evaluation keys: their records, and how their bytes come in."""
