"""Controls made from the unmarked model, and what they say about simulated thefts."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from conftest import make_identity
from handmade_keys import innocent_outputs, make_key, pair_outputs, reseal
from handmade_keys import make_identity as handmade_identity
from nsmark.api import verify
from nsmark.api.calibrating import CalibrationSettings, calibrate_key
from nsmark.api.population import ControlPopulation
from nsmark.cli.main import main
from nsmark.corpus import training_texts
from nsmark.errors import EvidenceError, KeyFileError
from nsmark.keyfile import read_key, write_key
from nsmark.payload import PairConfig
from nsmark.payload.pairs import choose_pair_words
from nsmark.payload.word_list import ordinary_word_list
from nsmark.suspects import open_suspect
from nsmark.verification.controls import Controls, owner_controls
from nsmark.verification.evidence import ask

SETTINGS = CalibrationSettings(num_tasks=1, steps=5)


@pytest.fixture(scope="module")
def result(tiny_marked, tiny_st, tiny_bert, identity):
    told: list[tuple[int, int, str]] = []
    found = calibrate_key(
        tiny_marked.key,
        identity,
        tiny_st,
        texts=training_texts()[:300],
        clean=[str(tiny_bert)],
        owner_model=tiny_marked.model_folder,
        settings=SETTINGS,
        device="cpu",
        on_model=lambda *words: told.append(words),
    )
    return found, told


def test_the_population_is_measured_and_told(result):
    found, told = result
    names = [each.suspect for each in found.controls]
    assert names[0] == "reference, as it is"
    for kind in ("fine-tuned 1", "pruned 40%", "8-bit weights", "drawn anew", "last 1 layers"):
        assert any(kind in name for name in names), kind
    assert any("cut to" in name and "by PCA" in name for name in names)
    assert any(name.endswith("tiny-bert") for name in names)
    assert len(names) == len(set(names))
    assert [done for done, _, _ in told] == list(range(told[-1][1] + 1))


def test_the_new_key_holds_them_and_is_sealed(result, tmp_path):
    found, _ = result
    write_key(found.key, tmp_path / "calibrated.nsmark")
    key = read_key(tmp_path / "calibrated.nsmark")
    controls = owner_controls(key)
    assert [c.name for c in controls] == [m.suspect for m in found.controls]
    assert all(c.rank is not None for c in controls)


def test_verification_with_it_states_a_rate(result, tiny_marked, tiny_st):
    found, _ = result
    report = verify(found.key, tiny_marked.model_folder)
    assert report.verdict == "owned"
    assert report.calibration.rate == 1e-3
    assert report.calibration.num_models >= 10
    assert verify(found.key, tiny_st).verdict == "not_shown"


def test_thefts_are_simulated_and_judged(result):
    found, _ = result
    verdicts = {t.suspect: d.verdict for t, d in zip(found.thefts, found.decisions, strict=True)}
    assert verdicts["marked, as it is"] == "owned"
    assert verdicts["marked, as it is | linear map"] == "owned"
    areas = {each.name: each.area for each in found.separations}
    assert areas["aligned_subspace_overlap"] > 0.8
    document = json.loads(json.dumps(found.to_mapping()))
    assert len(document["thefts"]) == len(found.thefts)
    assert document["separation"][0]["roc"][0] == [0.0, 0.0]


@pytest.fixture(scope="module")
def paired():
    return make_key(pairs=PairConfig(size=12, repeats=3))


@pytest.fixture(scope="module")
def population(paired):
    return ControlPopulation(paired, "cpu", training_texts()[:300], SETTINGS)


def test_a_theft_that_only_the_pair_code_shows_is_judged_as_verify_judges(paired, population):
    stolen = replace(innocent_outputs(paired), pair_texts=pair_outputs(paired, 2.0))
    controls = Controls(owner_controls(paired))
    for answers in (stolen, innocent_outputs(paired)):
        expected = verify(paired, answers).decision
        found = population.judged(population.thefts("theft", answers)[0], controls)
        assert (found.verdict, found.passed) == (expected.verdict, expected.passed)
    behind_a_map = population.judged(population.thefts("theft", stolen)[1], controls)
    assert behind_a_map.verdict == "owned"
    assert "pair_code_rate" in behind_a_map.passed


def test_models_are_asked_what_verify_asks(paired, population, tiny_st):
    expected = ask(population.owner.questions, open_suspect(tiny_st, device="cpu"))
    for innocent in (True, False):
        name, run = population.jobs(tiny_st, "model", innocent=innocent)[0]
        assert name == "model, as it is"
        assert run().pair_texts.shape == expected.pair_texts.shape


def test_a_pair_code_that_verify_doubts_counts_no_more_here(paired):
    skipping = paired.pairs.words[0]
    chosen, skipped = choose_pair_words(
        paired.signature,
        ordinary_word_list().words,
        paired.pairs.config.size,
        paired.trigger,
        lambda word: word != skipping,
    )
    key = reseal(paired, pairs=replace(paired.pairs, words=chosen, skipped_words=skipped))
    stolen = replace(innocent_outputs(key), pair_texts=pair_outputs(key, 2.0))
    population = ControlPopulation(key, "cpu", [], SETTINGS)
    judged = population.judged(population.thefts("theft", stolen)[0], Controls(owner_controls(key)))
    assert judged.verdict == verify(key, stolen).verdict == "not_shown"


def test_a_control_that_carries_the_pair_code_is_refused(paired, tiny_st):
    stolen = replace(innocent_outputs(paired), pair_texts=pair_outputs(paired, 2.0))
    with pytest.raises(EvidenceError, match="carries its pair code"):
        calibrate_key(
            paired,
            handmade_identity(),
            tiny_st,
            texts=training_texts()[:300],
            clean=[stolen],
            settings=CalibrationSettings(num_tasks=0),
            device="cpu",
        )


def test_a_marked_control_is_refused(tiny_marked, identity):
    with pytest.raises(EvidenceError, match="carries the mark"):
        calibrate_key(
            tiny_marked.key,
            identity,
            tiny_marked.model_folder,
            texts=training_texts()[:300],
            settings=CalibrationSettings(num_tasks=0),
            device="cpu",
        )


def test_only_the_owner_can_seal(tiny_marked, tiny_st):
    with pytest.raises(KeyFileError, match="another identity"):
        calibrate_key(tiny_marked.key, make_identity(9), tiny_st, texts=training_texts()[:300])


def test_thefts_are_simulated_from_the_keys_own_model_only(tiny_marked, tiny_st, identity):
    with pytest.raises(KeyFileError, match="does not hold the model"):
        calibrate_key(tiny_marked.key, identity, tiny_st, texts=[], owner_model=tiny_st)


def test_the_command_writes_a_key_and_says_what_it_found(
    tiny_marked, tiny_st, identity, tmp_path, capsys
):
    identity.save(tmp_path / "alice")
    words = ["calibrate", tiny_marked.key_file, "--identity", tmp_path / "alice.pem"]
    words += ["--reference", tiny_st, "--owner-model", tiny_marked.model_folder]
    words += ["--tasks", 1, "--steps", 3, "--device", "cpu", "--out", tmp_path / "new.nsmark"]
    words += ["--report", tmp_path / "page.html"]
    assert main([*map(str, words)]) == 0
    captured = capsys.readouterr()
    assert "innocent models" in captured.out
    assert "simulated thefts would be found" in captured.out
    assert "Traceback" not in captured.err
    assert len(read_key(tmp_path / "new.nsmark").controls) > 10
    page, key = (tmp_path / "page.html").read_text(encoding="utf-8"), tiny_marked.key
    assert read_key(tmp_path / "new.nsmark").key_id in page
    assert "--tasks 1 --steps 3 --rate 0.001 --seed 0" in page
    assert page.count('id="kinship-') == 3 * 2
    assert not re.search(rf"\b{key.trigger}\b", page)
    assert key.signature.hex() not in page
    assert not any(text in page for text in key.verification_texts)
    assert str(tmp_path) not in page
    assert main([*map(str, words)]) == 3  # nothing is overwritten
    (tmp_path / "new.nsmark").unlink()
    assert main([*map(str, words)]) == 3  # nor is the page, and that is said before the work
    assert not (tmp_path / "new.nsmark").exists()
