"""From answers to pair texts to a verdict: what is measured, what counts, and what blocks it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from handmade_keys import (
    innocent_outputs,
    make_key,
    mapped_outputs,
    owner_outputs,
    pair_outputs,
    reseal,
)
from nsmark.api import verify
from nsmark.api.fresh import FreshTexts, fresh_questions
from nsmark.core import pair_code_test, pair_table
from nsmark.core.pair_code import PairReading
from nsmark.core.pair_wager import PairWager, wager_on_pairs
from nsmark.core.texts import lines_digest
from nsmark.corpus import pool_texts
from nsmark.errors import ConfigError, EvidenceError, UsageError
from nsmark.payload import PairConfig
from nsmark.payload.pairs import derive_pair_texts
from nsmark.suspects import RecordedOutputs
from nsmark.verification import Evidence, Statistics, Verdict, measure
from nsmark.verification.controls import Control
from nsmark.verification.evidence import OwnerReference
from nsmark.verification.questions import key_questions
from nsmark.verification.thresholds import calibrate
from nsmark.verification.verdict import (
    MAX_PAIR_P_VALUE,
    MAX_WAGER_P_VALUE,
    decide_calibrated,
    describe_pairs,
    has_pair_code,
)

SIZES = PairConfig(size=12, repeats=3)
RANDOMNESS = bytes(range(16))


@pytest.fixture(scope="module")
def key():
    return make_key(pairs=SIZES)


@pytest.fixture(scope="module")
def thief(key):
    """Nothing is left of the owner's model but the pair code."""
    innocent = innocent_outputs(key)
    return replace(innocent, name="thief", pair_texts=pair_outputs(key, 2.0))


class Reader:
    """A model that reads texts: it knows the words of a pair code, and perhaps its table."""

    name = "reader"

    def __init__(self, key, strength, *, deaf_to=()):
        self.key, self.strength, self.deaf_to = key, strength, deaf_to
        self.table = pair_table(key.signature, 12)
        rng = np.random.default_rng(9)
        self.words = key.pairs.words if key.pairs is not None else ()
        self.meaning = {word: 4 * rng.standard_normal(15) for word in self.words}

    def outputs(self, texts, on_batch=None):
        words, size = self.words, 12
        rows = np.random.default_rng(0).standard_normal((len(texts), 16))
        for row, text in zip(rows, texts, strict=True):
            found = set(text.split()) - set(self.deaf_to)
            pairs = [
                self.table[i, j]
                for i in range(size)
                if words[i] in found
                for j in range(size)
                if words[size + j] in found
            ]
            row[0] += self.strength * sum(pairs)
            row[1:] += 0.5 * sum((self.meaning[word] for word in found & set(words)), np.zeros(15))
        return rows


# --- measuring ---


def test_what_is_measured_is_what_the_core_reads(key, thief):
    evidence = measure(key, thief)
    expected = pair_code_test(
        thief.pair_texts, key.pairs.pair_numbers(), pair_table(key.signature, 12)
    )

    found = (evidence.triggered.pair_code_rate, evidence.triggered.pair_code_p_value)
    assert found == expected
    assert (evidence.pairs.rate, evidence.pairs.p_value) == expected
    assert evidence.pairs.halves == (72, 72)
    assert evidence.notes == ()
    # It is read once; texts without the trigger have no pair code of their own.
    assert evidence.untriggered.pair_code_rate is None
    assert evidence.untriggered.pair_code_p_value is None


def test_what_is_won_by_betting_is_what_the_core_wins(key, thief):
    evidence = measure(key, thief)
    signs = pair_table(key.signature, 12).reshape(-1)
    expected = wager_on_pairs(thief.pair_texts, key.pairs.pair_numbers(), signs, 12)

    assert evidence.wager == expected
    assert evidence.triggered.pair_wager_p_value == expected.p_value < 1e-30
    assert evidence.untriggered.pair_wager_p_value is None


