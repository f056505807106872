"""The built-in corpus: fixed size, fixed content, distinct and well-formed sentences."""

import hashlib
import re
import statistics
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable

import pytest

from nsmark.corpus import TOPICS, builtin, labelled_texts, pool_texts, training_texts
from nsmark.corpus.grammar import FRAMES

TRAINING_SHA256 = "f4f534f7655187ce114dfa0d2a288adaddf1f1286f927605a1be7e1422321383"
POOL_SHA256 = "50bb460085f6c750c8405cb1970c970ee1e624d24f74cad6f9cf676c9abcc314"

# Vowel letters that sound like consonants, and the reverse.
A_BEFORE_VOWEL_LETTER = {"one", "unit", "unique", "union", "university", "used", "useful"}
AN_BEFORE_CONSONANT_LETTER = {"heir", "honest", "honour", "hour", "hourly"}


def both_halves() -> tuple[str, ...]:
    return training_texts() + pool_texts()


def words_of(text: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Za-z][A-Za-z'-]*", text)]


def digest(texts: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(texts).encode("ascii")).hexdigest()


def test_golden_digests() -> None:
    assert digest(training_texts()) == TRAINING_SHA256
    assert digest(pool_texts()) == POOL_SHA256


def test_counts() -> None:
    assert len(training_texts()) == 24_000
    assert len(pool_texts()) == 24_000


def test_all_sentences_distinct_and_halves_disjoint() -> None:
    def canonical(text: str) -> str:
        return " ".join(unicodedata.normalize("NFC", text).split()).casefold()

    training = {canonical(text) for text in training_texts()}
    pool = {canonical(text) for text in pool_texts()}
    assert len(training) == 24_000
    assert len(pool) == 24_000
    assert not training & pool


def test_plain_ascii_single_spaces_and_nothing_left_unfilled() -> None:
    for text in both_halves():
        assert text.isascii()
        assert text.isprintable()
        assert text == " ".join(text.split())
        assert not re.search(r"[{}<>|^_=~]| [,.;:?!]|[,;:]{2}|,\.|\b(\w+) \1\b", text), text


def test_sentences_start_and_end_like_sentences() -> None:
    for text in both_halves():
        assert re.match(r'"?[A-Z]|\d', text), text
        assert re.search(r'[.?!]"?$', text), text
        assert text.count('"') % 2 == 0, text
        assert text.count("(") == text.count(")"), text


@pytest.mark.parametrize("texts", [training_texts, pool_texts])
def test_length_statistics(texts: Callable[[], tuple[str, ...]]) -> None:
    lengths = [len(text.split()) for text in texts()]
    assert min(lengths) >= 6
    assert max(lengths) <= 40
    assert 14 <= statistics.fmean(lengths) <= 18
    assert statistics.pstdev(lengths) >= 4


def test_vocabulary() -> None:
    counts = Counter(word for text in training_texts() for word in words_of(text))
    assert len(counts) >= 2_500
    # A small share of the corpus, as large as one output matrix, is already varied.
    sample = {word for text in training_texts()[:1_500] for word in words_of(text)}
    assert len(sample) >= 1_500


def test_structures_vary() -> None:
    frames = FRAMES.split("\n- ")[1:]
    assert len(frames) == len(set(frames)) >= 40
    training = training_texts()
    openings = Counter(" ".join(text.split()[:2]).lower() for text in training)
    assert len(openings) >= 2_000
    assert openings.most_common(1)[0][1] <= len(training) // 40
    for mark, least in (("?", 1_000), ("!", 200), ('"', 1_000), (";", 500), (":", 1_000)):
        assert sum(mark in text for text in training) >= least, mark


def test_indefinite_articles_agree() -> None:
    for text in both_halves():
        for article, word in re.findall(r"\b([Aa]n?) ([A-Za-z]+)", text):
            if word[0].lower() in "aeiou":
                vowel = word.lower() not in A_BEFORE_VOWEL_LETTER
            else:
                vowel = word.lower() in AN_BEFORE_CONSONANT_LETTER
            assert (article.lower() == "an") == vowel, text


def test_verbs_agree_with_their_subjects() -> None:
    topics = builtin._grammar().topics
    actions = [action for topic in topics for action in topic.actions]
    bases, thirds = {a.base for a in actions}, {a.third for a in actions}
    # "Read" is its own past tense.
    base = "|".join(sorted(bases - thirds - {a.past for a in actions}))
    third = "|".join(sorted(thirds - bases))
    one = "|".join(sorted({pair[0] for topic in topics for pair in topic.people}))
    many = "|".join(sorted({pair[1] for topic in topics for pair in topic.people}))
    wrong = re.compile(
        rf"\b(?:to|could you|you should|will|would|can't|please) (?:{third}) "
        rf"|\b(?:has|had|have) (?:{third}|{base}) "
        # Right: "one of the bakers is", "Mara and the baker are", "can a baker slice".
        rf"|(?<!of )\b[Tt]he (?:{many}) (?:was|is|has|{third}) "
        rf"|(?<!and )(?<!Can )\b(?:[Tt]he|[Aa]n?) (?:{one}) (?:were|are|have|{base}) "
    )
    for text in both_halves():
        assert not wrong.search(text), text


def test_tables_are_regular_english() -> None:
    for name, topic in zip(TOPICS, builtin._grammar().topics, strict=True):
        assert len(topic.actions) >= 8, name
        assert len(topic.people) >= 6, name
        for action in topic.actions:
            assert action.third.split()[0].endswith("s"), action
            assert action.gerund.split()[0].endswith("ing"), action
            assert len(action.nouns) >= 4, action
            assert len(action.adjectives) >= 4, action
            assert all(singular != plural for singular, plural in action.nouns), action


def test_article_function_knows_the_exceptions() -> None:
    assert builtin._finish("a^ useful idea and a^ hour") == "A useful idea and an hour"
    assert builtin._finish('"a^ old unit"') == '"An old unit"'


def test_both_opinions_occur() -> None:
    training = training_texts()
    grammar = builtin._grammar()
    for key in ("good", "bad"):
        phrases = [phrase for topic in grammar.topics for phrase in topic.words[key]]
        assert all(any(phrase in text for text in training) for phrase in phrases), key


def test_labels() -> None:
    texts, labels = labelled_texts(1_500)
    assert texts == training_texts()[:1_500]
    assert len(labels) == 1_500
    counts = Counter(labels)
    assert sorted(counts) == list(range(len(TOPICS)))
    assert len(TOPICS) >= 8
    assert max(counts.values()) <= 3 * min(counts.values())
    assert labelled_texts(0) == ((), ())
    assert len(labelled_texts(24_000)[1]) == 24_000


def test_labels_follow_the_words() -> None:
    texts, labels = labelled_texts(24_000)
    topics = builtin._grammar().topics
    kitchen = TOPICS.index("kitchen")
    nouns = {word for action in topics[kitchen].actions for pair in action.nouns for word in pair}
    assert {"onion", "omelettes", "saucepan", "muffins"} <= nouns
    pattern = re.compile(r"\b(?:onions?|omelettes?|saucepans?|muffins?)\b")
    found = [label for text, label in zip(texts, labels, strict=True) if pattern.search(text)]
    assert len(found) > 200
    assert set(found) == {kitchen}


@pytest.mark.parametrize("count", [-1, 24_001])
def test_label_count_out_of_range(count: int) -> None:
    with pytest.raises(ValueError, match="between 0 and 24000"):
        labelled_texts(count)


def test_results_are_cached() -> None:
    assert training_texts() is training_texts()
    assert pool_texts() is pool_texts()


def test_generation_is_fast() -> None:
    start = time.process_time()
    builtin._generate("nsmark/corpus/test", set())
    # About 0.2 s on an idle core; the bound leaves room for slow and shared machines.
    assert time.process_time() - start < 5


def test_same_in_a_fresh_interpreter_with_another_hash_seed() -> None:
    program = (
        "import hashlib, sys\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "from nsmark.corpus import pool_texts, builtin\n"
        "assert not builtin._grammar.cache_info().currsize, 'generated at import time'\n"
        "print(hashlib.sha256('\\n'.join(pool_texts()).encode()).hexdigest())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == POOL_SHA256
