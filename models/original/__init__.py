"""What the user's own model says: run beside the compiler, so that its import is judged by something else than itself."""