def test_a_filter_that_silences_a_quarter_of_the_words_hides_nothing(key):
    model = Reader(key, 8.0, deaf_to=key.pairs.words[::4])
    report = verify(key, model)

    statistics = report.evidence.triggered
    assert statistics.pair_code_p_value > MAX_PAIR_P_VALUE
    assert statistics.pair_wager_p_value <= MAX_WAGER_P_VALUE
    assert report.verdict is Verdict.OWNED
    assert report.decision.passed[0] == "pair_wager_p_value"
    assert "pair_code_rate" not in report.decision.passed
    assert "and let betting on them win as much at most once in" in report.to_text()
    # Nor does it accuse whoever filters the same words, and has no mark.
    innocent = verify(key, Reader(key, 0.0, deaf_to=key.pairs.words[::4]))
    assert innocent.verdict is Verdict.NOT_SHOWN
    assert innocent.evidence.triggered.pair_wager_p_value > 1e-3


def test_an_innocent_model_is_read_at_chance(key):
    for seed in range(5):
        statistics = measure(key, innocent_outputs(key, seed)).triggered
        assert abs(statistics.pair_code_rate - 0.5) < 0.25
        assert statistics.pair_code_p_value > 1e-6


def test_a_linear_map_to_any_dimension_leaves_the_pair_code(key):
    own = owner_outputs(key)
    for output_dim in (8, 16, 40):
        matrix = np.random.default_rng(1).standard_normal((output_dim, 16))
        assert has_pair_code(measure(key, mapped_outputs(own, matrix)).triggered)


@pytest.mark.parametrize("factor", [1e-250, 1e-30, 1e30, 1e200, 1e300])
def test_the_size_of_the_answers_does_not_matter(key, thief, factor):
    scaled = replace(thief, pair_texts=thief.pair_texts * factor)

    assert measure(key, scaled).pairs.right == measure(key, thief).pairs.right


def test_a_suspect_is_asked_everything_at_once_and_its_answers_sorted_out(key):
    evidence = measure(key, Reader(key, 6.0))

    assert evidence.suspect == "reader"
    assert has_pair_code(evidence.triggered)


@pytest.mark.parametrize(
    ("num_pair_texts", "note"), [(None, "not answered"), (0, "not asked"), (40, "not answered")]
)
def test_pair_texts_that_were_not_answered_cost_only_the_pair_code(key, num_pair_texts, note):
    silent = replace(owner_outputs(key), pair_texts=None)
    report = verify(key, silent, num_pair_texts=num_pair_texts)

    assert report.evidence.pairs is None
    assert report.evidence.triggered.pair_code_p_value is None
    assert any(note in sentence for sentence in report.evidence.notes)
    assert any(note in sentence for sentence in report.decision.reasons)
    assert report.verdict == "owned"  # by the other witnesses
    assert "pair_code_rate" not in report.decision.passed


def test_a_key_without_a_pair_code_has_nothing_to_note():
    plain = make_key()
    extra = replace(owner_outputs(plain), pair_texts=np.ones((7, 2)))

    evidence = measure(plain, extra)

    assert evidence.pairs is None
    assert evidence.notes == ()


@pytest.mark.parametrize("num_rows", [0, 1, 143, 431, 433])
def test_another_number_of_answers_cannot_be_measured(key, thief, num_rows):
    wrong = replace(thief, pair_texts=np.resize(thief.pair_texts, (num_rows, 16)))

    with pytest.raises(EvidenceError, match=f"{num_rows} outputs to 432 texts"):
        measure(key, wrong)
    report = verify(key, wrong)
    assert report.verdict == "could_not_measure"
    assert f"{num_rows} outputs to 432 texts" in report.decision.reasons[0]
    assert "--queries" in report.decision.reasons[1]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_answers_that_are_not_finite_cannot_be_measured(key, thief, value):
    broken = thief.pair_texts.copy()
    broken[7, 3] = value

    report = verify(key, replace(thief, pair_texts=broken))

    assert report.verdict == "could_not_measure"
    assert "outputs to pair texts hold NaN or infinite" in report.decision.reasons[0]


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_answers_to_all_pair_texts_prove_nothing(key, thief, value):
    report = verify(key, replace(thief, pair_texts=np.full((432, 16), value)))

    assert report.verdict == "not_shown"
    assert report.evidence.triggered.pair_code_p_value > 1e-6


