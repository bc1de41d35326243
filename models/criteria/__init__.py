"""By what choices are made: the cheapest parameter set that fits, and how much noise every layer may have."""
