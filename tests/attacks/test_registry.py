from __future__ import annotations

from importlib import import_module

import pytest

from nsmark.attacks import ATTACKS, find_attack
from nsmark.errors import UsageError


def test_every_attack_has_a_name_a_summary_and_something_to_run():
    names = [attack.name for attack in ATTACKS]
    assert "ll-lfea" in names
    assert len(names) == len(set(names))
    for attack in ATTACKS:
        assert find_attack(attack.name) is attack
        assert attack.summary
        assert callable(import_module(attack.module).run)


@pytest.mark.parametrize("name", ["", "LL-LFEA", "ll_lfea", "nsmark.attacks.ll_lfea"])
def test_an_unknown_attack_is_refused_with_the_known_ones(name):
    with pytest.raises(UsageError, match="no attack") as caught:
        find_attack(name)
    assert "ll-lfea" in caught.value.hint