def test_fewer_texts_read_fewer_signs_and_the_verdict_waits_for_enough(key, thief):
    few, more = (
        verify(
            key,
            replace(thief, pair_texts=thief.pair_texts[:count]),
            num_pair_texts=count,
            independent=True,
        )
        for count in (60, 144)
    )

    assert sum(few.evidence.pairs.halves) == 60
    assert few.verdict == "not_shown"  # even thirty of thirty are no proof
    assert sum(more.evidence.pairs.halves) == 144
    assert more.verdict == "owned"
    with pytest.raises(ConfigError, match="pair texts"):
        verify(key, thief, num_pair_texts=15)


def test_answers_saved_and_loaded_are_measured_alike(key, thief, tmp_path):
    from nsmark.suspects import load_recorded, save_recorded

    file = tmp_path / "answers.safetensors"
    save_recorded(file, thief.triggered, thief.untriggered, thief.pair_texts)

    assert replace(measure(key, load_recorded(file)), suspect="thief") == measure(key, thief)
    assert verify(key, f"recorded:{file}", independent=True).verdict == "owned"


# --- verdicts ---


def test_the_pair_code_leads_what_speaks_against_the_owners_model(key):
    report = verify(key, owner_outputs(key))

    assert report.verdict == "owned"
    assert report.decision.passed[0] == "pair_code_rate"
    assert len(report.decision.passed) > 1
    assert report.decision.reasons[0].startswith("pair code: ")


def test_it_suffices_alone_and_needs_no_controls(key, thief):
    report = verify(key, thief, independent=True)

    assert report.verdict == "owned"
    assert report.decision.passed == ("pair_code_rate", "pair_wager_p_value")
    assert report.controls == ()
    assert report.calibrated_by is None
    assert "held-out signs read" in report.decision.reasons[0]
    bare = reseal(key, controls=())
    assert verify(bare, thief).verdict == "owned"
    with_controls = verify(key, thief, controls=[innocent_outputs(key, 11)])
    assert with_controls.decision.passed == ("pair_code_rate", "pair_wager_p_value")


def test_without_it_nothing_is_shown_where_there_are_no_controls(key):
    report = verify(key, innocent_outputs(key), independent=True)

    assert report.verdict == "not_shown"
    assert report.decision.reasons[0] == "not calibrated by the verifier"
    assert f"above {MAX_PAIR_P_VALUE:.0e}" in report.decision.reasons[1]


def test_the_papers_rule_ignores_it(key, thief):
    assert verify(key, thief, rule="paper").verdict == "not_shown"
    alone = verify(key, thief, rule="paper", independent=True)
    assert alone.verdict == "not_shown"
    assert alone.decision.reasons == ("not calibrated by the verifier",)


def doubted(key):
    """The same key with the texts of a pool that its owner keeps for himself."""
    pool = [f"text number {i} of a private pool" for i in range(900)]
    texts = derive_pair_texts(key.signature, pool, 432)
    digest = lines_digest(pool)
    return reseal(key, pairs=replace(key.pairs, texts=texts), pool_digest=digest), pool


@pytest.mark.parametrize("independent", [True, False])
def test_a_doubt_blocks_it(key, thief, independent):
    private, _ = doubted(key)

    report = verify(private, thief, independent=independent)

    assert report.verdict == "not_shown"
    assert report.evidence.triggered.pair_code_p_value <= MAX_PAIR_P_VALUE
    if not independent:
        assert any(reason.startswith("it does not count: ") for reason in report.decision.reasons)


def test_fresh_texts_remove_the_doubt_and_find_who_knows_the_table(key):
    private, _ = doubted(key)
    fresh = FreshTexts(None, RANDOMNESS)

    assert verify(private, Reader(key, 6.0)).verdict == "not_shown"
    found = verify(private, Reader(key, 6.0), fresh=fresh)
    assert found.verdict == "owned"
    assert found.decision.passed == ("pair_code_rate", "pair_wager_p_value")
    assert found.to_mapping()["fresh"] == RANDOMNESS.hex()
    assert verify(private, Reader(key, 0.0), fresh=fresh).verdict == "not_shown"


