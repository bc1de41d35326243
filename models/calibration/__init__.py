"""What samples show of a network's values, and where these end that samples do not show."""

from cloakwork.models.calibration.calibration import Calibration, observe

__all__ = ["Calibration", "observe"]
