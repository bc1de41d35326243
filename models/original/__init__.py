"""Answers of the user's own model, run beside the compiler, so that its import is judged by something else than itself."""