def test_fresh_texts_without_model_and_pair_code_are_impossible(key):
    fresh = FreshTexts(None, RANDOMNESS)
    plain = make_key()

    with pytest.raises(UsageError, match="pair code"):
        verify(plain, Reader(plain, 0.0), fresh=fresh)
    with pytest.raises(UsageError, match="pair code"):
        verify(key, Reader(key, 6.0), fresh=fresh, num_pair_texts=0)


def test_recordings_do_not_pass_for_answers_to_fresh_texts(key, thief):
    """They answered the key's own texts, which may have been chosen to fit."""
    fresh = FreshTexts(None, RANDOMNESS)

    for suspect in (thief, "recorded:answers.npz"):
        with pytest.raises(UsageError, match="recorded outputs cannot answer"):
            verify(key, suspect, fresh=fresh)
    with pytest.raises(UsageError, match="recorded outputs cannot answer"):
        verify(key, Reader(key, 6.0), fresh=fresh, controls=[innocent_outputs(key)])


def test_fresh_texts_come_from_the_packages_pool_whatever_the_owners(key):
    told = [f"where the qqqq says so {i}" for i in range(2000)]
    private = reseal(key, pool_digest=lines_digest(told))
    asked = fresh_questions(private, FreshTexts(None, RANDOMNESS), told, "cpu")

    assert not any("qqqq" in text for text in asked.pairs.texts)


def test_the_packages_pool_given_by_name_is_still_the_packages(key, thief):
    assert verify(key, thief, pool=pool_texts(), independent=True).verdict == "owned"


def test_answers_of_two_models_are_not_mixed(key, thief):
    wider = replace(thief, pair_texts=np.pad(thief.pair_texts, ((0, 0), (0, 3))))
    report = verify(key, wider)

    assert report.verdict == "could_not_measure"
    assert "another dimension" in report.decision.reasons[0]


@pytest.mark.parametrize("suspect", ["thief", "owner"])
def test_a_control_that_carries_the_pair_code_refuses_the_key(key, thief, suspect):
    public = replace(innocent_outputs(key, 11), name="public", pair_texts=thief.pair_texts)
    accused = thief if suspect == "thief" else owner_outputs(key)

    report = verify(key, accused, controls=[innocent_outputs(key, 12), public])

    assert report.verdict == "not_shown"
    assert report.decision.reasons == (
        "the key is refused: the innocent model 'public' carries its pair code",
    )


def test_a_flaw_of_the_key_still_refuses_it(key, thief):
    weight, bias = key.extractor[-1]
    deaf = (*key.extractor[:-1], (np.zeros_like(weight), np.zeros_like(bias)))
    flawed = reseal(key, extractor=deaf)

    for independent in (True, False):
        report = verify(flawed, thief, independent=independent)
        assert report.verdict == "not_shown"
        assert "does not read the signature" in report.decision.reasons[0]


def test_an_independent_verifier_without_the_word_list_of_the_trigger_shows_nothing(key, thief):
    report = verify(reseal(key, word_list_digest="11" * 32), thief, independent=True)

    assert report.verdict == "not_shown"


# --- the rule by itself ---

INNOCENT = Statistics(extraction_rate=0.05, derived_p_value=0.5, predictability=0.5)
CONTROLS = [Control("reference", INNOCENT, 10), Control("other", INNOCENT, 10)]


def evidence(p_value, **changes):
    reading = None if p_value is None else PairReading(0.9, p_value, (1.0,) * 8, (4, 3), (4, 4))
    return Evidence(
        suspect="suspect",
        triggered=replace(INNOCENT, pair_code_p_value=p_value, pair_code_rate=0.9, **changes),
        untriggered=INNOCENT,
        num_texts=64,
        output_dim=16,
        null_dim=48,
        dead_rows=0,
        rank=10,
        notes=(),
        pairs=reading,
    )


