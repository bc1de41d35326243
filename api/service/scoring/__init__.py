"""Scoring, from a request to the engine and back: checks, order among tenants, the engine process, estimates."""
