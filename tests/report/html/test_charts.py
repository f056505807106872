"""Scales, ticks and charts: values stand where they belong, and everything has its words."""

import math
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from nsmark.report.html.markup import element
from nsmark.report.html.svg.chart import (
    WIDTH,
    Chart,
    Scale,
    circle,
    cross,
    diamond,
    nice_ticks,
    spaced_ticks,
    square,
)
from nsmark.report.html.svg.closeness import Strip, dumbbell_plot, strip_plot
from nsmark.report.html.svg.pair_code import Group, grid_plot, sides_plot
from nsmark.report.html.svg.planes import kinship_plot, roc_plot, scatter_plot
from nsmark.verification.statistics import STATISTICS

finite = st.floats(-1e6, 1e6)


def test_scale_is_a_straight_line_and_pins_what_is_outside():
    scale = Scale(0.0, 10.0, 100.0, 200.0)

    assert [scale(value) for value in (0, 2.5, 10, -5, 99)] == [100, 125, 200, 100, 200]
    assert [scale.contains(value) for value in (10.0, 10.1)] == [True, False]
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


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),  # exact multiples
        (0, 147, [0, 20, 40, 60, 80, 100, 120, 140]),
        (1, 1, []),
        (2, 1, []),
        (math.nan, 1, []),
        (0, math.inf, []),
    ],
)
def test_ticks(low, high, ticks):
    assert nice_ticks(low, high, 10) == ticks


def test_spaced_ticks_keep_the_earlier_of_two_that_would_touch():
    scale = Scale(0, 1, 0, 100)

    assert spaced_ticks((0.5, 0.0, 0.45, 1.0, 9.0), float, scale, 20) == [0, 0.5, 1]


@pytest.mark.parametrize(("x", "anchor"), [(2, "start"), (WIDTH / 2, "middle"), (WIDTH, "end")])
def test_labels_turn_inwards_at_the_edges(x, anchor):
    chart = Chart("c", "t", "d")
    chart.label_near(x, 0, "a long label here")

    assert f'text-anchor="{anchor}"' in chart.svg(10)


@pytest.mark.parametrize("mark", [circle(3), diamond(3), cross(3), square(3)])
def test_marks_start_at_their_left(mark):
    assert mark(10, 20).startswith("M7 ")


def test_elements_escape_text_and_attributes_but_not_markup():
    made = element("p", "<b>", Markup("<i />"), class_='"x', data_y=None, x=1.04)

    assert made == '<p class="&#34;x" x="1">&lt;b&gt;<i /></p>'


VALUES = {
    "closeness": float,
    "bounds": (0.0, 1.0),
    "suspect": 0.9,
    "innocents": (("a", 0.1), ("b", 0.2)),
    "line": 0.5,
}


def strip(**changes):
    return strip_plot("s", "t", "d", Strip(**(VALUES | changes)))


def dot_places(plot):
    return [(float(x), float(y)) for x, y in re.findall(r'<path d="M([\d.]+) ([\d.]+)a3\.2', plot)]


def test_strip_has_a_dot_for_every_control_and_words_for_every_dot():
    plot = strip()

    assert plot.count("<title>") == 2
    assert all(said in plot for said in ("line 0.500", "suspect 0.900", 'id="s-title"'))
    assert 'aria-labelledby="s-title s-desc"' in plot
    left, right = sorted(dot_places(plot))
    assert right[0] - left[0] == pytest.approx(0.1 * (WIDTH - 28), abs=0.2)


def test_dots_that_would_cover_each_other_are_stacked():
    places = dot_places(strip(innocents=tuple((f"c{i}", 0.3) for i in range(5))))

    assert len(set(places)) == 5
    assert len({x for x, _ in places}) == 1


def test_suspect_far_beyond_is_pinned_with_an_arrow_and_the_line_stays_in_view():
    plot = strip(bounds=None, suspect=1000.0, line=1.0)

    assert "suspect 1000.000 ▸" in plot
    line = float(re.search(r'<path d="M([\d.]+) [^"]*"[^>]*stroke-dasharray', plot)[1])
    assert WIDTH / 5 < line < WIDTH * 3 / 4


def test_strip_of_nothing_is_an_axis():
    plot = strip(suspect=None, innocents=(), line=None, bounds=None)

    assert "closer to the owner" in plot
    assert "suspect" not in plot


def test_thousands_of_controls_stay_a_small_picture():
    assert len(strip(innocents=tuple((f"control {i}", i / 5000) for i in range(5000)))) < 400_000


