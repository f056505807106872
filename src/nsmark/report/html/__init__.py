"""Pages of a verification and of a calibration: one file each, that loads nothing."""

from nsmark.report.html.calibration.facts import CalibrationFacts
from nsmark.report.html.calibration_page import render_calibration
from nsmark.report.html.page import render_html

__all__ = ["CalibrationFacts", "render_calibration", "render_html"]
