"""Pages of a verification and of a calibration: one file each, that loads nothing."""

from nsmark.report.html.calibration import CalibrationFacts, render_calibration
from nsmark.report.html.verification import render_html

__all__ = ["CalibrationFacts", "render_calibration", "render_html"]
