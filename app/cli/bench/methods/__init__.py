"""`cloakwork bench methods`: every way to bootstrap side by side, the founding papers' own parameters among them."""
