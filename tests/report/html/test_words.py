"""Text from outside is harmless, numbers are honest."""

import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsmark.report.html.glossary import GLOSSARY, meaning_of
from nsmark.report.html.planes import MOST_POINTS, in_the_plane, thinned
from nsmark.report.html.words import clean, count, fixed, number, one_in, outside
from nsmark.report.report import SIZED
from nsmark.verification import STATISTIC_NAMES


@given(st.text(max_size=400))
def test_cleaned_text_prints_and_is_short(text):
    shown = clean(text, 50)

    assert shown.isprintable()
    assert len(shown) < 2 * 50 + 30


@given(st.text(max_size=200))
def test_outside_text_cannot_leave_its_element(text):
    inside = outside(text).removeprefix('<bdi class="said">').removesuffix("</bdi>")

    assert not set("<>\"'") & set(inside)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Gödel & 株式会社", "Gödel & 株式会社"),
        ("a\x1b[2K\u202eb\n", "a\\x1b[2K\\u202eb\\n"),
        ("openai:https://me:pa55@host/v1#m", "openai:https://…@host/v1#m"),
        ("https://host/v1?api_key=5e5e&x=1#m", "https://host/v1?api_key=…&x=…#m"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer …"),
        ("key sk-abcdefghijkl failed", "key sk-… failed"),
        ("x" * 200, "x" * 120 + "… (200 characters)"),
        ("e" + "\u0301" * 50, "e" + "\u0301" * 4),
    ],
)
def test_clean(text, shown):
    assert clean(text) == shown


@pytest.mark.parametrize("text", ["W", "?", "://", "https://@", "?a", "bearer ", "sk-", "&="])
def test_cleaning_takes_no_time_whatever_the_text(text):
    started = time.thread_time()

    clean(f"https://{text * (20_000 // len(text))}")

    assert time.thread_time() - started < 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0.000"),
        (0.97, "0.970"),
        (-0.25, "−0.250"),
        (147.456, "147.456"),
        (6e-39, "6.0×10⁻³⁹"),
        (1e9, "1.0×10⁹"),
        (float("nan"), "not finite"),
        (float("inf"), "not finite"),
    ],
)
def test_number(value, shown):
    assert number(value) == shown


def test_short_forms():
    assert fixed(-1e-9) == "0.000"
    assert one_in(1e-3) == "1 in 1,000 (0.1 %)"
    assert one_in(0.95) == "95 %"
    assert one_in(0.0) == "none"
    assert [count(n, "text") for n in (0, 1, 1500)] == ["0 texts", "1 text", "1,500 texts"]


def test_every_statistic_is_explained():
    assert set(GLOSSARY) == {*STATISTIC_NAMES, SIZED}
    assert all(one.meaning.endswith(".") and one.same for one in GLOSSARY.values())
    assert meaning_of("brand_new").label == "Brand new"


def test_thinning_takes_the_same_texts_and_leaves_out_what_is_not_finite():
    rows = np.arange(1500.0)[:, None] * np.ones(3)
    broken = rows.copy()
    broken[7] = np.inf

    found = thinned({"a": rows, "b": broken, "c": -rows})

    assert sum(map(len, found.values())) == MOST_POINTS
    assert (found["a"] == found["b"]).all()
    assert (found["a"] == -found["c"]).all()
    assert not (found["a"] == 7).any()


def groups(count=40, seed=0):
    rng = np.random.default_rng(seed)
    return {"a": rng.standard_normal((count, 8)), "b": 9 + rng.standard_normal((count, 8))}


def test_plane_separates_what_is_separate_and_is_the_same_every_time():
    points, method = in_the_plane(groups())
    again, _ = in_the_plane(groups())

    assert method == "t-SNE"
    assert points["a"].shape == (40, 2)
    assert all((points[name] == again[name]).all() for name in points)
    centres = [points[name].mean(axis=0) for name in "ab"]
    spread = max(points[name].std() for name in "ab")
    assert np.linalg.norm(centres[0] - centres[1]) > 2 * spread


def test_without_scikit_learn_principal_components_are_drawn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)

    points, method = in_the_plane(groups())

    assert method == "principal components"
    distance = abs(points["a"][:, 0].mean() - points["b"][:, 0].mean())
    assert distance > 5 * points["a"][:, 0].std()


@pytest.mark.parametrize("rows", [np.ones((40, 3)), np.zeros((40, 3)), np.eye(2), np.zeros((0, 3))])
def test_nothing_to_see_is_no_picture(rows):
    assert in_the_plane({"a": rows}) is None


def test_one_dimension_and_huge_values_can_be_drawn():
    points, _ = in_the_plane({"a": 1e300 * np.arange(5.0)[:, None]})

    assert np.isfinite(points["a"]).all()
