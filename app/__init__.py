"""Programs over the engine: the command line (`cli`), and later the client of the scoring service."""
