"""Bridges between levelled arithmetic and look-ups, both ways."""
