"""Keys that several parties have together."""
