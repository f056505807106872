"""What is to be done, as it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsmark.attacks.expression import parse_attack, written
from nsmark.errors import ConfigError, NsmarkError, UsageError


def test_several_attacks_are_read_in_order_with_their_settings():
    steps = parse_attack("ll-lfea[seed=3, kind=conditioned]+ll-lfea + ll-lfea[times=2]")
    assert [step.settings.seed for step in steps] == [3, 0, 0]
    assert [step.settings.times for step in steps] == [1, 1, 2]
    text = written(steps)
    assert text == "ll-lfea[kind=conditioned,seed=3] + ll-lfea + ll-lfea[times=2]"
    assert written(parse_attack(text)) == text


def test_settings_that_are_the_usual_ones_are_not_written():
    assert written(parse_attack("ll-lfea[seed=0,kind=uniform]")) == "ll-lfea"
    assert written(parse_attack("ll-lfea", {"seed": "2"})) == "ll-lfea[seed=2]"


@pytest.mark.parametrize(
    "wrong",
    ["", "+", "ll-lfea +", "LL-LFEA", "ll-lfea[seed]", "ll-lfea[[seed=1]]", "ll-lfea]", "magic"],
)
def test_what_is_written_otherwise_is_wrong_usage(wrong):
    with pytest.raises(UsageError):
        parse_attack(wrong)


def test_settings_beside_several_attacks_are_refused():
    with pytest.raises(UsageError, match="which of several"):
        parse_attack("ll-lfea + ll-lfea", {"seed": "1"})
    with pytest.raises(ConfigError):
        parse_attack("ll-lfea[seed=-1]")


@given(st.text(max_size=80))
def test_anything_else_is_refused_with_a_hint(text):
    with pytest.raises(NsmarkError) as caught:
        parse_attack(f"{text}!")
    assert caught.value.hint
