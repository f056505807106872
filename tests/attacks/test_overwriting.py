from __future__ import annotations

import tempfile

import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from attack_runs import attack, small_material
from nsmark.api import verify
from nsmark.attacks.recipes.overwriting import OverwritingSettings, key_name, other_owner
from nsmark.attacks.suite import run_suite
from nsmark.corpus import training_texts
from nsmark.embedding.config import preset_config
from nsmark.errors import EmbeddingError
from nsmark.keyfile.store import read_key
from nsmark.models.loading import open_encoder

# What a model of 32 dimensions can hold.
SMALL = {
    "learning_rate": "2e-3",
    "num_bits": "16",
    "num_texts": "96",
    "extractor_width": "32",
    "max_steps": "600",
}


@pytest.fixture(scope="module")
def overwritten(tiny_marked, tmp_path_factory):
    """The attacked folder, what was told of it, and the steps that were told on the way."""
    out, told = tmp_path_factory.mktemp("overwritten") / "model", []
    material = small_material(on_step=lambda done, total: told.append((done, total)))
    found = attack(tiny_marked.model_folder, out, "overwriting", SMALL, material=material)
    return out, found, told


def test_both_owners_marks_are_in_the_model(tiny_marked, overwritten):
    out, found, _ = overwritten
    other = read_key(out / found["key"])
    assert verify(tiny_marked.key, out).verdict == "owned"
    assert verify(other, out).verdict == "owned"
    # The second mark came with the attack: before it, only the first was there.
    assert verify(other, tiny_marked.model_folder).verdict == "not_shown"


def test_a_trial_tells_what_the_other_owner_can_show_and_trains_the_same_again(
    tiny_marked, overwritten, tmp_path
):
    """Both marks are found; his only after he put it there. Dates decide, not the marks."""
    settings = ",".join(f"{name}={value}" for name, value in SMALL.items())
    (row,) = run_suite(
        tiny_marked.key,
        tiny_marked.model_folder,
        tmp_path,
        small_material(),
        [f"overwriting[{settings}]"],
    )
    assert row.verdict == "owned"
    (other,) = row.other_owners
    assert (other["attack"], other["verdict"]) == ("overwriting", "owned")
    assert other["statistics"]["extraction_rate"] > 0.9
    assert other["verdict_on_the_stolen_model"] == "not_shown"
    measured = verify(tiny_marked.key, overwritten[0]).evidence.triggered.to_mapping()
    there = {name: value for name, value in measured.items() if value is not None}
    assert {name: row.statistics[name] for name in there} == pytest.approx(there, rel=1e-6)


def test_the_second_key_is_another_owners(tiny_marked, overwritten):
    out, found, _ = overwritten
    other = read_key(out / "other-owner.nsmark")
    assert found["key"] == "other-owner.nsmark"
    assert found["other_owner"] == other_owner(0).public_key.raw.hex()
    assert found["other_owner"] != other_owner(1).public_key.raw.hex()
    assert other.signed_claim.public_key == other_owner(0).public_key
    assert other.signed_claim.public_key != tiny_marked.key.signed_claim.public_key


def test_the_model_changes_and_opens_as_before(tiny_marked, overwritten):
    out, found, told = overwritten
    texts = training_texts()[-50:]
    before = open_encoder(tiny_marked.model_folder, device="cpu").encode(texts)
    after = open_encoder(out, device="cpu").encode(texts)
    assert after.shape == before.shape
    # The thief keeps clean answers as they are, too.
    assert 0.9 < float((before * after).sum(axis=1).mean()) < 1 - 1e-6
    assert [done for done, _ in told] == list(range(1, found["steps"] + 1))
    assert all(done <= total for done, total in told)


def test_a_mark_that_is_not_learned_is_an_error_and_leaves_nothing(tiny_st, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(EmbeddingError):
        attack(tiny_st, tmp_path / "out", "overwriting", SMALL | {"max_steps": "2"})
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_several_keys_have_several_names():
    assert key_name(()) == "other-owner.nsmark"
    assert key_name({"other-owner.nsmark": b""}) == "other-owner-2.nsmark"
    assert key_name(["other-owner.nsmark", "other-owner-2.nsmark"]) == "other-owner-3.nsmark"


def test_usual_settings_are_the_presets():
    for preset in ("fast", "strong", "paper"):
        assert OverwritingSettings(preset=preset).training() == preset_config(preset)
    changed = OverwritingSettings(learning_rate=1e-3, max_steps=7, extractor_width=9, seed=5)
    found = changed.training()
    assert (found.model_learning_rate, found.extractor_learning_rate) == (1e-3, 1e-3)
    assert (found.max_steps, found.hidden_sizes, found.seed) == (7, (9, 9), 5)
    slow = OverwritingSettings(learning_rate=1e-5).training()
    assert slow.extractor_learning_rate == preset_config("fast").extractor_learning_rate
    assert OverwritingSettings().payload().num_bits == 256
    assert OverwritingSettings(num_bits=32).payload().num_bits == 32
