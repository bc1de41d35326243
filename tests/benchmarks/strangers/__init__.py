"""Ordinary models, trained without a thought of encryption, and how they fare when compiled.

PYTHONPATH=tests/benchmarks:$PYTHONPATH python -m strangers --help
"""
