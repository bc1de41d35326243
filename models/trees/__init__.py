"""Ensembles of trees as programs: comparisons, covers by look-ups of integer sums, and their plan."""
