"""Reports: every promised name, plain JSON, and no way for a claim to rewrite the page."""

import json
from dataclasses import replace

import numpy as np
import pytest

from handmade_keys import innocent_outputs, make_key, mapped_outputs, owner_outputs, reseal
from nsmark import __version__
from nsmark.api import verify
from nsmark.payload import PairConfig
from nsmark.report import Report, library_versions
from nsmark.suspects import RecordedOutputs
from nsmark.verification import STATISTIC_NAMES, Verdict
from spec_names import OWN_STATISTICS, REPORT


def refuse_constant(name):
    raise AssertionError(f"{name} in the report")


def parse(report: Report):
    return json.loads(report.to_json(), parse_constant=refuse_constant)


@pytest.fixture(scope="module")
def key():
    return make_key()


@pytest.fixture(scope="module")
def reports(key):
    own = owner_outputs(key)
    constant = np.ones((64, 16))
    return {
        "owned": verify(key, own),
        "innocent": verify(key, innocent_outputs(key)),
        "mapped": verify(key, mapped_outputs(own, np.random.default_rng(0).random((16, 16)))),
        "other dimension": verify(key, innocent_outputs(key, output_dim=100)),
        "independent": verify(key, own, independent=True),
        "controls": verify(key, own, controls=[innocent_outputs(key, 1), innocent_outputs(key, 2)]),
        "constant": verify(key, RecordedOutputs("constant", constant, constant)),
        "nan": verify(key, replace(own, triggered=constant * np.nan)),
        "huge": verify(key, mapped_outputs(own, 1e250 * np.eye(16))),
        "few rows": verify(key, replace(own, untriggered=own.untriggered[1:])),
    }


EXPECTED = {
    "owned": "owned",
    "innocent": "not_shown",
    "mapped": "owned",
    "other dimension": "not_shown",
    "independent": "not_shown",
    "controls": "owned",
    "constant": "could_not_measure",
    "nan": "could_not_measure",
    "huge": "owned",
    "few rows": "could_not_measure",
}


@pytest.mark.parametrize("case", EXPECTED)
def test_report_has_every_promised_name_whatever_happened(reports, case):
    document = parse(reports[case])

    assert set(document) >= REPORT | OWN_STATISTICS
    assert {"sized_extraction_rate", "sized_untriggered_rate"} <= set(document)
    assert set(document["untriggered"]) == set(STATISTIC_NAMES) <= REPORT | OWN_STATISTICS
    assert document["verdict"] == EXPECTED[case]
    assert document["reasons"]
    assert all(isinstance(reason, str) and reason for reason in document["reasons"])
    assert document["seconds"] >= 0
    assert document["rule"] == "calibrated"


@pytest.mark.parametrize("case", EXPECTED)
def test_numbers_are_numbers_or_null(reports, case):
    document = parse(reports[case])
    for values in (document, document["untriggered"]):
        for name in STATISTIC_NAMES:
            assert values[name] is None or type(values[name]) is float
    for name in ("num_texts", "output_dim", "null_dim", "dead_rows"):
        assert document[name] is None or type(document[name]) is int


def test_measured_report_holds_the_numbers(reports, key):
    document = parse(reports["owned"])

    assert document["extraction_rate"] == 1.0
    assert document["untriggered"]["extraction_rate"] == 0.0
    assert document["matching_degree"] < 0.01
    assert document["key_id"] == key.key_id
    assert document["suspect"] == "the owner's model"
    assert (document["num_texts"], document["output_dim"], document["null_dim"]) == (64, 16, 48)
    assert document["thresholds"]["num_control_models"] == 1
    assert document["thresholds"]["false_accusation_rate"] is None
    assert document["passed"][0] == "extraction_rate"
    assert document["claim"] == key.signed_claim.claim.to_mapping()


def test_report_without_evidence_is_null_and_says_why(reports):
    for case, word in (("constant", "same"), ("nan", "NaN"), ("few rows", "63")):
        document = parse(reports[case])
        assert all(document[name] is None for name in STATISTIC_NAMES)
        assert document["num_texts"] is document["null_dim"] is None
        assert word in document["reasons"][0]


def test_report_says_who_calibrated(reports):
    calibrators = {case: parse(report)["calibrated_by"] for case, report in reports.items()}

    assert calibrators["owned"] == "owner"
    assert calibrators["controls"] == "verifier"
    assert calibrators["independent"] is None
    assert parse(reports["independent"])["thresholds"] is None
    assert parse(reports["independent"])["reasons"] == ["not calibrated by the verifier"]


def test_controls_of_the_verifier_replace_the_owners(key, reports):
    owner, verifier = parse(reports["owned"]), parse(reports["controls"])

    assert owner["thresholds"] != verifier["thresholds"]
    assert verifier["extraction_rate"] == owner["extraction_rate"]


def test_secret_is_not_in_the_report(reports, key):
    for report in reports.values():
        for text in (report.to_json(), report.to_text()):
            assert key.signature.hex() not in text
            assert key.trigger not in text.split()
            assert key.verification_texts[0] not in text


