"""Key + suspect → evidence → verdict."""

from nsmark.verification.derivations import check_derivations
from nsmark.verification.evidence import Evidence, measure
from nsmark.verification.statistics import STATISTIC_NAMES, Statistics
from nsmark.verification.thresholds import paper_thresholds
from nsmark.verification.verdict import Decision, Verdict, VerdictDetails, judge

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