@pytest.mark.parametrize("line", [None, 0.5])
def test_thefts_lie_below_innocent_models(line):
    plot = strip_plot(
        *("m", "t", "d"),
        Strip(
            closeness=STATISTICS[1].closeness,
            innocents=[("one", -50.0)],
            thefts=[("two", 1.0)],
            line=line,
        ),
    )

    (_, high), (_, low) = re.findall(r'</title><path d="M([\d.]+) ([\d.]+)', plot)
    assert float(low) > float(high)
    assert ("line 0.500" in plot) == (line is not None)


def test_dumbbell_draws_closer_to_the_right_whichever_is_larger():
    def diamond_at(far, same):
        plot = dumbbell_plot("d", "t", [("x", 20.0, 60.0)], far=far, same=same)
        return float(re.findall(r"M([\d.]+) [\d.]+l5-5", plot)[-1])

    assert diamond_at(100.0, 0.0) > WIDTH / 2 > diamond_at(0.0, 100.0)


def test_dumbbell_describes_missing_values():
    plot = dumbbell_plot("d", "t", [("x", None, 0.2)], far=0.0, same=1.0)

    assert "x: – with the trigger, 0.200 without" in plot


def test_scatter_keeps_all_points_inside_and_does_not_stretch():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    plot = scatter_plot("s", "t", {"suspect triggered": corners * 1e-9})
    path = re.search(r' d="([^"]*)"', plot)[1]
    places = np.array(re.findall(r"M([\d.]+) ([\d.]+)", path), dtype=float)
    width, height = np.ptp(places, axis=0)

    assert width == pytest.approx(height)
    assert places.min() >= 0
    assert places.max() <= WIDTH


def test_marks_stand_where_their_values_belong():
    models = [("low", 0.9, 0.3)], [("high", 0.9, 0.95)], []
    line = [(0.02, 0.9), (0.5, 0.9), (0.99, 0.8)]
    plot = kinship_plot("k", "t", "d", STATISTICS[1].closeness, models, line)
    low, high = re.findall(r"without</title><path d=\"M([\d.]+) ([\d.]+)", plot)

    assert abs(float(low[0]) - float(high[0])) < 1  # the same kinship, marks of another size
    assert float(high[1]) < float(low[1])
    steps = re.findall(r'<path d="M48 ([\d.]+)H([\d.]+)V([\d.]+)H364"', plot)
    ((start, _, end),) = steps  # one step, where the line changes
    assert float(start) < float(end)


def test_roc_goes_from_corner_to_corner():
    plot = roc_plot("r", "t", "d", ((0.0, 0.0), (0.0, 1.0), (1.0, 1.0)))

    assert 'd="M40 200L40 28L362 28"' in plot


@pytest.mark.parametrize("size", [4, 16, 64])
def test_grid_keeps_all_marks_inside(size):
    group = partial(Group, share=0.8, colour="#000", fill="#000")
    groups = [group(text="x", numbers=range(size**2), mark=square),
              group(text="nothing", numbers=(), mark=circle)]  # fmt: skip
    plot = grid_plot("g", "t", "d", size, groups)
    places = np.array(re.findall(r"M([\d.]+) ([\d.]+)h", plot)[: size**2], dtype=float)
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', plot).groups())

    assert len(np.unique(places, axis=0)) == size**2
    assert places.min() >= 0
    assert (places < (WIDTH, height)).all()
    assert width == WIDTH
    assert "nothing" not in plot


def test_sides_put_zero_and_less_to_the_left_and_pin_what_is_far():
    plot = sides_plot("s", "t", "d", [0.0, -0.1, 0.1, 50.0, 2.0])

    assert "wrongly: 2" in plot
    assert "rightly: 3" in plot
    right, wrong = re.findall(r'<path d="([^"]*)"', plot)
    assert (right.count("M"), wrong.count("M")) == (3, 1)
    assert all(float(x) >= WIDTH / 2 for x in re.findall(r"M([\d.]+) ", right))
    assert all(float(x) <= WIDTH for x in re.findall(r"H([\d.]+)", right))


@pytest.mark.parametrize(
    "plot",
    [
        *(sides_plot("s", "t", "d", values) for values in ([], [1.0], [-1.0], [0.0] * 4096)),
        scatter_plot("s", "t", {"suspect triggered": np.ones((3, 2))}),
    ],
)
def test_little_can_be_drawn(plot):
    assert "nan" not in plot
