"""HTTP: every route reads a request, calls a service, and writes an answer."""
