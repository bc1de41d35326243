"""What the service does, without HTTP: nothing here imports FastAPI."""
