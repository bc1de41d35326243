"""The service without HTTP: nothing here imports FastAPI."""
