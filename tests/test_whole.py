from __future__ import annotations

from whole import FIXTURES, TESTS, WHOLE


def test_what_is_left_to_the_whole_suite_is_there():
    assert [place for place in WHOLE if not (TESTS / place).exists()] == []


def test_fixtures_that_tell_of_servers_have_these_names():
    sources = [path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")]
    for name in FIXTURES:
        assert any(f"\ndef {name}(" in source for source in sources), name
