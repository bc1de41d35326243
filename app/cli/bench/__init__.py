"""`cloakwork bench ..`: the engine's operations and a service under load, measured."""
