"""How a request gets to the engine and back: checks, order among tenants, the engine process, estimates."""
