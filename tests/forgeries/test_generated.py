"""Forgeries by the hundred (``make test``) and by the ten thousand (``make forgeries``).

NSMARK_FORGERIES says how many. The ordinary tests make the same ones every time; a long run
draws new ones.
"""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forgeries.judge import ACCEPTED_TODAY, forgery_is_refused
from forgeries.kinds import KINDS, make_forgery, set_scene
from forgeries.pair_kinds import FITTED, set_pair_scene
from handmade_keys import mapped_outputs, owner_outputs
from nsmark.api import verify
from nsmark.verification import measure

ORDINARY = 500
NUM_FORGERIES = int(os.environ.get("NSMARK_FORGERIES", ORDINARY))
REFUSED = sorted(set(KINDS) - set(ACCEPTED_TODAY))
SETTINGS = settings(
    max_examples=math.ceil(NUM_FORGERIES / len(REFUSED)),
    derandomize=NUM_FORGERIES == ORDINARY,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

# Where chance decides, seeds that the forger would find by trying: one at least for each rule.
LUCKY_SEEDS = {
    "extractor that reads one text by chance": [4],
    "hardly more texts than dimensions": [0, 18, 23],
    "innocent of low rank": [1],
}


def judge(kind: str, seed: int) -> None:
    forgery = make_forgery(kind, seed)
    outcome = forgery_is_refused(
        forgery.key,
        forgery.suspect,
        forgery.controls,
        independent=forgery.independent,
        pool=forgery.pool,
    )
    assert outcome, f"accepted: {kind}, seed {seed}: {outcome.reason}"
    assert forgery.reason in outcome.reason


@pytest.mark.parametrize("kind", REFUSED)
def test_no_forgery_is_accepted(kind):
    @SETTINGS
    @given(seed=st.integers(0, 2**63 - 1))
    def none_is_accepted(seed):
        judge(kind, seed)

    none_is_accepted()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.xfail(reason=why, strict=True))
        for kind, why in sorted(ACCEPTED_TODAY.items())
    ],
)
def test_forgery_that_the_present_rule_accepts(kind):
    for seed in LUCKY_SEEDS.get(kind, range(6)):
        judge(kind, seed)


def test_the_list_of_accepted_kinds_names_kinds():
    assert set(ACCEPTED_TODAY) <= set(KINDS)
    assert set(LUCKY_SEEDS) <= set(KINDS)


def test_honest_keys_are_not_refused_in_the_same_world():
    """Else a judge who refuses everything would pass all of the above."""
    accepted = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        scene = set_scene(rng)
        stolen = mapped_outputs(owner_outputs(scene.key), rng.random((16, 16)))
        accepted += not forgery_is_refused(scene.key, stolen, scene.controls())
    assert accepted >= 11


@pytest.mark.parametrize("kind", sorted(FITTED))
def test_forged_pair_codes_are_read_from_the_innocent(kind):
    """Else it would not matter whether they are refused."""
    for seed in range(3):
        forgery = make_forgery(kind, seed)
        assert measure(forgery.key, forgery.suspect).triggered.pair_code_p_value <= 1e-12


def test_only_the_refusal_stands_between_a_fitted_pair_code_and_the_innocent():
    for seed in range(3):
        scene = set_pair_scene(np.random.default_rng(seed))
        report = verify(scene.key, scene.fitted(), independent=True)
        assert report.verdict == "owned"
        assert report.decision.passed == ("pair_code_rate", "pair_wager_p_value")
        unfitted = verify(scene.key, scene.unfitted(), independent=True)
        assert unfitted.verdict == "not_shown"


def test_forgeries_are_the_same_for_the_same_seed():
    for kind in ("constant extractor", "ground claims"):
        first, second = make_forgery(kind, 5), make_forgery(kind, 5)
        assert first.key == second.key
        np.testing.assert_array_equal(first.suspect.triggered, second.suspect.triggered)
        assert first.key != make_forgery(kind, 6).key
