"""Controls of the owner's own are believed only as far as they are possible."""

from __future__ import annotations

import pytest

from handmade_keys import innocent_outputs, make_key, owner_outputs, reseal
from nsmark.api import verify
from nsmark.errors import KeyFileError
from nsmark.keyfile import ControlRecord
from nsmark.verification.controls import owner_controls


def with_control(degree: float, rate: float = 0.0):
    values = {"extraction_rate": rate, "invariant_matching_degree": degree}
    record = ControlRecord(name="invented", triggered=values, untriggered=values)
    return reseal(make_key(), controls=(record,))


def test_honest_controls_are_taken_as_they_are():
    key = make_key()
    (control,) = owner_controls(key)
    assert control.name == key.controls[0].name
    assert control.triggered.to_mapping() | {"rank": control.rank} == key.controls[0].triggered


@pytest.mark.parametrize(("degree", "rate"), [(1e9, 0.0), (-1.0, 0.0), (10.0, -0.5), (10.0, 1.5)])
def test_impossible_controls_are_a_forgery(degree, rate):
    key = with_control(degree, rate)
    with pytest.raises(KeyFileError, match="no model can have"):
        verify(key, innocent_outputs(key))


def test_a_control_that_the_key_itself_accepts_refuses_the_key():
    key = with_control(degree=10.0, rate=0.9)
    for rule, words in (
        ("paper", "accepts the innocent model"),
        ("calibrated", "reads the signature from the innocent model"),
    ):
        report = verify(key, owner_outputs(key), rule=rule)
        assert report.verdict == "not_shown"
        assert words in report.decision.reasons[0]


def test_an_independent_verifier_needs_checked_derivations():
    key = reseal(make_key(), pool_digest="0" * 64)
    innocent = innocent_outputs(key)
    assert verify(key, owner_outputs(key)).verdict == "owned"
    report = verify(key, owner_outputs(key), controls=[innocent], independent=True)
    assert report.verdict == "not_shown"
    assert report.decision.reasons == ("the key's derivations were not checked",)
