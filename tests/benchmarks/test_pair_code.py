"""The benchmark of the pair code runs, and its page says what its numbers say."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def script():
    before, loaded = list(sys.path), set(sys.modules)
    spec = importlib.util.spec_from_file_location("pair_code", FOLDER / "pair_code.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    for name in set(sys.modules) - loaded:
        if name.partition(".")[0] in ("pair_table", "evidence_table", "family_table", "fidelity"):
            del sys.modules[name]


def row(base: str, rate: float, change: str = "as it is") -> dict:
    right = round(128 * rate)
    p_value = 1e-35 if rate > 0.9 else 0.3
    reading = {"rate": rate, "p": p_value, "right": [right, right], "halves": [128, 128]}
    return {"base": base, "change": change, **reading}


def document(rows: list[dict]) -> dict:
    made_with = {"command": "python …", "environments": [{"torch": "2"}]}
    return {"parts": {"attacks": {"rows": rows, "notes": ["a note"], **made_with}}}


def test_targets_are_met_missed_or_unknown(script):
    rows = [row("marked", 1.0), row("marked", 0.9, "whitened"), row("marked", 0.96, "signs")]
    rows += [row("pruned 50%", 0.96), row("fine-tuned on sst2", 0.97)]
    found = {target.what: target for target in script.all_targets(document(rows))}
    assert found["marked model"].met
    assert not found["behind each change of its outputs"].met
    assert "whitened" in found["behind each change of its outputs"].reached
    assert found["8 bits or signs of its outputs"].met
    assert found["pruned 50 %"].met
    assert found["fine-tuned (1 of 5 tasks measured)"].met is False
    assert found["cosine of clean outputs"].met is None
    assert found["accuracy after fine-tuning"].met is None


def test_a_reading_that_was_impossible_is_a_miss(script):
    rows = [{"base": "marked", "change": "as it is", "rate": None, "p": None, "error": "constant"}]
    (target,) = (t for t in script.all_targets(document(rows)) if t.what == "marked model")
    assert target.met is False
    assert "constant" in script.markdown(document(rows))


def test_the_page_names_what_failed_and_what_was_not_measured(script):
    page = script.markdown(document([row("marked", 0.5)]))
    assert "| marked | 0.500 | 0.30 | 64 of 128, 64 of 128 |" in page
    assert "**not met**" in page
    assert "- a note" in page
    assert page.count("Not measured yet.") == 4
    assert "Made with torch 2: attacks." in page


def test_bfloat16_rounds_to_eight_bits(script):
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from pair_table.changes import changed

    values = np.random.default_rng(0).standard_normal((50, 7))
    expected = torch.from_numpy(values).to(torch.float32).bfloat16().double().numpy()
    assert np.array_equal(changed(values, "bfloat16", 0), expected)


def test_counts_are_tested_against_the_binomial(script):
    pytest.importorskip("torch", reason="needs the torch extra")
    from pair_table.validity import binomial_test, level_share

    rng = np.random.default_rng(1)
    fair = binomial_test(rng.binomial(128, 0.5, 300).tolist(), 128)
    wide = binomial_test(rng.binomial(128, rng.uniform(0.4, 0.6, 300)).tolist(), 128)
    assert fair["bins"] > 10
    assert fair["p"] > 0.01
    assert wide["p"] < 1e-3
    share = level_share(np.array([0.005] * 20 + [0.5] * 80), 0.01, checks=80)
    assert share["share"] == 0.2
    assert not share["within_jointly"]


def test_query_changes_leave_the_order_of_the_kept_words(script):
    from pair_table.queries import altered

    text = "one two two three Four one five six seven"
    assert altered([text], "repeated words deleted") == ["one two three Four five six seven"]
    assert altered([text], "every fifth word dropped") == ["one two two three one five six seven"]
    assert sorted(altered([text], "word order shuffled in windows of 5")[0].split()) == sorted(
        text.split()
    )


class Keeping:
    """What pieces need of a run."""

    environment: ClassVar = {"torch": "2"}

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, []

    def kept_file(self, part: str, name: str, *, of_mark: bool) -> Path:
        return self.folder / f"{part}-{name}-{of_mark}.json"

    def say(self, line: str) -> None:
        self.said.append(line)


def test_pieces_are_made_once_unless_asked_for_again(script, tmp_path):
    from pair_table.pieces import Piece, measure_pieces

    run, begun = Keeping(tmp_path), []

    def piece(name: str, value: int, *, of_mark: bool = True) -> Piece:
        def start():
            begun.append(name)
            return lambda: value

        return Piece(name, start, of_mark)

    pieces = [piece("a", 1), piece("b", 2, of_mark=False), piece("c", 3), piece("d", 4)]
    assert measure_pieces(run, "p", pieces, "[bd]").results == {"b": 2, "d": 4}
    found = measure_pieces(run, "p", pieces)
    assert list(found.results.items()) == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    assert found.environments == [{"torch": "2"}]
    assert begun == ["b", "d", "a", "c"]
    # Made again on another machine: only what was named.
    run.environment = {"torch": "3"}
    measure_pieces(run, "p", [piece("a", 10), piece("c", 30)], "a", again=True)
    found = measure_pieces(run, "p", pieces)
    assert found.results["a"] == 10
    assert found.results["c"] == 3
    assert {each["torch"] for each in found.environments} == {"2", "3"}


def test_a_mark_is_not_told_under_settings_it_was_not_made_with(script):
    pytest.importorskip("torch", reason="needs the torch extra")
    from nsmark.embedding.config import preset_config
    from pair_table.marking import check_settings

    config = replace(preset_config("strong"), pruned_feed_forward=0.0)
    made = json.loads(json.dumps(asdict(config)))
    check_settings(made | {"checkpoint_every": 7}, config)
    del made["pruned_feed_forward"]  # a setting that is newer than the mark
    check_settings(made, config)
    with pytest.raises(SystemExit, match="position_weight"):
        check_settings(made | {"position_weight": 1.5}, config)


@pytest.mark.slow
def test_all_parts_run_on_a_tiny_model(tiny_st, tmp_path):
    """In a process of its own, with two of its own; no real data."""
    files = {"--work": tmp_path / "work", "--json": tmp_path / "out.json"}
    files |= {"--markdown": tmp_path / "out.md"}
    words = ["--model", tiny_st, "--tiny", "--device", "cpu", "--processes", "2"]
    words += [word for pair in files.items() for word in pair]
    command = [sys.executable, str(FOLDER / "pair_code.py"), *map(str, words)]
    subprocess.run(command, check=True, timeout=1500)
    found = json.loads(files["--json"].read_text(encoding="utf-8"))
    parts = found["parts"]
    assert list(parts) == ["mark", "attacks", "validity", "kinds", "limits"]
    check_mark(parts["mark"])
    check_attacks(parts["attacks"]["rows"])
    check_validity(parts["validity"])
    check_kinds(parts["kinds"]["kinds"])
    check_limits(parts["limits"])
    page = files["--markdown"].read_text(encoding="utf-8")
    assert "Not measured yet." not in page
    assert "## Limits" in page
    # What is there is left alone: a second run has nothing to do.
    again = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    assert not any(f"{part}:" in again.stderr for part in parts)
    assert json.loads(files["--json"].read_text(encoding="utf-8")) == found


def check_mark(part: dict) -> None:
    assert part["readings"]["marked"]["rate"] >= 0.8
    assert part["held_out"]["pairs"] >= 0.97
    assert part["fidelity"]["clean"]["mean"] > part["fidelity"]["pair"]["mean"]
    marked, reference = (part["other_witnesses"][name] for name in ("marked", "reference"))
    assert marked["extraction_rate"] > reference["extraction_rate"]
    assert marked["predictability"] > max(0.99, reference["predictability"])


def check_attacks(rows: list[dict]) -> None:
    plain = {row["base"]: row["rate"] for row in rows if row["change"] == "as it is"}
    assert plain["marked"] >= 0.8
    assert {"pruned 60%", "8-bit weights", "fine-tuned on agnews"} <= set(plain)
    assert "fine-tuned on sst2, pruned 30%" in plain
    assert {f"classifier {t}, {k} classes, logits" for t, k in (("sst2", 2), ("sst5", 5))} <= set(
        plain
    )
    assert len([row for row in rows if row["base"] == "marked"]) >= 20


def check_validity(part: dict) -> None:
    assert len(part["cells"]) == 16
    assert all(cell["count"] == part["keys"] for cell in part["cells"])
    assert part["beyond_joint_allowance"] == 0


def check_kinds(kinds: dict) -> None:
    assert set(kinds) == {"bert", "gpt2"}
    read = {row["read"] for row in kinds["gpt2"]["rows"]}
    assert read == {f"log-probabilities of {n} tokens" for n in (64, 20)} | {"outputs"}
    assert {row["read"] for row in kinds["bert"]["rows"]} == {"outputs"}


def check_limits(part: dict) -> None:
    assert len(part["students"]) == 2
    assert part["queries"][0]["rate"] >= 0.8
    assert part["word_search"]["marked"]["pair_auc"] > part["word_search"]["reference"]["pair_auc"]
    assert [row["texts_per_pair"] for row in part["undo"]] == [1, 2]
    assert len(part["retraining"]) == 4
