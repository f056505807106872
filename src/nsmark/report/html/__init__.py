"""The page of a verification: one file, for a lawyer and an engineer, that loads nothing."""

from nsmark.report.html.page import render_html

__all__ = ["render_html"]
