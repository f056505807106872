"""Black-box access to models; nothing here knows about watermarks."""

from nsmark.suspects.base import Suspect, open_suspect
from nsmark.suspects.options import QueryOptions, QueryPlan
from nsmark.suspects.recorded import RecordedOutputs, load_recorded, save_recorded

__all__ = [
    "QueryOptions",
    "QueryPlan",
    "RecordedOutputs",
    "Suspect",
    "load_recorded",
    "open_suspect",
    "save_recorded",
]
