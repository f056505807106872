from __future__ import annotations

from dataclasses import dataclass

import pytest

from nsmark.attacks.settings import parse_settings
from nsmark.errors import ConfigError, UsageError


# Annotations as text, which is what `from __future__ import annotations` makes of every one.
@dataclass(frozen=True, kw_only=True)
class Example:
    count: int = 3
    rate: float = 0.5
    name: str = ""


def test_each_value_is_read_as_its_field_says():
    found = parse_settings(Example, {"count": "-7", "rate": "1e-3", "name": "1=2, a b"})
    assert found == Example(count=-7, rate=1e-3, name="1=2, a b")
    assert parse_settings(Example, {}) == Example()


@pytest.mark.parametrize("name", ["counts", "", "Count", "__class__"])
def test_an_unknown_setting_is_refused_with_the_known_ones(name):
    with pytest.raises(UsageError, match="unknown setting") as caught:
        parse_settings(Example, {name: "1"})
    assert caught.value.hint == "known settings: count, name, rate"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "text"), [("count", "three"), ("count", "1.5"), ("count", ""), ("rate", "fast")]
)
def test_a_value_of_the_wrong_type_is_refused_by_name(name, text):
    with pytest.raises(ConfigError, match=name) as caught:
        parse_settings(Example, {name: text})
    assert caught.value.exit_code == 2