@pytest.mark.parametrize("case", EXPECTED)
def test_exit_codes_follow_the_verdict(reports, case):
    codes = {"owned": 0, "not_shown": 1, "could_not_measure": 3}

    assert reports[case].exit_code == codes[EXPECTED[case]]
    assert reports[case].verdict is Verdict(EXPECTED[case])


@pytest.mark.parametrize("case", EXPECTED)
def test_page_for_people_names_verdict_suspect_and_key(reports, case, key):
    page = reports[case].to_text()

    heading = page.splitlines()[0]
    assert heading.startswith(EXPECTED[case].replace("_", " ").upper())
    assert reports[case].suspect in heading
    assert key.key_id in page
    for reason in reports[case].decision.reasons:
        assert reason in page


def test_page_shows_very_small_numbers_as_small(reports):
    # A p-value or degree of 1e-7 must not be shown as the 0.000 of a rounded one.
    page = reports["owned"].to_text()
    (line,) = (line for line in page.splitlines() if line.startswith("matching degree, paper's"))

    assert "0.000" not in line
    assert 0 < float(line.split()[-2]) < 5e-4


@pytest.fixture(scope="module")
def pair_reports():
    key = make_key(pairs=PairConfig(size=12, repeats=3))
    own = owner_outputs(key)
    return {
        "owned": verify(key, own, independent=True),
        "innocent": verify(key, innocent_outputs(key)),
        "doubtful": verify(reseal(key, pool_digest="00" * 32), own),
        "not asked": verify(key, own, num_pair_texts=0),
        "paper": verify(key, own, rule="paper"),
    }


def test_report_says_what_was_read_of_the_pair_code(pair_reports):
    document = parse(pair_reports["owned"])

    assert document["pair_code"] == {
        "rate": 1.0,
        "p_value": 2 * 0.5**72,
        "right": [72, 72],
        "pairs": [72, 72],
        "decades_won": 41,  # of 43 that 144 signs could win
        "wager_p_value": document["pair_wager_p_value"],
        "num_texts": 432,
        "doubt": None,
    }
    assert document["pair_code_rate"] == document["pair_code"]["rate"]
    assert document["pair_code_p_value"] == document["pair_code"]["p_value"]
    assert document["untriggered"]["pair_code_rate"] is None
    assert parse(pair_reports["innocent"])["pair_code"]["p_value"] == 1.0


def test_report_without_a_pair_code_has_null_and_no_line(reports, pair_reports):
    for report in (*reports.values(), pair_reports["not asked"]):
        assert parse(report)["pair_code"] is None
        page = report.to_text().splitlines()
        assert page[1] == ""
        assert not [line for line in page if line.startswith("pair code")]


@pytest.mark.parametrize(
    ("case", "line"),
    [
        ("owned", "144 of 144 signs read; {} at most once in 2×10²¹ tries"),
        (
            "paper",
            "144 of 144 signs read; {} at most once in 2×10²¹ tries; the verdict does not rest on "
            "it",
        ),
        ("innocent", "60 of 144 signs read; {} by chance alone"),
        (
            "doubtful",
            "144 of 144 signs read; {} at most once in 2×10²¹ tries; it does not count, see below",
        ),
    ],
)
def test_page_for_people_leads_with_the_pair_code(pair_reports, case, line):
    page = pair_reports[case].to_text().splitlines()

    words = "a model not trained with this signature would do as well"
    assert page[1] == f"pair code: {line.format(words)}"
    assert page[2] == ""
    (rate,) = (number for number, one in enumerate(page) if one.startswith("pair code ("))
    assert page[rate + 1].startswith("  its p-value")


def test_doubt_is_kept_beside_the_reasons(pair_reports):
    assert "a pool not at hand" in pair_reports["doubtful"].pair_doubt
    assert pair_reports["owned"].pair_doubt is None


def test_scores_are_not_in_the_report(pair_reports):
    # Their signs are the table.
    for report in pair_reports.values():
        assert "scores" not in report.to_json()


def test_owner_cannot_rewrite_the_page_with_control_characters(reports):
    hostile = "x\r\x1b[2K\x1b[1mOWNED\n\nOWNED\u202e\u2028 by Mallory"
    report = replace(
        reports["innocent"], claim=reports["innocent"].claim | {"owner": hostile}, suspect="a\x1b[m"
    )

    page = report.to_text()

    assert len(page.splitlines()) == len(reports["innocent"].to_text().splitlines())
    assert not {"\r", "\x1b", "\u202e", "\u2028"} & set(page)
    assert page.startswith("NOT SHOWN")
    assert "Mallory" in page
    assert parse(report)["claim"]["owner"] == hostile  # JSON escapes by itself


def test_names_in_other_scripts_are_shown_as_they_are(reports):
    claim = reports["innocent"].claim | {"owner": "Gödel & 株式会社"}

    assert "Gödel & 株式会社" in replace(reports["innocent"], claim=claim).to_text()


def test_report_that_holds_nan_is_never_written(reports):
    with pytest.raises(ValueError, match="JSON"):
        replace(reports["owned"], seconds=float("nan")).to_json()


def test_versions_name_what_results_depend_on():
    versions = library_versions()

    assert versions["nsmark"] == __version__
    assert {"python", "numpy", "scipy", "cryptography", "torch", "transformers"} <= set(versions)
    assert versions["numpy"] == np.__version__
