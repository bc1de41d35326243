"""Applications over the engine."""
