"""What a verification hands back besides its document."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from handmade_keys import make_key, owner_outputs
from nsmark.api import verify
from nsmark.report import Report
from nsmark.verification.questions import key_questions


def test_the_report_holds_what_was_asked_and_answered():
    key = make_key()
    answers = owner_outputs(key)
    report = verify(key, answers)
    assert report.answers is answers
    assert report.questions.texts == key_questions(key).texts
    assert {"answers", "questions"}.isdisjoint(report.to_mapping())


def test_answers_that_cannot_be_measured_are_not_handed_on():
    key = make_key()
    constant = np.ones_like(owner_outputs(key).triggered)
    report = verify(key, replace(owner_outputs(key), triggered=constant))
    assert report.verdict == "could_not_measure"
    assert report.answers is None


def test_a_verification_that_ended_early_has_every_name_of_one_that_did_not():
    key = make_key()
    ended = Report.unmeasured("no such host", "check the address", suspect="there", key=key)
    assert ended.exit_code == 3
    assert ended.to_mapping().keys() == verify(key, owner_outputs(key)).to_mapping().keys()
    assert ended.to_mapping()["reasons"] == ["no such host", "check the address"]
    assert (ended.key_id, ended.suspect) == (key.key_id, "there")
    assert Report.unmeasured("no key").to_text().startswith("COULD NOT MEASURE")
