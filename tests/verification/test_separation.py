from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.verification.controls import Control
from nsmark.verification.separation import area_under, roc_curve, separations
from nsmark.verification.statistics import Statistics

values = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=12)


@given(innocents=values, thefts=values)
@settings(max_examples=100, deadline=None)
def test_the_area_is_the_chance_that_a_theft_looks_closer(innocents, thefts):
    first, second = np.array(innocents), np.array(thefts)
    wins = (second[:, None] > first).mean() + 0.5 * (second[:, None] == first).mean()
    curve = roc_curve(first, second)
    assert area_under(curve) == pytest.approx(wins)
    assert curve[0] == (0.0, 0.0)
    assert curve[-1] == (1.0, 1.0)
    assert list(curve) == sorted(curve)


def test_separations_compare_what_both_sides_measured():
    innocents = [Control("a", Statistics(predictability=0.3, aligned_predictability=0.2))]
    thefts = [
        Control(
            "b", Statistics(predictability=0.9, extraction_rate=0.9, aligned_predictability=0.8)
        )
    ]
    found = {each.name: each for each in separations(innocents, thefts)}
    assert set(found) == {"predictability", "aligned_predictability"}
    assert all(each.area == 1.0 for each in found.values())
    assert found["aligned_predictability"].closest_innocent == pytest.approx(0.2)
    assert found["aligned_predictability"].farthest_theft == pytest.approx(0.8)
    assert found["predictability"].to_mapping()["area_under_roc"] == 1.0
    assert separations(innocents, []) == []
