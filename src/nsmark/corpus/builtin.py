"""Deterministic built-in corpus: English sentences drawn from a small grammar.

Every choice is a number from a SHAKE-256 counter stream taken modulo the number of options, so
the corpus is the same on every platform and Python version. Nothing is parsed or generated until
a public function is first called.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import shake_256
from itertools import count as count_from

from nsmark.corpus.grammar import FRAMES, PHRASE_TABLE, TOPIC_TABLES

TOPICS: tuple[str, ...] = tuple(TOPIC_TABLES)
"""Topic names; a label is an index into this tuple."""

HALF_SIZE = 24_000
"""Number of sentences in each half of the corpus."""

MIN_WORDS, MAX_WORDS = 6, 40

_BLOCK_WORDS = 1 << 14
_TRAINING_STREAM = "nsmark/corpus/builtin/v1/training"
_POOL_STREAM = "nsmark/corpus/builtin/v1/pool"

# Determiners before singular and before plural nouns; repeated entries weight the draw.
_ANY_ONE = ("the ",) * 3 + ("a^ ",) * 4 + ("another ", "the first ", "the last ")
_ANY_MANY = ("the ", "some ", "several ", "a few ", "", "", "two ", "three ", "four ", "all the ")
# A habit takes an indefinite object: "she bakes the last cake every Sunday" reads badly.
_USUAL_ONE = ("a^ ", "a^ ")
_USUAL_MANY = ("", "", "", "", "some ", "several ", "a few ", "two ")
_ARTICLE = re.compile(r"\b([Aa])\^ (\w+)")
_TOKEN = re.compile(r"\{(\w+)\}|<([^<>]*)>")
_FIELD = re.compile(r"^(\w+):", re.MULTILINE)
# Spelling and sound disagree in these words.
_CONSONANT_SOUND = frozenset(("one", "unit", "unique", "union", "university", "used", "useful"))
_VOWEL_SOUND = frozenset(("heir", "honest", "honour", "hour", "hourly"))


@dataclass(frozen=True, slots=True)
class Action:
    """A verb with the nouns it takes and adjectives that fit each of those nouns."""

    base: str
    third: str
    past: str
    participle: str
    gerund: str
    nouns: tuple[tuple[str, str], ...]
    adjectives: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """The parsed word tables of one topic."""

    people: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, str, str], ...]
    actions: tuple[Action, ...]
    words: Mapping[str, tuple[str, ...]]


class _Writer:
    """The state of the sentence being written: number stream, topic, and words already used."""

    __slots__ = ("numbers", "topic", "used")

    def __init__(self, numbers: Iterator[int], topics: Sequence[Topic]) -> None:
        self.numbers = numbers
        self.topic = topics[0]
        self.used: list[str] = []

    def begin(self, topic: Topic) -> None:
        """Starts a new sentence on ``topic``."""
        self.topic = topic
        self.used.clear()

    def below(self, bound: int) -> int:
        """Draws a number in ``range(bound)``."""
        # The modulo bias is below 2**-24 for these table sizes, and rejection would cost time.
        return next(self.numbers) % bound

    def fresh(self, options: Sequence[str]) -> str:
        """Draws an option this sentence has not used yet, so that it never repeats itself."""
        size = len(options)
        start = next(self.numbers) % size
        for step in range(size):
            option = options[(start + step) % size]
            if option not in self.used:
                self.used.append(option)
                return option
        return options[start]

    def action(self) -> Action:
        """Draws an action whose verb this sentence has not used yet."""
        actions = self.topic.actions
        size = len(actions)
        start = next(self.numbers) % size
        for step in range(size):
            action = actions[(start + step) % size]
            if action.base not in self.used:
                self.used.append(action.base)
                return action
        return actions[start]

    def noun(self, action: Action, plural: bool) -> str:
        """Draws a noun of ``action``, in half of the cases with an adjective."""
        nouns = action.nouns
        noun = nouns[next(self.numbers) % len(nouns)][plural]
        choice = next(self.numbers) % (2 * len(action.adjectives))
        if choice < len(action.adjectives):
            return f"{action.adjectives[choice]} {noun}"
        return noun

    def object(self, action: Action, one: Sequence[str], many: Sequence[str]) -> str:
        """Draws a noun of ``action`` with one of the given determiners."""
        choice = next(self.numbers) % (len(one) + len(many))
        if choice < len(one):
            return one[choice] + self.noun(action, False)
        return many[choice - len(one)] + self.noun(action, True)

    def person(self, plural: bool) -> str:
        """Draws a kind of person of the topic."""
        people = self.topic.people
        return people[next(self.numbers) % len(people)][plural]

    def event(self, past: bool) -> str:
        """Draws a short intransitive clause of the topic."""
        events = self.topic.events
        event = events[next(self.numbers) % len(events)]
        return f"{event[0]} {event[1 + past]}"


_Part = Callable[[_Writer], str]


def _verb_phrase(form: Callable[[Action], str], usual: bool = False) -> _Part:
    one, many = (_USUAL_ONE, _USUAL_MANY) if usual else (_ANY_ONE, _ANY_MANY)

    def part(writer: _Writer) -> str:
        action = writer.action()
        return f"{form(action)} {writer.object(action, one, many)}"

    return part


def _passive(before: str, plural: bool, auxiliary: str) -> _Part:
    def part(writer: _Writer) -> str:
        action = writer.action()
        return f"{before}{writer.noun(action, plural)} {auxiliary} {action.participle}"

    return part


def _relative(writer: _Writer) -> str:
    action = writer.action()
    name = _grammar().slots["name"](writer)
    return f"the {writer.noun(action, False)} that {name} {action.past}"


def _bare_plural(writer: _Writer) -> str:
    nouns = writer.action().nouns
    return nouns[writer.below(len(nouns))][1]


def _adjective_plural(writer: _Writer) -> str:
    action = writer.action()
    adjective = action.adjectives[writer.below(len(action.adjectives))]
    return f"{adjective} {action.nouns[writer.below(len(action.nouns))][1]}"


_SLOTS: Mapping[str, _Part] = {
    "do": _verb_phrase(lambda action: action.base),
    "does": _verb_phrase(lambda action: action.third),
    "did": _verb_phrase(lambda action: action.past),
    "done": _verb_phrase(lambda action: action.participle),
    "doing": _verb_phrase(lambda action: action.gerund),
    "usually_do": _verb_phrase(lambda action: action.base, usual=True),
    "usually_does": _verb_phrase(lambda action: action.third, usual=True),
    "usually_done": _verb_phrase(lambda action: action.participle, usual=True),
    "was_done": _passive("the ", False, "was"),
    "were_done": _passive("several ", True, "were"),
    "are_done": _passive("", True, "are"),
    "must_be_done": _passive("every ", False, "must be"),
    "rel_did": _relative,
    "items": _bare_plural,
    "adj_items": _adjective_plural,
    "things": lambda writer: writer.noun(writer.action(), True),
    "person": lambda writer: writer.person(False),
    "persons": lambda writer: writer.person(True),
    "event": lambda writer: writer.event(False),
    "evented": lambda writer: writer.event(True),
}


@dataclass(frozen=True, slots=True)
class _Grammar:
    """Everything parsed from `nsmark.corpus.grammar`."""

    topics: tuple[Topic, ...]
    slots: Mapping[str, _Part]
    frames: tuple[tuple[_Part, ...], ...]


def _fields(table: str) -> dict[str, tuple[str, ...]]:
    """Parses ``key: item; item`` fields; items may be empty, which means "say nothing"."""
    pieces = _FIELD.split(table)[1:]
    return {
        key: tuple(" ".join(item.split()) for item in body.split(";"))
        for key, body in zip(pieces[::2], pieces[1::2], strict=True)
    }


def _pair(entry: str) -> tuple[str, str]:
    singular, plural = entry.replace("_", " ").split("/")
    return singular, singular + plural if plural in ("s", "es") else plural


def _action(entry: str) -> Action:
    forms, nouns, adjectives = (part.split() for part in entry.split("="))
    base, third, past, participle, gerund = (form.replace("_", " ") for form in forms)
    pairs = tuple(_pair(noun) for noun in nouns)
    return Action(base, third, past, participle, gerund, pairs, tuple(adjectives))


def _topic(table: str) -> Topic:
    fields = _fields(table)
    events: list[tuple[str, str, str]] = []
    for entry in fields.pop("event"):
        subject, present, past = entry.split("|")
        events.append((subject, present, past))
    people = tuple(_pair(entry) for entry in fields.pop("people"))
    actions = tuple(_action(entry) for entry in fields.pop("do"))
    return Topic(people, tuple(events), actions, fields)


def _literal(text: str) -> _Part:
    return lambda writer: text


def _topic_words(key: str) -> _Part:
    return lambda writer: writer.fresh(writer.topic.words[key])


def _capitalised(part: _Part) -> _Part:
    def capital(writer: _Writer) -> str:
        text = part(writer)
        return text[0].upper() + text[1:]

    return capital


def _one_of(options: Sequence[tuple[_Part, ...]]) -> _Part:
    def choose(writer: _Writer) -> str:
        return "".join([part(writer) for part in options[writer.below(len(options))]])

    return choose


def _compile(template: str, slots: Mapping[str, _Part]) -> tuple[_Part, ...]:
    """Turns a template into parts to be joined; an unknown slot raises ``KeyError``."""
    parts: list[_Part] = []
    position = 0
    for match in _TOKEN.finditer(template):
        if match.start() > position:
            parts.append(_literal(template[position : match.start()]))
        position = match.end()
        name, alternatives = match.groups()
        if name is None:
            parts.append(_one_of([_compile(text, slots) for text in alternatives.split("|")]))
        elif name[0].isupper():
            parts.append(_capitalised(slots[name[0].lower() + name[1:]]))
        else:
            parts.append(slots[name])
    if position < len(template):
        parts.append(_literal(template[position:]))
    return tuple(parts)


def _phrase(options: Sequence[str], slots: Mapping[str, _Part]) -> _Part:
    if any("{" in option for option in options):
        return _one_of([_compile(option, slots) for option in options])
    return lambda writer: writer.fresh(options)


@lru_cache(maxsize=1)
def _grammar() -> _Grammar:
    topics = tuple(_topic(table) for table in TOPIC_TABLES.values())
    slots: dict[str, _Part] = dict(_SLOTS)
    slots.update((key, _topic_words(key)) for key in topics[0].words)
    # A phrase may use those above it in the table, hence the running dictionary.
    for key, options in _fields(PHRASE_TABLE).items():
        slots[key] = _phrase(options, slots)
    frames = tuple(" ".join(frame.split()) for frame in FRAMES.split("\n- ")[1:])
    return _Grammar(topics, slots, tuple(_compile(frame, slots) for frame in frames))


def _numbers(label: str) -> Iterator[int]:
    """Yields the unsigned 32-bit big-endian integers of a labelled SHAKE-256 counter stream."""
    layout = struct.Struct(f">{_BLOCK_WORDS}I")
    for block in count_from():
        yield from layout.unpack(shake_256(f"{label}/{block}".encode()).digest(layout.size))


def _with_article(match: re.Match[str]) -> str:
    article, word = match.groups()
    lower = word.lower()
    vowel = lower in _VOWEL_SOUND or (lower[0] in "aeiou" and lower not in _CONSONANT_SOUND)
    return f"{article}{'n' if vowel else ''} {word}"


def _finish(text: str) -> str:
    """Settles articles and the initial capital of a sentence with single spaces."""
    if "^" in text:
        text = _ARTICLE.sub(_with_article, text)
    first = 1 if text[0] == '"' else 0
    return text[:first] + text[first].upper() + text[first + 1 :]


def _generate(label: str, taken: set[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Generates one half of the corpus.

    Args:
        label: Label of the number stream.
        taken: Lower-case sentences that must not occur again; the new ones are added to it. Only
            membership is asked of it, never its order.

    Returns:
        The sentences and their topic labels.
    """
    grammar = _grammar()
    numbers = _numbers(label)
    writer = _Writer(numbers, grammar.topics)
    texts: list[str] = []
    labels: list[int] = []
    while len(texts) < HALF_SIZE:
        topic = writer.below(len(grammar.topics))
        frame = grammar.frames[writer.below(len(grammar.frames))]
        writer.begin(grammar.topics[topic])
        words = "".join([part(writer) for part in frame]).split()
        if not MIN_WORDS <= len(words) <= MAX_WORDS:
            continue
        text = _finish(" ".join(words))
        key = text.lower()
        if key not in taken:
            taken.add(key)
            texts.append(text)
            labels.append(topic)
    return tuple(texts), tuple(labels)


@lru_cache(maxsize=1)
def _training() -> tuple[tuple[str, ...], tuple[int, ...]]:
    return _generate(_TRAINING_STREAM, set())


def training_texts() -> tuple[str, ...]:
    """Returns the 24,000 training sentences."""
    return _training()[0]


@lru_cache(maxsize=1)
def pool_texts() -> tuple[str, ...]:
    """Returns the 24,000 pool sentences, none of which is a training sentence in any case."""
    return _generate(_POOL_STREAM, {text.lower() for text in training_texts()})[0]


def labelled_texts(count: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Returns the first training sentences with their topics.

    Args:
        count: Number of sentences, from 0 to 24,000.

    Returns:
        The sentences, and for each the index of its topic in `TOPICS`.

    Raises:
        ValueError: If ``count`` is out of range.
    """
    if not 0 <= count <= HALF_SIZE:
        raise ValueError(f"count must lie between 0 and {HALF_SIZE}, not {count}")
    texts, labels = _training()
    return texts[:count], labels[:count]
