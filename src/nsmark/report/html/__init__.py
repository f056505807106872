"""Pages of a verification and of a calibration: one file each, that loads nothing.

What a page says stands in ``report/templates``; ``verification`` and ``calibration`` prepare the
numbers and pictures that it is given. A new chart is a function in ``svg`` drawn with ``chart``,
called by one of the two, and placed in a template with ``figures``.
"""

from nsmark.report.html.calibration import CalibrationFacts, render_calibration
from nsmark.report.html.verification import render_html

__all__ = ["CalibrationFacts", "render_calibration", "render_html"]
