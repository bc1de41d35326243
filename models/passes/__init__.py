"""The passes, one per file; models/compile/pipeline.py has their order, and what each does."""
