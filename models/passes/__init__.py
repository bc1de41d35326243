"""From graph to graph, and what that takes, one per file; models/compile/pipeline.py has the order, and what each does."""
