"""Batches of encrypted samples, one sample a slot: linear models, polynomial and radial kernels by levelled arithmetic."""
