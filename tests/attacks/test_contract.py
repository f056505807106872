"""What every attack promises, asked of each: a new one needs an entry in CASES."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

import nsmark.attacks.recipes
from attack_runs import TEXTS, answers, attack, small_material
from nsmark.api import verify
from nsmark.attacks import ATTACKS, find_attack
from nsmark.attacks.expression import parse_attack
from nsmark.attacks.stolen import Stolen
from nsmark.errors import ConfigError, UsageError

ROOT = Path(__file__).parents[2]
NAMES = [attack.name for attack in ATTACKS]


@dataclass(frozen=True)
class Case:
    """How one attack is tried on a tiny model, and what it promises."""

    quick: str = ""
    """Settings that take little time."""
    marked: str | None = None
    """Settings for the marked model, where they are others."""
    verdict: str | None = None
    """On the marked model; None where nothing is promised."""
    rule: str = "calibrated"
    overlap: bool = False
    """Whether the space of the owner's outputs is still there."""
    refused: str = ""
    """Settings that are refused by name, each by itself."""
    refused_here: str = ""
    """The same, of what a model of 32 dimensions and two layers cannot have."""


TRAINED = "epochs=0 epochs=nan steps=-1 steps=many learning_rate=inf learning_rate=-1e-5 "
TRAINED += "learning_rate=nan learning_rate=0 batch_size=0 seed=-1 alpha=8"
SEED = f"seed=-1 seed={2**63} seed=0.5 seed=one"
OWNED, NOT_SHOWN = "owned", "not_shown"

