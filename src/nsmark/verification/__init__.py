"""Key + suspect → evidence → verdict."""

from nsmark.verification.derivations import check_derivations
from nsmark.verification.measure import STATISTIC_NAMES, Evidence, Statistics, measure
from nsmark.verification.verdict import Decision, Verdict, VerdictDetails, judge, paper_thresholds

__all__ = [
    "STATISTIC_NAMES",
    "Decision",
    "Evidence",
    "Statistics",
    "Verdict",
    "VerdictDetails",
    "check_derivations",
    "judge",
    "measure",
    "paper_thresholds",
]
