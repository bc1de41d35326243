"""Execution of graphs and programs: in clear, with the noise of the model, or on ciphertexts."""

from cloakwork.models.runtime.encrypted import (
    WORKING_BYTES,
    Progress,
    Runtime,
    samples_at_once,
    samples_in_memory,
    shifted_progress,
)

__all__ = ["WORKING_BYTES", "Progress", "Runtime", "samples_at_once", "samples_in_memory", "shifted_progress"]
