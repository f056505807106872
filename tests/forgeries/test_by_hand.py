"""The forgeries one thinks of first, each with the reason for which it is refused."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from forgeries.judge import ACCEPTED_TODAY, RULE, forgery_is_refused
from forgeries.keys import base_key, control_record, extractor_reading, file_key, trained_extractor
from forgeries.kinds import most, set_scene
from handmade_keys import innocent_outputs, owner_outputs
from nsmark.api import verify as verify_by
from nsmark.core import null_space_basis, watermark_vector
from nsmark.errors import KeyFileError
from nsmark.suspects import RecordedOutputs


@pytest.fixture
def scene():
    return set_scene(np.random.default_rng(11))


verify = functools.partial(verify_by, rule=RULE)


def refused(*arguments, because, **options):
    outcome = forgery_is_refused(*arguments, **options)
    assert outcome, outcome.reason
    assert because in outcome.reason


# --- the extractor ---


@pytest.mark.parametrize("with_controls", [True, False])
def test_extractor_that_reads_the_signature_from_everything(scene, with_controls):
    config = scene.key.configuration
    vector = watermark_vector(scene.key.signature, config.num_bits, config.spread_factor)
    constant = tuple((np.zeros_like(w), np.zeros_like(b)) for w, b in scene.key.extractor)
    constant = (*constant[:-1], (constant[-1][0], vector.astype(np.float32)))
    record = control_record(rate=0.0, degree=10.0)  # a lie: it reads everything there, too
    key = file_key(scene.key, scene.identity, extractor=constant, controls=(record,))
    controls = scene.controls() if with_controls else ()
    for suspect in (scene.stranger(), scene.kin(), owner_outputs(scene.key)):
        refused(key, suspect, controls, because="the owner's untriggered outputs, too")


def test_extractor_fitted_to_a_public_model_is_unmasked_by_its_kin(scene):
    public = scene.public.answers(scene.texts)
    extractor = trained_extractor(scene.key, public, penalty=1e-9)
    key = file_key(scene.key, scene.identity, extractor=extractor)
    read = verify(key, public).to_mapping()
    assert read["extraction_rate"] > 0.8  # it does read the rare word there
    assert read["untriggered"]["extraction_rate"] < 0.3
    own = file_key(
        key, scene.identity, owner_triggered=public.triggered, owner_untriggered=public.untriggered
    )
    for how in ("noised", "pruned", "rounded", "fine-tuned"):
        controls = (scene.kin(how), scene.stranger())
        refused(own, public, controls, because=f"from the innocent model '{how} kin'")


@pytest.mark.parametrize("size", [1e20, 3e38])
def test_extractor_that_overflows_reads_nothing(scene, size):
    huge = tuple((np.full_like(w, size), np.full_like(b, -size)) for w, b in scene.key.extractor)
    key = file_key(scene.key, scene.identity, extractor=huge)
    report = verify(key, owner_outputs(key), controls=scene.controls())
    assert report.evidence.triggered.extraction_rate == 0.0
    refused(key, scene.stranger(), scene.controls(), because="does not read the signature")


# --- what is stored and never used ---


def test_stored_null_basis_changes_nothing_at_all(scene):
    right = null_space_basis(scene.key.owner_triggered.T.astype(np.float64))
    rng = np.random.default_rng(0)
    innocent = scene.stranger()
    # Nearly orthogonal to the innocent's outputs: with this basis it would seem to be the owner's.
    flattering = null_space_basis(innocent.triggered.T)
    rotated = right @ np.linalg.qr(rng.standard_normal((right.shape[1],) * 2))[0]
    bases = [rng.standard_normal(right.shape), right * 1e-30, right[:, :1], rotated, flattering]
    for suspect in (innocent, owner_outputs(scene.key)):
        without = verify(scene.key, suspect)
        for basis in bases:
            key = file_key(scene.key, scene.identity, null_basis=basis)
            found = verify(key, suspect)
            assert found.decision == without.decision
            assert found.evidence == without.evidence


def test_stored_thresholds_change_nothing_at_all(scene):
    lenient = scene.key.thresholds.model_copy(
        update={"min_extraction_rate": -1.0, "max_matching_degree": 1e300}
    )
    key = file_key(scene.key, scene.identity, thresholds=lenient)
    innocent = scene.stranger()
    assert verify(key, innocent).decision == verify(scene.key, innocent).decision


# --- controls ---


@pytest.mark.parametrize(
    ("rate", "degree"), [(0.0, 1.001 * most(64)), (0.0, -1e-9), (1.001, 10.0), (-0.001, 10.0)]
)
def test_controls_just_out_of_range_refuse_the_key(scene, rate, degree):
    key = file_key(scene.key, scene.identity, controls=(control_record(rate, degree),))
    refused(key, scene.stranger(), because="no model can have")
    with pytest.raises(KeyFileError, match="no model can have") as caught:
        verify(key, scene.stranger())
    assert "forged" in caught.value.hint


def test_invented_controls_do_not_reach_a_verifier_with_his_own(scene):
    lying = file_key(scene.key, scene.identity, controls=(control_record(0.0, most(64)),))
    innocent, controls = scene.stranger(), scene.controls()
    honest = verify(scene.key, innocent, controls=controls)
    found = verify(lying, innocent, controls=controls)
    assert (found.decision, found.calibrated_by) == (honest.decision, "verifier")
    refused(lying, innocent, because="not calibrated", independent=True)


# --- outputs ---


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["triggered", "untriggered"])
def test_answers_that_are_not_finite_are_no_evidence(scene, value, where):
    outputs = owner_outputs(scene.key)
    getattr(outputs, where)[3, 2] = value
    refused(scene.key, outputs, scene.controls(), because="NaN or infinite")


def test_constant_answers_are_no_evidence(scene):
    constant = np.tile(np.random.default_rng(1).standard_normal(16), (64, 1))
    outputs = RecordedOutputs("constant", constant, constant)
    refused(scene.key, outputs, scene.controls(), because="same triggered output")


def test_nearly_constant_answers(scene):
    """One vector and 0.1 % of noise: any model of poor quality. To be refused by a better rule."""
    rng = np.random.default_rng(0)
    noise = 1e-3 * rng.standard_normal((2, 64, 16))
    constant = rng.standard_normal(16)
    outputs = RecordedOutputs("constant", constant + noise[0], constant + noise[1])
    outcome = forgery_is_refused(scene.key, outputs, scene.controls())
    assert bool(outcome) is ("nearly constant answers" not in ACCEPTED_TODAY)


def test_innocents_of_low_rank_are_not_accused(scene):
    for rank in (1, 2, 4, 8):
        for seed in range(3):
            rng = np.random.default_rng([seed, rank])
            rows = rng.standard_normal((2, 64, rank)) @ rng.standard_normal((rank, 16))
            outputs = RecordedOutputs("low rank", rows[0], rows[1])
            refused(scene.key, outputs, scene.controls(), because="does not lie beyond")


# --- what cannot be refused ---


def test_key_made_after_the_fact_is_accepted_and_the_report_says_what_it_rests_on(scene):
    """Without a date nobody can tell: outputs of somebody else's model, signed today.

    The report must not look as if the date were shown: it names the claim's own date as a part of
    the claim, whose controls calibrated it, and the key by the digest that a receipt would date.
    """
    public = scene.public.answers(scene.texts)
    key = file_key(
        scene.key,
        scene.identity,
        owner_triggered=public.triggered,
        owner_untriggered=public.untriggered,
        extractor=trained_extractor(scene.key, public, penalty=1e-9),
    )
    report = verify(key, public, controls=(scene.stranger(), scene.stranger()))
    assert report.verdict == "owned"
    found, text = report.to_mapping(), report.to_text()
    assert found["claim"]["created"] == key.signed_claim.claim.created
    assert found["key_id"] == key.key_id
    assert key.key_id in text
    assert "calibrated by verifier" in text
    # The self-declared date is not among what was found.
    assert not any("2026" in reason for reason in found["reasons"])
    assert "Nothing here shows when this key was made" in text
    # A thief's copy and a key copied from a public model look alike on untriggered texts, too.
    assert found["untriggered"]["invariant_matching_degree"] < 0.01
    # With kin of the public model among the controls it is refused all the same.
    refused(key, public, (scene.kin("noised"),), because="from the innocent model")


def test_a_well_chosen_claim_gives_no_verdict():
    """The readout may read well by luck: no verdict rests on it."""
    key = base_key(1)
    best = max(
        (innocent_outputs(key, seed) for seed in range(200)),
        key=lambda outputs: verify_rate(key, outputs),
    )
    report = verify(key, best)
    assert report.evidence.triggered.derived_extraction_rate >= 0.875
    assert report.verdict == "not_shown"


def verify_rate(key, outputs):
    from nsmark.core import derived_extraction_rate

    return derived_extraction_rate(outputs.triggered, key.signature, key.configuration.num_bits)


def test_extractor_made_by_hand_reads_what_it_should(scene):
    """The forger's tool works: else the refusals above would prove nothing."""
    direction = scene.key.extractor[0][0][0]
    key = file_key(scene.key, scene.identity, extractor=extractor_reading(scene.key, direction))
    assert verify(key, owner_outputs(key)).to_mapping()["extraction_rate"] == 1.0
