"""Where a witness begins to accuse, by how much a suspect resembles the owner's model anyway."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsmark.verification.calibration import NEIGHBOURS, Calibration, lines_for
from nsmark.verification.controls import Control
from nsmark.verification.measure import Statistics
from nsmark.verification.witnesses import EXTRACTION, WITNESSES

_LEAST, _MOST, _NUM_PLACES = 0.02, 21.0, 160

LinesByKinship = dict[str, list[tuple[float, float]]]
"""By witness: its value on untriggered texts, and the line on triggered ones."""


def lines_by_kinship(controls: Sequence[Control], calibration: Calibration) -> LinesByKinship:
    """Draw the lines for suspects of any kinship, from strangers to the owner's own model.

    Args:
        controls: Those that the calibration was made from.
        calibration: Its rate and confidence are kept.
    """
    # With so few models all of them make the line, whatever the kinship.
    few = calibration.num_models <= NEIGHBOURS
    places = np.geomspace(_LEAST, _MOST, 2 if few else _NUM_PLACES)
    witnesses = [witness for witness in WITNESSES if witness is not EXTRACTION]
    found: LinesByKinship = {witness.name: [] for witness in witnesses}
    for place in places:
        kin = {witness.name: witness.value(float(place)) for witness in witnesses}
        # A control may have measured anything: what gives no line is left out.
        with np.errstate(over="ignore", invalid="ignore"):
            lines = lines_for(calibration, controls, Statistics(**kin))
        for line in lines:
            if line.name in kin and np.isfinite(line.threshold):
                found[line.name].append((kin[line.name], line.threshold))
    return {name: line for name, line in found.items() if line}