CASES = {
    "ll-lfea": Case(
        verdict=OWNED,
        overlap=True,
        refused="kind=singular kind=from-heads seed=-1 seed=one times=0 times=99 matrix=identity",
    ),
    "affine": Case(
        verdict=OWNED,
        overlap=True,
        refused="kind=from-heads offset=-0.1 offset=1001 offset=nan offset=inf seed=-1 seed=0.5 "
        "length=1",
    ),
    "whitening": Case(
        verdict=OWNED,
        overlap=True,
        refused="num_texts=7 num_texts=100001 num_texts=many ridge=-1e-9 ridge=1.1 ridge=nan "
        "ridge=inf seed=-1 share=1",
    ),
    "near-singular": Case(
        marked="condition=30",
        verdict=OWNED,
        overlap=True,
        refused="condition=0.9 condition=1000001 condition=-10 condition=nan condition=inf "
        "condition=bad seed=-1 rank=3",
    ),
    "text-scaling": Case(verdict=OWNED, refused=f"flips=2 flips=-1 flips=yes {SEED} sign=1"),
    "unit-length": Case(verdict=OWNED, overlap=True, refused="length=2"),
    "dimension-cut": Case(
        "how=random",
        # The calibrated rule would need innocent models cut to the same rank, which this key lacks.
        verdict=OWNED,
        rule="paper",
        overlap=True,
        refused="dimensions=-1 dimensions=65537 dimensions=half how=last seed=-1 share=0.5",
        refused_here="dimensions=32 dimensions=33",
    ),
    "dimension-expansion": Case(
        verdict=OWNED,
        overlap=True,
        refused="dimensions=-1 dimensions=65537 dimensions=twice seed=-1 noise=1",
        refused_here="dimensions=32 dimensions=31",
    ),
    "output-noise": Case(
        refused="share=0 share=-0.1 share=10.5 share=nan share=inf how=uniform seed=-1 size=1"
    ),
    "rounding": Case(
        "how=per-dimension",
        marked="",
        verdict=OWNED,
        rule="paper",
        # An even number of levels: zero would be none.
        refused="levels=1 levels=2 levels=256 levels=65537 levels=-255 levels=8.5 how=each bits=8",
    ),
    "half-precision": Case(verdict=OWNED, refused="bits=16"),
    "signs": Case(refused="threshold=0"),
    "pruning": Case(
        marked="share=0.01",
        verdict=OWNED,
        refused="share=0 share=1 share=-0.1 share=1.5 share=nan share=inf share=half "
        "scope=everything layers=1",
    ),
    "weight-noise": Case(
        marked="share=0.001",
        verdict=OWNED,
        refused=f"share=0 share=-1 share=11 share=nan share=inf {SEED} sigma=1",
    ),
    "quantisation": Case(
        verdict=OWNED,
        refused="bits=1 bits=9 bits=-8 bits=4.5 bits=nan how=magic bits=4,how=torchao "
        "bits=5,how=bitsandbytes scale=1",
    ),
    "layer-dropping": Case(
        refused="layers=0 layers=-1 layers=1.5 layers=nan depth=1",
        refused_here="layers=2 layers=99",  # all that it has, and more
    ),
    "reinitialisation": Case(
        marked="layers=2",
        verdict=NOT_SHOWN,
        refused=f"layers=0 layers=-1 layers=all layers=nan {SEED} scale=1",
        refused_here="layers=3",
    ),
    "pooling-change": Case(
        marked="pooling=mean",  # which it has
        verdict=OWNED,
        overlap=True,
        refused="pooling=sum pooling= pooling=Mean tokens=all",
    ),
    "fine-tuning": Case(
        "steps=3,learning_rate=1e-3", marked="", verdict=OWNED, refused=f"{TRAINED} rank=8"
    ),
    "lora-fine-tuning": Case("steps=3", verdict=OWNED, refused=f"{TRAINED} rank=0 rank=9999"),
    "fine-pruning": Case(
        "steps=2,num_texts=20,learning_rate=1e-3",
        marked="steps=2,share=0.05",
        verdict=OWNED,
        refused=f"{TRAINED} share=1 share=-0.1 share=nan num_texts=0 layers=1",
    ),
    "distillation": Case(
        "steps=3,num_texts=40",
        marked="steps=60,learning_rate=2e-3",
        verdict=NOT_SHOWN,
        refused="queries=dirty num_texts=3 steps=0 learning_rate=nan learning_rate=0 batch_size=0 "
        "seed=-1 teacher=x",
    ),
    "paraphrasing": Case(
        "steps=3,num_texts=32,paraphrases=3,learning_rate=2e-3",
        marked="steps=40,num_texts=96,paraphrases=3,learning_rate=2e-3",
        verdict=NOT_SHOWN,
        refused="paraphrases=0 paraphrases=65 num_texts=7 steps=0 learning_rate=0 "
        "learning_rate=nan learning_rate=inf seed=-1 teacher=x kept_words=-1 kept_words=101 "
        "kept_order=101",
    ),
    "rare-word-filter": Case(
        verdict=NOT_SHOWN, refused="keep=0 keep=200001 keep=x cut=1 texts=mine"
    ),
    "repeated-word-filter": Case(refused="most=0 most=65 most=1.5 min_letters=0 min_letters=65"),
    "surprising-word-filter": Case(
        refused="threshold=0 threshold=-1 threshold=nan threshold=inf threshold=100.5 "
        "threshold=much texts=mine language_model=gpt2"
    ),
    "cluster-elimination": Case(
        verdict=OWNED,
        rule="paper",
        overlap=True,
        refused="clusters=0 clusters=1001 directions=0 share=0 share=1.01 share=nan num_texts=7 "
        "seed=-1 depth=1",
        refused_here="directions=32",
    ),
    # It trains a whole mark; what it leaves is asked in test_overwriting.py.
    "overwriting": Case(
        refused="preset=weak learning_rate=-1 learning_rate=nan max_steps=-1 num_bits=3 "
        "num_bits=-8 num_texts=-1 extractor_width=100000 seed=-1 owner=me"
    ),
}
EXTRAS = {"lora-fine-tuning": "peft"}
RUN = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            find_spec(EXTRAS.get(name, "torch")) is None, reason="needs an extra"
        ),
    )
    for name in CASES
    if name != "overwriting"
]


def stems(folder: Path, pattern: str) -> set[str]:
    return {path.stem for path in folder.glob(pattern)}


def on_unmarked(name: str) -> str:
    return f"{name}[{CASES[name].quick}]"


def on_marked(name: str) -> str:
    case = CASES[name]
    return f"{name}[{case.quick if case.marked is None else case.marked}]"


# --- the catalogue -------------------------------------------------------------------------------


