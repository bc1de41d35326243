"""Which models are served, in which versions, to whom."""
