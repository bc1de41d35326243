"""Inner products of encrypted vectors with a table in clear."""
