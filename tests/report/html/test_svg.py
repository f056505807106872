"""Scales, ticks and plots: values stand where they belong, and everything has its words."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsmark.report.html.markup import Markup, element
from nsmark.report.html.svg.dumbbell import Pair, dumbbell_plot
from nsmark.report.html.svg.parts import WIDTH, circle, cross, diamond, label_near, square
from nsmark.report.html.svg.scale import Scale, nice_ticks, spaced_ticks
from nsmark.report.html.svg.scatter import scatter_plot
from nsmark.report.html.svg.strip import Strip, strip_plot

finite = st.floats(-1e6, 1e6)


def test_scale_is_a_straight_line_and_pins_what_is_outside():
    scale = Scale(0.0, 10.0, 100.0, 200.0)

    assert [scale(value) for value in (0, 2.5, 10)] == [100, 125, 200]
    assert (scale(-5), scale(99)) == (100, 200)
    assert scale.contains(10.0)
    assert not scale.contains(10.1)
    assert Scale(3.0, 3.0, 0.0, 8.0)(3.0) == 4.0


@given(low=finite, width=st.floats(1e-6, 1e6), most=st.integers(1, 12))
def test_ticks_are_round_inside_and_evenly_spaced(low, width, most):
    ticks = nice_ticks(low, low + width, most)

    assert len(ticks) <= most + 1
    slack = 1e-6 * (abs(low) + width)
    assert all(low - slack <= tick <= low + width + slack for tick in ticks)
    if len(ticks) > 2:
        steps = np.diff(ticks)
        assert np.allclose(steps, steps[0], rtol=1e-3, atol=1e-9 * abs(low))


def test_ticks_are_exact_multiples():
    assert nice_ticks(0, 1, 10) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert nice_ticks(0, 147, 5) == [0, 50, 100]


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (math.nan, 1), (0, math.inf)])
def test_there_are_no_ticks_without_a_range(low, high):
    assert nice_ticks(low, high) == []


def test_spaced_ticks_keep_the_earlier_of_two_that_would_touch():
    def place(value):
        return 100 * value

    assert spaced_ticks((0.5, 0.0, 0.45, 1.0, 9.0), place, lambda v: v <= 1, 20) == [0, 0.5, 1]


def test_labels_turn_inwards_at_the_edges():
    anchors = [
        re.search(r'text-anchor="(\w+)"', label_near(x, 0, "a long label here"))[1]
        for x in (2, WIDTH / 2, WIDTH - 2)
    ]

    assert anchors == ["start", "middle", "end"]


@pytest.mark.parametrize("mark", [circle(3), diamond(3), cross(3), square(3)])
def test_marks_start_at_their_left(mark):
    assert mark(10, 20).startswith("M7 ")


def test_elements_escape_text_and_attributes_but_not_markup():
    made = element("p", "<b>", Markup("<i />"), class_='"x', data_y=None, x=1.04)

    assert made == '<p class="&quot;x" x="1">&lt;b&gt;<i /></p>'


def strip(**changes):
    values = {
        "name": "s",
        "title": "t",
        "description": "d",
        "closeness": float,
        "ticks": (),
        "bounds": (0.0, 1.0),
        "suspect": 0.9,
        "controls": (("a", 0.1), ("b", 0.2)),
        "line": 0.5,
    }
    return Strip(**(values | changes))


def dot_places(plot):
    return [(float(x), float(y)) for x, y in re.findall(r'<path d="M([\d.]+) ([\d.]+)a3\.2', plot)]


def test_strip_has_a_dot_for_every_control_and_words_for_every_dot():
    plot = strip_plot(strip())

    assert plot.count("<title>") == 2
    assert "line 0.500" in plot
    assert "suspect 0.900" in plot
    assert 'id="s-title"' in plot
    assert 'aria-labelledby="s-title s-desc"' in plot
    left, right = sorted(dot_places(plot))
    assert right[0] - left[0] == pytest.approx(0.1 * (WIDTH - 28), abs=0.2)


def test_dots_that_would_cover_each_other_are_stacked():
    places = dot_places(strip_plot(strip(controls=tuple((f"c{i}", 0.3) for i in range(5)))))

    assert len(set(places)) == 5
    assert len({x for x, _ in places}) == 1


def test_suspect_far_beyond_is_pinned_with_an_arrow_and_the_line_stays_in_view():
    plot = strip_plot(strip(bounds=None, suspect=1000.0, line=1.0))

    assert "suspect 1000.000 ▸" in plot
    line = float(re.search(r'<line x1="([\d.]+)"[^>]*stroke-dasharray', plot)[1])
    assert WIDTH / 5 < line < WIDTH * 3 / 4


def test_strip_of_nothing_is_an_axis():
    plot = strip_plot(strip(suspect=None, controls=(), line=None, bounds=None))

    assert "closer to the owner" in plot
    assert "suspect" not in plot


def test_thousands_of_controls_stay_a_small_picture():
    controls = tuple((f"control {i}", i / 5000) for i in range(5000))

    assert len(strip_plot(strip(controls=controls))) < 400_000


def test_dumbbell_draws_closer_to_the_right_whichever_is_larger():
    pair = [Pair("x", 20.0, 60.0)]

    def diamond_at(far, same):
        plot = dumbbell_plot("d", "t", pair, far=far, same=same)
        return float(re.findall(r"M([\d.]+) [\d.]+l5-5", plot)[-1])

    assert diamond_at(100.0, 0.0) > WIDTH / 2 > diamond_at(0.0, 100.0)


def test_dumbbell_describes_missing_values():
    assert "x: – with the trigger, 0.200 without" in dumbbell_plot(
        "d", "t", [Pair("x", None, 0.2)], far=0.0, same=1.0
    )


def test_scatter_keeps_all_points_inside_and_does_not_stretch():
    square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    plot = scatter_plot("s", "t", {"suspect triggered": square * 1e-9})
    path = re.search(r' d="([^"]*)"', plot)[1]
    places = np.array(re.findall(r"M([\d.]+) ([\d.]+)", path), dtype=float)
    width, height = np.ptp(places, axis=0)

    assert width == pytest.approx(height)
    assert places.min() >= 0
    assert places.max() <= WIDTH


def test_scatter_of_equal_points_is_in_the_middle():
    plot = scatter_plot("s", "t", {"suspect triggered": np.ones((3, 2))})

    assert "nan" not in plot
