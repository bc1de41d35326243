"""From an imported graph to a program: what was asked for (options), how far it has come (compilation), and the ordered steps (pipeline)."""
