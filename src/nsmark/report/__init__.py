"""Claim, evidence and verdict as one document."""

from nsmark.report.report import Report
from nsmark.report.versions import library_versions

__all__ = ["Report", "library_versions"]
