"""A compiled program: what it is, how it is stored, what noise is in it, what its client has to know."""

from cloakwork.models.program.program import Program

__all__ = ["Program"]
