"""Levelled arithmetic: ciphertexts that are added, multiplied and rotated without bootstrapping, many numbers in each (BGV)."""
