"""A new attack is one file, one test, one line in the registry and one page: all of them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import nsmark.attacks.recipes
from nsmark.attacks import ATTACKS, find_attack
from nsmark.attacks.expression import parse_attack
from nsmark.errors import UsageError

ROOT = Path(__file__).parents[2]
NAMES = [attack.name for attack in ATTACKS]


def files(folder: Path, pattern: str, prefix: str = "") -> set[str]:
    return {path.stem.removeprefix(prefix) for path in folder.glob(pattern)}


def test_every_attack_has_its_file_its_test_and_its_page():
    modules = {name.replace("-", "_") for name in NAMES}
    assert len(modules) == len(NAMES)
    recipes = Path(nsmark.attacks.recipes.__file__).parent
    assert files(recipes, "*.py") - {"__init__"} == modules
    assert files(ROOT / "tests" / "attacks" / "recipes", "test_*.py", "test_") == modules
    assert files(ROOT / "docs" / "attacks", "*.md") - {"README"} == set(NAMES)


@pytest.mark.parametrize("attack", ATTACKS, ids=NAMES)
def test_a_recipe_says_what_it_is(attack):
    recipe = attack.recipe()
    assert find_attack(attack.name) is attack
    assert (recipe.name, recipe.summary) == (attack.name, attack.summary)
    for text in (recipe.source, recipe.deviations, recipe.cost, recipe.keeps):
        assert len(text) > 3
    assert is_dataclass(recipe.settings)
    usual = recipe.settings()
    # Strings, because the module's annotations are not evaluated.
    assert all(each.type in ("int", "float", "str") for each in fields(usual))


@pytest.mark.parametrize("attack", ATTACKS, ids=NAMES)
def test_every_trial_of_the_suite_can_be_read_and_is_another_one(attack):
    trials = attack.recipe().trials or ("",)
    written = [str(parse_attack(f"{attack.name}[{trial}]")[0]) for trial in trials]
    assert len(written) == len(set(written))
    assert all(text.startswith(attack.name) for text in written)


def test_an_unknown_attack_is_wrong_usage():
    with pytest.raises(UsageError, match="there is no attack") as caught:
        find_attack("magic")
    assert "ll-lfea" in caught.value.hint
