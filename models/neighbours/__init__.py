"""Nearest neighbours of encrypted queries in a table that a server holds in clear."""
