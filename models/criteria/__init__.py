"""Criteria of the compiler's choices: the cheapest parameter set that fits, and how much noise every layer may have."""
