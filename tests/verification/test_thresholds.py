"""Lines: where they lie, what they promise, and that the promise holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nsmark.errors import ConfigError
from nsmark.verification.controls import Control, controls_like
from nsmark.verification.statistics import STATISTICS, Statistics
from nsmark.verification.thresholds import (
    MIN_MODELS_TO_FIT,
    calibrate,
    extraction_by_chance,
    tolerance_factor,
)

shares = st.floats(-0.5, 0.95)
SPREAD = np.linspace(-0.02, 0.02, 12)


def control(name: str, share: float, *, rate: float = 0.0, rank: int | None = None) -> Control:
    return Control(
        name,
        Statistics(
            extraction_rate=rate,
            predictability=share,
            aligned_subspace_overlap=share,
            aligned_predictability=share,
        ),
        rank,
    )


@given(values=st.lists(shares, min_size=1, max_size=30))
@settings(max_examples=100, deadline=None)
def test_no_control_lies_beyond_a_line(values):
    controls = [control(f"model {i}", value) for i, value in enumerate(values)]
    calibration = calibrate(controls)
    for line in calibration.thresholds:
        assert not any(line.passed_by(each.triggered) for each in controls)


@given(values=st.lists(shares, min_size=1, max_size=9))
@settings(max_examples=50, deadline=None)
def test_with_few_controls_a_third_of_what_the_closest_leaves_unexplained_is_asked_for(values):
    calibration = calibrate([control(f"model {i}", value) for i, value in enumerate(values)])
    assert calibration.rate is None
    line = calibration.threshold("predictability")
    assert 1 - line.value == pytest.approx((1 - max(values)) / 3)
    assert line.closest_control == pytest.approx(max(values))


@given(values=st.lists(shares, min_size=10, max_size=30), rate=st.floats(1e-6, 0.1))
@settings(max_examples=50, deadline=None)
def test_a_smaller_rate_never_accuses_sooner(values, rate):
    controls = [control(f"model {i}", value) for i, value in enumerate(values)]
    strict, lenient = calibrate(controls, rate / 10), calibrate(controls, rate)
    for first, second in zip(strict.thresholds, lenient.thresholds, strict=True):
        assert first.value >= second.value - 1e-12


def test_measurements_of_one_model_count_as_one():
    alone = [control(f"model {i}", 0.1 + 0.01 * i) for i in range(4)]
    changed = [control(f"model 2 | change {i}", 0.05) for i in range(40)]
    calibration = calibrate(alone + changed)
    assert (calibration.num_models, calibration.num_measurements) == (4, 44)
    assert calibration.rate is None
    assert calibration.thresholds == calibrate(alone).thresholds
    # The closest of them is the model's.
    closer = calibrate([*alone, control("model 0 | mapped", 0.5)])
    assert closer.threshold("predictability").closest_control == pytest.approx(0.5)


def test_the_tolerance_factor_is_the_published_one():
    # Tables of one-sided normal tolerance factors: content 0.99, confidence 0.95.
    assert tolerance_factor(10, 0.01, 0.95) == pytest.approx(3.981, abs=2e-3)
    assert tolerance_factor(30, 0.01, 0.95) == pytest.approx(3.064, abs=2e-3)
    assert tolerance_factor(10, 0.10, 0.95) == pytest.approx(2.355, abs=2e-3)


def test_the_stated_rate_holds_for_normal_closeness():
    """The share of innocent models beyond the line exceeds the rate in at most 5 % of draws."""
    rng, rate, broken = np.random.default_rng(0), 0.05, 0
    for _ in range(200):
        closeness = rng.normal(0.3, 0.1, 12)
        controls = [control(f"m{i}", 1 - float(np.exp(-c))) for i, c in enumerate(closeness)]
        line = calibrate(controls, rate).threshold("predictability")
        fresh = 1 - np.exp(-rng.normal(0.3, 0.1, 4000))
        broken += bool((fresh > line.value).mean() > rate / len(STATISTICS))
    assert broken / 200 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


def test_the_bound_without_assumptions_counts_those_accused_by_the_others():
    for count in (1, 5, 30, 100):
        calibration = calibrate([control(f"model {i}", 0.1) for i in range(count)])
        assert calibration.accused == 0
        assert (1 - calibration.bound) ** count == pytest.approx(0.05)
    # One of thirty lies far off: the lines hold it now, but would not have without it.
    outlier = [control(f"model {i}", 0.1 + i / 1000) for i in range(29)] + [control("odd", 0.9)]
    calibration = calibrate(outlier)
    assert calibration.accused == 1
    assert calibration.bound == pytest.approx(stats.beta.ppf(0.95, 2, 29))


def test_a_suspect_is_compared_with_controls_of_its_kinship():
    kin = [
        replace(control(f"kin {i}", 0.4 + i / 200), untriggered=Statistics(predictability=0.95))
        for i in range(12)
    ]
    strangers = [
        replace(control(f"far {i}", 0.1 + i / 20), untriggered=Statistics(predictability=0.1))
        for i in range(12)
    ]
    lines = {
        kinship: calibrate(kin + strangers, suspect=Statistics(predictability=kinship)).threshold(
            "predictability"
        )
        for kinship in (0.96, 0.12)
    }
    # Kin scatter little, strangers much; neither line lies before the closest of all.
    assert 0.65 < lines[0.96].value < lines[0.12].value
    assert lines[0.96].num_controls == 24
    assert all(line.closest_control == pytest.approx(0.65) for line in lines.values())
    assert calibrate(kin, suspect=Statistics()) == calibrate(kin)


def test_a_witness_that_no_control_measured_has_no_line():
    calibration = calibrate([Control("m", Statistics(predictability=0.2))])
    assert [line.name for line in calibration.thresholds] == ["predictability"]
    assert calibration.threshold("extraction_rate") is None
    assert calibrate([]) is None


def test_the_extraction_line_is_never_low_and_may_be_out_of_reach():
    silent = calibrate([control(f"model {i}", 0.1) for i in range(MIN_MODELS_TO_FIT)])
    # Guessing 256 bits, more than that many are right once in four thousand times.
    assert silent.threshold("extraction_rate").value == extraction_by_chance(256, 2.5e-4)
    assert 0.6 < silent.threshold("extraction_rate").value < 0.62
    loud = calibrate([control(f"model {i}", 0.1, rate=0.1 * i) for i in range(10)])
    assert not loud.threshold("extraction_rate").can_be_reached
    few = calibrate([control("model", 0.1, rate=0.4)])
    assert few.threshold("extraction_rate").value == pytest.approx(0.7)


@pytest.mark.parametrize("num_bits", [1, 8, 16, 64, 256, 512])
def test_guessing_hardly_ever_passes_the_extraction_line(num_bits):
    """A model of nearly constant answers makes the extractor guess the whole signature once."""
    calibration = calibrate([control("model", 0.1, rate=0.0)], num_bits=num_bits)
    line = calibration.threshold("extraction_rate")
    guesses = np.random.default_rng(0).binomial(num_bits, 0.5, 200_000) / num_bits
    share = np.mean([guess > line.value for guess in guesses])
    assert share <= 2.5e-4 + 4 * np.sqrt(2.5e-4 / 200_000)
    assert calibration.num_bits == num_bits


@pytest.mark.parametrize("rate", [0.0, -0.1, 0.5, 2.0])
def test_rates_that_make_no_sense_are_refused(rate):
    with pytest.raises(ConfigError):
        calibrate([control("model", 0.1)], rate)


# --- ranks ---------------------------------------------------------------------------------------


def test_suspects_are_compared_with_controls_of_their_rank():
    full = [control("a", 0.1, rank=383), control("b", 0.1)]
    cuts = [control(f"a | cut to {rank}", 0.5, rank=rank) for rank in (190, 47, 11, 2)]
    everything = full + cuts
    assert controls_like(everything, 383, 383) == full
    assert controls_like(everything, 350, 383) == full
    for rank, expected in ((128, [cuts[1]]), (47, [cuts[1]]), (3, [cuts[3]]), (1, [])):
        found = controls_like(everything, rank, 383)
        assert [each.name for each in found] == [each.name for each in (*expected, *full)]
        for each in found[: len(expected)]:
            assert each.triggered == Statistics(extraction_rate=0.0, aligned_subspace_overlap=0.5)
        # What an extractor reads does not depend on the rank, and more dimensions predict more.
        for each in found[len(expected) :]:
            assert each.triggered == Statistics(
                extraction_rate=0.0, predictability=0.1, aligned_predictability=0.1
            )


def test_a_suspect_of_a_rank_without_controls_is_not_judged_by_its_row_space():
    everything = [control(f"model {n}", 0.1, rate=0.01, rank=383) for n in range(12)]
    lines = calibrate(controls_like(everything, 300, 383)).thresholds
    assert [line.name for line in lines] == [
        "extraction_rate",
        "predictability",
        "aligned_predictability",
    ]
    assert all(line.num_controls == 12 for line in lines)


def test_a_cut_innocent_is_not_judged_by_controls_that_were_cut_further():
    """Fewer dimensions lie in any row space, and predict less: each witness has its own side."""
    generator = np.random.default_rng(0)
    whole = [control(f"model {n}", share, rank=383) for n, share in enumerate(0.9 + SPREAD)]
    cuts = [
        Control(
            f"model {n} | cut to 47",
            Statistics(predictability=0.4 + share, aligned_subspace_overlap=0.99 + share / 10),
            47,
        )
        for n, share in enumerate(SPREAD)
    ]
    lines = {
        line.name: line for line in calibrate(controls_like([*whole, *cuts], 128, 383)).thresholds
    }
    for share in 0.9 - 0.4 * generator.random(50):
        innocent = Statistics(predictability=share, aligned_subspace_overlap=0.9 + share / 10)
        assert not any(line.passed_by(innocent) for line in lines.values())
    assert lines["predictability"].value > 0.92
    assert lines["aligned_subspace_overlap"].value > 0.992


def test_a_cut_does_not_choose_the_kin_a_suspect_is_compared_with():
    """Seen through fewer dimensions, kin of the owner's model looks like a stranger."""
    strangers = [(0.1, 0.2 + share) for share in SPREAD]
    kin = [(0.8 + 5 * share, 0.99) for share in SPREAD]
    whole = [
        Control(
            f"model {n}", Statistics(predictability=close), 383, Statistics(predictability=like)
        )
        for n, (close, like) in enumerate(strangers + kin)
    ]
    like = controls_like(whole, 128, 383)
    lines = [
        calibrate(like, suspect=Statistics(predictability=seen)).threshold("predictability").value
        for seen in (0.2, 0.6, 0.99)
    ]
    assert len(set(lines)) == 1
    as_kin = calibrate(whole, suspect=Statistics(predictability=0.99)).threshold("predictability")
    assert lines[0] >= as_kin.value


def test_mappings_name_lines_and_error_rates():
    document = calibrate([control(f"model {i}", 0.1 + i / 100) for i in range(12)]).to_mapping()
    assert {witness.name for witness in STATISTICS} < set(document)
    assert document["false_accusation_rate"] == 1e-3
    assert document["num_control_models"] == 12