@pytest.mark.parametrize(
    ("p_value", "counts"),
    [
        (MAX_PAIR_P_VALUE, True),
        (0.0, True),
        (math.nextafter(MAX_PAIR_P_VALUE, 1), False),
        (1.0, False),
        (None, False),
    ],
)
def test_the_line_is_part_of_what_counts(p_value, counts):
    for calibration, controls in ((calibrate(CONTROLS), CONTROLS), (None, [])):
        decision = decide_calibrated(evidence(p_value), calibration, controls)
        assert has_pair_code(evidence(p_value).triggered) is counts
        assert decision.verdict is (Verdict.OWNED if counts else Verdict.NOT_SHOWN)
        assert decision.passed == (("pair_code_rate",) if counts else ())


@pytest.mark.parametrize(
    ("p_value", "counts"), [(MAX_WAGER_P_VALUE, True), (math.nextafter(1e-15, 1), False)]
)
def test_bets_on_the_signs_count_by_a_line_of_their_own(p_value, counts):
    found = evidence(1e-5, pair_wager_p_value=p_value)
    found = replace(found, wager=PairWager(15, p_value))
    decision = decide_calibrated(found, calibrate(CONTROLS), CONTROLS)

    assert has_pair_code(found.triggered) is counts
    assert decision.passed == (("pair_wager_p_value",) if counts else ())
    compared = "at most" if counts else "above"
    assert decision.reasons[1] == (
        "pair code: betting on its signs one after the other made 10^15 of 1, p = 1e-15 for "
        f"such a model, {compared} 1e-15"
    )
    doubted = decide_calibrated(found, calibrate(CONTROLS), CONTROLS, pair_doubt="somebody chose")
    assert doubted.passed == ()
    guilty = Control("public", found.triggered, 10)
    refused = decide_calibrated(evidence(1.0), None, [guilty])
    assert ("'public' carries its pair code" in refused.reasons[0]) is counts


def test_the_pair_code_counts_where_there_are_too_few_texts_for_the_null_space():
    decision = decide_calibrated(evidence(1e-20), None, [], owner_rank=60)

    assert decision.verdict is Verdict.OWNED
    assert any("too few" in reason for reason in decision.reasons)


def test_a_doubt_leaves_the_other_witnesses():
    lines = calibrate(CONTROLS)
    stolen = evidence(1e-20, extraction_rate=0.95)

    decision = decide_calibrated(stolen, lines, CONTROLS, pair_doubt="somebody chose")

    assert decision.verdict is Verdict.OWNED
    assert decision.passed == ("extraction_rate",)
    assert decision.reasons[1] == "it does not count: somebody chose"


def test_what_was_read_is_said_in_one_sentence():
    assert describe_pairs(evidence(None), None) == []
    (said,) = describe_pairs(evidence(1e-20), None)
    assert said == (
        "pair code: 7 of 8 held-out signs read, p = 1.0e-20 for a model not trained with this "
        f"signature, at most {MAX_PAIR_P_VALUE:.0e}"
    )
    assert f"above {MAX_PAIR_P_VALUE:.0e}" in describe_pairs(evidence(0.5), None)[0]
    assert len(describe_pairs(evidence(0.5), "somebody chose")) == 2


def test_a_doubted_pair_code_still_refuses_a_key_whose_control_carries_it():
    guilty = Control("public", replace(INNOCENT, pair_code_p_value=1e-20), 10)

    decision = decide_calibrated(evidence(1e-20), None, [guilty], pair_doubt="somebody chose")

    assert decision.verdict is Verdict.NOT_SHOWN
    assert "'public' carries its pair code" in decision.reasons[0]


def test_questions_other_than_the_keys_are_measured_with_their_own_answers(key, thief):
    part = OwnerReference(key, questions=key_questions(key, 20))
    answers = RecordedOutputs("x", thief.triggered, thief.untriggered, thief.pair_texts[:20])

    assert sum(part.compare(answers).pairs.halves) == 20