def test_every_attack_has_its_file_its_case_and_its_page():
    assert len(set(NAMES)) == len(NAMES)
    recipes = Path(nsmark.attacks.recipes.__file__).parent
    modules = {name.replace("-", "_") for name in NAMES}
    assert stems(recipes, "*.py") - {"__init__"} == modules
    assert stems(ROOT / "docs" / "attacks", "*.md") - {"README"} == set(NAMES) == set(CASES)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_what_it_is_and_what_the_suite_tries(name):
    recipe = find_attack(name).recipe()
    for text in (recipe.source, recipe.deviations, recipe.cost, recipe.keeps):
        assert len(text) > 3
    assert is_dataclass(recipe.settings)
    # Strings, because the module's annotations are not evaluated.
    assert all(each.type in ("int", "float", "str") for each in fields(recipe.settings()))
    trials = recipe.trials
    written = [str(parse_attack(f"{name}[{trial}]")[0]) for trial in trials]
    assert len(written) == len(set(written))
    assert all(text.startswith(name) for text in written)


def test_an_unknown_attack_is_wrong_usage():
    with pytest.raises(UsageError, match="there is no attack") as caught:
        find_attack("magic")
    assert "ll-lfea" in caught.value.hint


REFUSED = [(name, wrong) for name, case in CASES.items() for wrong in case.refused.split()]


@pytest.mark.parametrize(("name", "wrong"), REFUSED)
def test_settings_out_of_range_are_refused_by_name(name, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        parse_attack(f"{name}[{wrong}]")
    assert caught.value.exit_code == 2
    assert any(pair.partition("=")[0] in str(caught.value) for pair in wrong.split(","))


HERE = [(name, wrong) for name, case in CASES.items() for wrong in case.refused_here.split()]


@pytest.mark.parametrize(("name", "wrong"), HERE)
def test_what_this_model_cannot_have_is_wrong_usage_and_writes_nothing(
    tiny_st, tmp_path, name, wrong
):
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(tiny_st, tmp_path / "out", f"{name}[{wrong}]")
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


# --- what is done --------------------------------------------------------------------------------


SAME = 1e-3
"""Of the answers' deviation: folders hold float32, and whitening enlarges what is lost by that."""


def in_memory(model: Path, expression: str) -> tuple[np.ndarray, dict]:
    """Return what the attacked model answers before it is written, and what was done."""
    (step,) = parse_attack(expression)
    stolen = Stolen.open(model, device="cpu")
    facts = step.recipe.apply(stolen, step.settings, small_material())
    return stolen.outputs(TEXTS), facts


@pytest.mark.parametrize("name", RUN)
def test_the_folder_answers_as_the_model_that_was_attacked_and_says_what_was_done(
    attacked, tiny_st, name
):
    """Two runs, one written and one not: they are the same for the same seed."""
    folder, facts = attacked(on_unmarked(name))
    done = json.loads((folder / "attack.json").read_text(encoding="utf-8"))
    assert done == facts["all"]
    assert done["attack"].startswith(name)
    answered, again = in_memory(tiny_st, on_unmarked(name))
    assert {key: facts[key] for key in again} == again
    np.testing.assert_allclose(answers(folder), answered, rtol=0, atol=SAME * answered.std())
    assert np.isfinite(answered).all()
    assert answered.shape[1] == facts.get("output_dim", 32)


def draws(name: str) -> bool:
    """Return whether chance has a part in an attack."""
    return "seed" in {each.name for each in fields(find_attack(name).recipe().settings)}


@pytest.mark.parametrize("name", [each for each in RUN if draws(str(each.values[0]))])
def test_another_seed_is_another_attack(attacked, tiny_st, name):
    folder = attacked(on_unmarked(name)).folder
    other, _ = in_memory(tiny_st, f"{name}[{CASES[name].quick},seed=1]")
    assert np.abs(answers(folder) - other).max() > 2 * SAME * other.std()


@pytest.mark.parametrize("name", RUN)
def test_an_unmarked_model_is_never_accused(attacked, tiny_marked, name):
    folder = attacked(on_unmarked(name)).folder
    assert verify(tiny_marked.key, folder).verdict == "not_shown"


PROMISED = [each for each in RUN if CASES[str(each.values[0])].verdict is not None]


@pytest.mark.parametrize("name", PROMISED)
def test_the_mark_shows_where_it_is_promised(attacked, tiny_marked, name):
    case = CASES[name]
    report = verify(tiny_marked.key, attacked(on_marked(name), "marked").folder, rule=case.rule)
    assert report.verdict == case.verdict
    if case.overlap:
        assert report.evidence.triggered.subspace_overlap > 0.999
