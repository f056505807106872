"""The controls that an owner wrote into the key: taken only if they are possible."""

from __future__ import annotations

from nsmark.core.null_space import expected_matching_degree
from nsmark.errors import KeyFileError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.verification.control import Control
from nsmark.verification.measure import Statistics

RANK = "rank"
"""Beside the statistics, a control's record holds the rank of its outputs under this name."""


def owner_controls(key: WatermarkKey) -> list[Control]:
    """Return the key's controls.

    A control invented to be far away would move the thresholds until every model passes. What
    no outputs at all can give is refused here; an honest-looking lie is what ``--independent``
    is for.

    Raises:
        KeyFileError: A rate lies outside [0, 1], or a matching degree above its maximum.
    """
    # Rows of unit length that lie wholly in a null space of p ≤ q − 1 dimensions reach this.
    most = expected_matching_degree(key.configuration.num_texts, key.configuration.num_texts)
    controls = []
    for control in key.controls:
        statistics = Statistics.from_mapping(control.triggered)
        rate, degree = statistics.extraction_rate, statistics.invariant_matching_degree
        if (rate is not None and not 0 <= rate <= 1) or (
            degree is not None and not 0 <= degree <= most
        ):
            raise KeyFileError(
                f"the key's control {control.name!r} has statistics that no model can have",
                "the key is forged: refuse it",
            )
        rank = control.triggered.get(RANK)
        controls.append(
            Control(
                control.name,
                statistics,
                None if rank is None else int(rank),
                Statistics.from_mapping(control.untriggered),
            )
        )
    return controls
