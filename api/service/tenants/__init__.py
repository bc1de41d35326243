"""Who asks, what they may do, and what of it they have used."""
