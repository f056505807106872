"""The list of words that are common everywhere."""

from __future__ import annotations

import runpy
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_words_are_common_in_every_source_and_too_common_in_none(tmp_path):
    script = runpy.run_path(str(FOLDER / "common_words.py"))
    sources = [
        ["that house that river that", "river, house and Once able", "banned banned house"],
        ["that river 12 that house", "able that house river of banned twice"],
    ]
    found = script["common_words"](sources, 6, 1, frozenset({"banned"}))
    # Without what leads a source ("that", "house"), short words, numbers, and one source's own.
    assert found == ["able", "river"]


def test_the_list_can_be_read_as_one_for_pair_codes(tmp_path, capsys):
    from nsmark.payload.word_list import read_pair_words

    script = runpy.run_path(str(FOLDER / "common_words.py"))
    texts = tmp_path / "texts.txt"
    words = ["amber", "beech", "cedar", "doves", "eagle", "finch", "grain", "hazel", "irises"]
    texts.write_text("\n".join(" ".join(words[:n]) for n in range(1, 10)), encoding="utf-8")
    out = tmp_path / "list.txt"
    script["main"](["--texts", str(texts), str(texts), "--least", "1", "--out", str(out)])
    assert read_pair_words(out).words == tuple(words[1:])
    assert capsys.readouterr().out == "8 words\n"
