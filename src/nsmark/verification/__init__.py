"""Key + suspect → evidence → verdict."""

from nsmark.verification.decide import Decision, Verdict, decide, paper_thresholds
from nsmark.verification.derivations import check_derivations
from nsmark.verification.measure import STATISTIC_NAMES, Evidence, Statistics, measure

__all__ = [
    "STATISTIC_NAMES",
    "Decision",
    "Evidence",
    "Statistics",
    "Verdict",
    "check_derivations",
    "decide",
    "measure",
    "paper_thresholds",
]
