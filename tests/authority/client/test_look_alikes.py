from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsmark_authority.client.look_alikes import look_alike, looks_of


@pytest.mark.parametrize(
    ("name", "forged"),
    [
        ("Example Lab", " example   LAB"),
        ("Example Lab", "Example\u00a0Lab"),
        ("Example Lab", "ExampleLab"),
        ("Example, Inc.", "Example Inc"),
        ("Example", "\uff25\uff58\uff41\uff4d\uff50\uff4c\uff45"),  # full-width letters
        ("Example", "\U0001d404xample"),  # mathematical bold
        ("Example", "Exam\u200dple"),
        ("Example", "Ex\u00e1mple"),
        ("Straße", "STRASSE"),
        ("Acme", "\u0410cme"),  # Cyrillic A
        ("ACME", "\u0410\u0421\u041c\u0415"),
        ("Bosch", "\u0412osch"),  # Cyrillic Ve, alike only as a capital
        ("Apex", "\u0430\u0440\u0435\u0445"),
        ("Nvidia", "\u039dvidia"),  # Greek capital Nu
        ("Nvidia", "n\u03bdidia"),  # Greek small nu
        ("Alpha", "\u0391lpha"),
        ("Alice", "AIice"),  # a capital i
        ("Alice", "A1ice"),
        ("Google", "G00gle"),
        ("Modem", "Modern"),
        ("Лаборатория", "ЛАБОРАТОРИЯ"),
        ("★", "★"),
    ],
)
def test_names_that_look_alike_are_found(name: str, forged: str) -> None:
    assert look_alike(name, forged)
    assert look_alike(forged, name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Example", "Examples"),
        ("Acme", "Akme"),
        ("Owner 2", "Owner 3"),
        ("研究所", "研究室"),
        ("कि", "कु"),  # vowel signs count
        ("★", "☆"),
        ("Acme", ""),
        ("", ""),
    ],
)
def test_other_names_give_no_alert(one: str, other: str) -> None:
    assert not look_alike(one, other)


@given(st.text(max_size=40))
def test_whatever_can_be_seen_has_a_form(name: str) -> None:
    assert bool(looks_of(name)) or not name.split()
    assert looks_of(name) == looks_of(f" {name} ")
