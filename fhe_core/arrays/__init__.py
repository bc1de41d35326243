"""Words of ciphertexts, and what is known of them: arithmetic, encoding, bounds of messages, noise."""
