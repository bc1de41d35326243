"""Programs over the engine: the command line (`cli`), the client of the scoring service (`client`), data sets on many machines (`batch`)."""
