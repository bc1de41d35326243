"""Calibration: ranges of a network's values that samples show, and estimates of the tails beyond."""

from cloakwork.models.calibration.calibration import Calibration, observe

__all__ = ["Calibration", "observe"]
