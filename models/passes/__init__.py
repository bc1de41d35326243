"""Passes from graph to graph and their helpers, one per file; models/compile/pipeline.py has their order."""
