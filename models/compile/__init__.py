"""The compiler from an imported graph to a program: options, state (compilation), and the ordered steps (pipeline)."""
