"""A network or a table's model as a graph: what it is, what its functions are, in which order it is computed, what of it is equal."""
