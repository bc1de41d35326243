"""Approximate programs: scales, integer weights and parameter sets under which noise stays below a limit."""
